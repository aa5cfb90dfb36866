"""Linear layers with what follows them: fused or not, the same numbers; and never fused untried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchzs.models import linear
from batchzs.models.linear import FusedLinear, PlainLinear, fusing_works, make_linear
from tests.builders import PATIENT_AND_BRIEF, products_keep_rows

if TYPE_CHECKING:
    from batchzs.models.checkpoint import Activation

SIZES = st.integers(1, 40)
ACTIVATIONS = st.sampled_from(["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])


def test_plain_layers_worked_by_hand() -> None:
    """(1, 2) x (3, 4; -5, 6) + (0.5, -20): 11.5 and -13; with ReLU 11.5 and 0; added to (1, 1): 12.5 and -12."""
    layer = PlainLinear(torch.tensor([[3.0, 4.0], [-5.0, 6.0]]), torch.tensor([0.5, -20.0]))
    hidden = torch.tensor([[1.0, 2.0]])
    assert layer(hidden).tolist() == [[11.5, -13.0]]
    assert layer.activated(hidden, "relu").tolist() == [[11.5, 0.0]]
    assert layer.added_to(torch.tensor([[1.0, 1.0]]), hidden).tolist() == [[12.5, -12.0]]


@pytest.mark.skipif(not products_keep_rows(), reason="this machine's products have other last bits in every batch")
def test_a_row_has_the_same_bits_in_any_batch() -> None:
    """Down to a single row, which torch alone multiplies in another order."""
    draw = torch.Generator().manual_seed(0)
    layer = PlainLinear(torch.randn(96, 32, generator=draw), torch.randn(96, generator=draw))
    rows = torch.randn(200, 32, generator=draw)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole = layer(rows)
        for size in (*range(1, 20), 33, 100, 199):
            assert torch.equal(layer(rows[:size]), whole[:size]), size
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not fusing_works(torch.float32), reason="this torch has no fused layers")
@PATIENT_AND_BRIEF
@given(
    tokens=st.integers(1, 70),
    width=st.integers(1, 40),
    out=st.integers(1, 40),
    activation=ACTIVATIONS,
    seed=st.integers(0, 99),
)
def test_fused_layers_equal_plain_ones(tokens: int, width: int, out: int, activation: Activation, seed: int) -> None:
    """Any sizes, any activation, within fp32's rounding."""
    draw = torch.Generator().manual_seed(seed)
    weight, bias = torch.randn(out, width, generator=draw), torch.randn(out, generator=draw)
    hidden, residual = torch.randn(tokens, width, generator=draw), torch.randn(tokens, out, generator=draw)
    plain, fused = PlainLinear(weight, bias), FusedLinear(weight, bias)
    for one, other in (
        (plain(hidden), fused(hidden)),
        (plain.activated(hidden, activation), fused.activated(hidden, activation)),
        (plain.added_to(residual, hidden), fused.added_to(residual, hidden)),
    ):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


def test_only_bf16_on_a_cpu_that_was_tried_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """fp32, and bf16 where the trial fails, run torch's own layers."""
    weight, bias = torch.randn(4, 4), torch.randn(4)
    assert isinstance(make_linear(weight, bias), PlainLinear)
    monkeypatch.setattr(linear, "fusing_works", lambda _: False)
    assert isinstance(make_linear(weight.bfloat16(), bias.bfloat16()), PlainLinear)
    made = []
    monkeypatch.setattr(linear, "fusing_works", lambda _: True)
    monkeypatch.setattr(linear, "FusedLinear", lambda *arguments: made.append(arguments))
    make_linear(weight.bfloat16(), bias.bfloat16())
    assert len(made) == 1


@pytest.mark.parametrize("error", [AttributeError, RuntimeError, TypeError])
def test_an_operator_that_is_not_there_is_not_used(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another torch, another processor: the trial says no, and nothing else happens."""

    def fail(*_: object) -> None:
        raise error("no such operator")

    monkeypatch.setattr(linear, "FusedLinear", fail)
    assert not fusing_works.__wrapped__(torch.float32)


def test_an_operator_that_gives_other_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual that is forgotten, say."""

    class Wrong(PlainLinear):
        def added_to(self, residual: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
            """Forget the residual."""
            del residual
            return self(hidden)

    monkeypatch.setattr(linear, "FusedLinear", Wrong)
    assert not fusing_works.__wrapped__(torch.float32)
