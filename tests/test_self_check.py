"""A network that is wrong on this machine is found before it labels anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from batchzs.errors import InterruptedRunError
from batchzs.models import loaded as loaded_module
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.loaded import LoadedModel
from batchzs.models.packed_bert import PackedBert
from batchzs.models.reference_bert import ReferenceBert
from batchzs.models.self_check import TOLERANCES, largest_difference, probe_pairs
from batchzs.models.weights import load_weights
from batchzs.pairs import PairLayout
from tests.builders import network_config, odd_folder, packed, reference_network, split_pairs, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.models.device import Precision
    from batchzs.pairs import PackedPairs

LAYOUT = PairLayout.bert(2, 3)
PROBES = probe_pairs(LAYOUT, 60, 64)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_reference_is_transformers_bert(tmp_path: Path, activation: str, num_classes: int) -> None:
    """Padded and masked: each pair of a mixed batch has the logits that transformers gives it alone."""
    folder = write_checkpoint(odd_folder(tmp_path), num_classes=num_classes, hidden_act=activation)
    checkpoint = read_checkpoint(folder)
    pairs = packed([[5, 6, 7, 8, 9], [8]], [[9, 10], [11]])
    logits = ReferenceBert(load_weights(checkpoint), checkpoint.encoder, "cpu").forward(pairs)
    network = reference_network(network_config(hidden_act=activation), num_classes)
    for ids, row in zip(split_pairs(pairs), logits, strict=True):
        second = ids.index(3) + 1
        token_types = [0] * second + [1] * (len(ids) - second)
        with torch.inference_mode():
            expected = network(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([token_types])).logits
        np.testing.assert_allclose(row, expected[0].numpy(), atol=1e-5)


def test_probes_are_pairs_that_fit() -> None:
    """[CLS] first, [SEP] in the middle and at the end, no longer than the model takes, the same every time."""
    pairs = probe_pairs(LAYOUT, 60, 20)
    assert pairs.lengths.tolist() == [20, 17, 17, 9]
    for ids in split_pairs(pairs):
        assert (ids[0], ids[-1]) == (2, 3)
        assert max(ids) < 60
    assert np.array_equal(pairs.input_ids, probe_pairs(LAYOUT, 60, 20).input_ids)
    assert pairs.token_type_ids.sum() == sum((length - 3) // 3 + 1 for length in pairs.lengths)
    assert probe_pairs(LAYOUT, 60, None).lengths.max() == 48


def test_a_difference_worked_by_hand() -> None:
    """Even odds against 3 to 1: a quarter. Rows without finite numbers have no say."""
    assert largest_difference(np.array([[0, 0]]), np.array([[0, np.log(3)]])) == pytest.approx(0.25)
    assert largest_difference(np.array([[np.nan, 0]]), np.array([[0, 1]])) == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_sound_network_passes(tmp_path: Path, precision: Precision, caplog: pytest.LogCaptureFixture) -> None:
    """The packed path is kept, without a word, and its speed was seen."""
    model = LoadedModel(read_checkpoint(write_checkpoint(odd_folder(tmp_path))), "cpu", precision)
    assert model.check(PROBES) > 0
    assert (model.path, caplog.records) == ("packed", [])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_wrong_network_is_replaced_loudly(
    tmp_path: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A forward that drops its last pair's tokens, say: from then on the plain path in fp32 scores."""
    checkpoint = read_checkpoint(write_checkpoint(odd_folder(tmp_path)))

    class Wrong(PackedBert):
        def forward(self, pairs: PackedPairs) -> np.ndarray:
            logits = super().forward(pairs)
            logits[-1] = -logits[-1]
            return logits

    monkeypatch.setattr(loaded_module, "PackedBert", Wrong)
    model = LoadedModel(checkpoint, "cpu", precision)
    model.check(PROBES)
    assert model.path == "plain"
    assert "self-check failed" in caplog.text
    assert f"at most {TOLERANCES[precision]:g} is rounding" in caplog.text
    reference: Any = ReferenceBert(load_weights(checkpoint), checkpoint.encoder, "cpu")
    for forward in (model.forward, model.forward_exact):
        assert np.array_equal(forward(PROBES), reference.forward(PROBES))


def test_a_stop_is_heard_between_forwards(tmp_path: Path) -> None:
    """Each of them may take seconds on a slow machine with a large model."""
    model = LoadedModel(read_checkpoint(write_checkpoint(odd_folder(tmp_path))), "cpu", "fp32")
    num_left = 2

    def stop() -> None:
        nonlocal num_left
        num_left -= 1
        if num_left == 0:
            raise InterruptedRunError("stopped by SIGTERM")

    with pytest.raises(InterruptedRunError):
        model.check(PROBES, stop)
    assert model.path == "packed"
