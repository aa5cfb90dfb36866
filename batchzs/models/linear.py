"""Linear layers, alone and with what follows them: an activation, or the residual that is added.

In bf16 a GELU of its own takes twice as long as the product before it, because it goes through memory once more. On a
CPU with units for bf16, oneDNN applies it, or adds the residual, while the product's tile is still at hand, and takes
weights in its own layout. torch offers that under `torch.ops.mkldnn`, where its compiler finds it; no documented
function does. So it is used only where it is there and, tried on a small example, gives what the plain layers give;
everywhere else the plain layers run. In fp32, where the product is slow, fusing gained nothing that could be measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - its customary name

if TYPE_CHECKING:
    from batchzs.models.checkpoint import Activation

#: oneDNN's names of the activations: a unary operation and its algorithm.
_FUSED_NAMES: dict[Activation, tuple[str, str]] = {
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "relu": ("relu", "none"),
}
#: How far the fused layer may lie from the plain one in the trial: a bf16 rounding of numbers below 4.
_TRIAL_TOLERANCE = 0.05
#: Fewer rows than these MKL multiplies in another order, with other last bits. Rows of zeros make them up, so that in
#: fp32 on one thread, which is all that a worker has, a pair's logits are the same bits in any batch.
_MIN_ROWS = 4


class Linear(Protocol):
    """A linear layer: (tokens, in) to (tokens, out)."""

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """The product and the bias."""

    def activated(self, hidden: torch.Tensor, activation: Activation) -> torch.Tensor:
        """The same with an activation applied."""

    def added_to(self, residual: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """The same added to a residual, (tokens, out)."""


@dataclass(frozen=True, slots=True)
class PlainLinear:
    """torch's own layer, and what follows it as steps of their own."""

    weight: torch.Tensor  # (out, in)
    bias: torch.Tensor  # (out,)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """The product and the bias."""
        num_missing = _MIN_ROWS - len(hidden)
        if num_missing > 0 and hidden.device.type == "cpu":
            return F.linear(F.pad(hidden, (0, 0, 0, num_missing)), self.weight, self.bias)[: len(hidden)]
        return F.linear(hidden, self.weight, self.bias)

    def activated(self, hidden: torch.Tensor, activation: Activation) -> torch.Tensor:
        """The same with an activation applied."""
        inner = self(hidden)
        match activation:
            case "gelu":
                return F.gelu(inner)
            case "relu":
                return F.relu(inner)
            case _:  # gelu_new, gelu_pytorch_tanh
                return F.gelu(inner, approximate="tanh")

    def added_to(self, residual: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """The same added to a residual, (tokens, out)."""
        return self(hidden).add_(residual)


class FusedLinear:
    """oneDNN's layer, with what follows done on the product's tiles.

    Args:
        weight: (out, in).
        bias: (out,).

    Raises:
        AttributeError: this torch has no such operator.
        RuntimeError: this processor, or this build of torch, does not do it for the weights' type.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self._operator = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001 - see above; tried before it is used
        # Laid out for products of about so many tokens, which other sizes may use as well.
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 1024)  # noqa: SLF001
        self._bias = bias

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """The product and the bias."""
        fused: torch.Tensor = self._operator(hidden, self._weight, self._bias, "none", [], None)
        return fused

    def activated(self, hidden: torch.Tensor, activation: Activation) -> torch.Tensor:
        """The same with an activation applied."""
        name, algorithm = _FUSED_NAMES[activation]
        fused: torch.Tensor = self._operator(hidden, self._weight, self._bias, name, [], algorithm)
        return fused

    def added_to(self, residual: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """The same added to a residual, (tokens, out)."""
        fused: torch.Tensor = self._operator.binary(hidden, residual, self._weight, self._bias, "add")
        return fused


def make_linear(weight: torch.Tensor, bias: torch.Tensor) -> Linear:
    """Make the layer that is fastest for a weight's device and type, and tried there."""
    if weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and fusing_works(weight.dtype):
        return FusedLinear(weight, bias)
    return PlainLinear(weight, bias)


@cache
def fusing_works(dtype: torch.dtype) -> bool:
    """Whether fused layers of a type are there and give what the plain ones give, on a small example."""
    draw = torch.Generator().manual_seed(0)
    weight, bias, hidden, residual = (
        torch.randn(shape, generator=draw).mul(0.25).to(dtype) for shape in ((48, 32), (48,), (40, 32), (40, 48))
    )
    plain = PlainLinear(weight, bias)
    try:
        fused = FusedLinear(weight, bias)
        pairs = [
            (plain(hidden), fused(hidden)),
            (plain.added_to(residual, hidden), fused.added_to(residual, hidden)),
            *((plain.activated(hidden, name), fused.activated(hidden, name)) for name in _FUSED_NAMES),
        ]
    except (AttributeError, RuntimeError, TypeError):  # TypeError: the operator takes other arguments by now
        return False
    return all(bool(((one - other).abs() < _TRIAL_TOLERANCE).all()) for one, other in pairs)
