"""Attention over packed pairs: no padding and no mask.

On a CPU, neighbouring pairs of equal length make a run, viewed as one small unpadded batch; pairs come sorted by
length, so that runs are long. On a GPU in half precision all pairs go through one kernel for sequences of any lengths
(`torch.nn.attention.varlen`, FlashAttention 2: Dao 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its customary name

from batchzs.models.transfer import to_device

if TYPE_CHECKING:
    from collections.abc import Callable

    VarlenKernel = Callable[..., torch.Tensor]

#: The widest head that the kernel takes.
_MAX_HEAD_SIZE = 256


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring pairs of one length: tokens start to start + num_pairs * length of the flat tensor."""

    start: int
    num_pairs: int
    length: int


@dataclass(frozen=True, slots=True)
class Sequences:
    """Where each pair of a batch lies in the flat tensor."""

    starts: np.ndarray  # (pairs,) int64
    longest: int  # tokens of the longest pair
    runs: list[_Run]
    bounds: torch.Tensor  # (pairs + 1,) int32 on the device: starts, and the end

    @property
    def first_tokens(self) -> torch.Tensor:
        """(pairs,) int32 on the device: where each pair's first token lies."""
        return self.bounds[:-1]

    @staticmethod
    def of(lengths: np.ndarray, device: torch.device) -> Sequences:
        """Lay pairs of these lengths one after the other."""
        starts = np.cumsum(lengths) - lengths
        edges = np.flatnonzero(np.diff(lengths)) + 1
        first = np.concatenate(([0], edges)).astype(np.int64)
        stop = np.concatenate((edges, [len(lengths)])).astype(np.int64)
        runs = [_Run(int(starts[a]), int(b - a), int(lengths[a])) for a, b in zip(first, stop, strict=True)]
        (bounds,) = to_device([np.concatenate((starts, [lengths.sum()]))], device)
        return Sequences(starts, int(lengths.max()), runs, bounds)


class Attention(Protocol):
    """Softmax attention within each pair, before its output projection."""

    def everywhere(self, query_key_value: torch.Tensor, sequences: Sequences, num_heads: int) -> torch.Tensor:
        """(tokens, 3 * hidden) projections to (tokens, hidden)."""

    def first_only(
        self, queries: torch.Tensor, key_value: torch.Tensor, sequences: Sequences, num_heads: int
    ) -> torch.Tensor:
        """(pairs, hidden) queries of each pair's first token and (tokens, 2 * hidden) to (pairs, hidden)."""


class RunAttention:
    """One call of `scaled_dot_product_attention` for every run of equal lengths."""

    def everywhere(self, query_key_value: torch.Tensor, sequences: Sequences, num_heads: int) -> torch.Tensor:
        """(tokens, 3 * hidden) projections to (tokens, hidden)."""
        size = query_key_value.shape[1] // 3
        attended = query_key_value.new_empty(len(query_key_value), size)
        for run in sequences.runs:
            tokens = slice(run.start, run.start + run.num_pairs * run.length)
            query, key, value = _heads(query_key_value[tokens], run, 3, num_heads)
            heads = F.scaled_dot_product_attention(query, key, value)
            attended[tokens].view(run.num_pairs, run.length, num_heads, -1).copy_(heads.transpose(1, 2))
        return attended

    def first_only(
        self, queries: torch.Tensor, key_value: torch.Tensor, sequences: Sequences, num_heads: int
    ) -> torch.Tensor:
        """(pairs, hidden) queries of each pair's first token and (tokens, 2 * hidden) to (pairs, hidden)."""
        attended = torch.empty_like(queries)
        num_done = 0
        for run in sequences.runs:
            pairs = slice(num_done, num_done + run.num_pairs)
            num_done = pairs.stop
            query = queries[pairs].view(run.num_pairs, num_heads, 1, -1)
            tokens = slice(run.start, run.start + run.num_pairs * run.length)
            key, value = _heads(key_value[tokens], run, 2, num_heads)
            attended[pairs] = F.scaled_dot_product_attention(query, key, value).flatten(1)
        return attended


@dataclass(frozen=True, slots=True)
class VarlenAttention:
    """One call for all pairs, whatever their lengths.

    `kernel` takes the arguments of `torch.nn.attention.varlen.varlen_attn`.
    """

    kernel: VarlenKernel

    def everywhere(self, query_key_value: torch.Tensor, sequences: Sequences, num_heads: int) -> torch.Tensor:
        """(tokens, 3 * hidden) projections to (tokens, hidden)."""
        query, key, value = query_key_value.view(len(query_key_value), 3, num_heads, -1).unbind(1)
        longest = sequences.longest
        return self.kernel(query, key, value, sequences.bounds, sequences.bounds, longest, longest).flatten(1)

    def first_only(
        self, queries: torch.Tensor, key_value: torch.Tensor, sequences: Sequences, num_heads: int
    ) -> torch.Tensor:
        """(pairs, hidden) queries of each pair's first token and (tokens, 2 * hidden) to (pairs, hidden)."""
        key, value = key_value.view(len(key_value), 2, num_heads, -1).unbind(1)
        query = queries.view(len(queries), num_heads, -1)
        each = torch.arange(len(queries) + 1, dtype=torch.int32, device=queries.device)
        longest = sequences.longest
        return self.kernel(query, key, value, each, sequences.bounds, 1, longest).flatten(1)


def choose_attention(device: torch.device, dtype: torch.dtype, head_size: int) -> Attention:
    """The kernel for any lengths where torch has it for a device and a type, otherwise runs of equal lengths."""
    if device.type != "cuda" or dtype == torch.float32 or head_size % 8 or head_size > _MAX_HEAD_SIZE:
        return RunAttention()
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:  # before torch 2.10
        return RunAttention()
    return VarlenAttention(cast("VarlenKernel", varlen_attn))  # a tuple comes only where more is asked for


def _heads(projected: torch.Tensor, run: _Run, parts: int, num_heads: int) -> tuple[torch.Tensor, ...]:
    """View a run's projections, (tokens, parts * hidden), as `parts` times (pairs, heads, length, head size)."""
    return projected.view(run.num_pairs, run.length, parts, num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
