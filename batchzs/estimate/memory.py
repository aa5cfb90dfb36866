"""How much memory a run takes on a CPU, reckoned before it: what a process is seen to hold at its peak (RSS).

Pure. The figures were fitted to runs of a small and of a base-size model with one and two workers, and of long texts
and many labels; they hold to about a third. A GPU's own memory is another matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Python, torch, Polars and the rest before any text: their code, and what they hold.
_CODE_BYTES = 0.19e9
_LIBRARIES_BYTES = 0.31e9
#: Weights as they are loaded, and as they are laid out to compute with.
_COPIES_OF_WEIGHTS = 2
_BYTES_PER_NUMBER = 4
#: What batches of ever other shapes leave behind, until there are no new shapes: in all, for each worker, and after how
#: many batches about two thirds of it are there.
_LEFT_BEHIND_BYTES = 0.27e9
_LEFT_BEHIND_WORKER_BYTES = 0.13e9
_LEFT_BEHIND_BATCHES = 150
#: What a shard under way takes: for a pair its place in the plan (text, label, length, twice while it is sorted), its
#: logits and its scores; for a row its carried columns and its position; for a text itself, its copies and its tokens.
_BYTES_PER_PAIR = 100
_BYTES_PER_ROW = 500
_COPIES_OF_TEXT = 8
#: Shards in memory at once: one is scored while the next is read and the last is written, which hold less.
_SHARDS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Workload:
    """What a run's memory depends on."""

    weights_bytes: int  # of the files
    numbers_per_token: int  # that a batch holds at once, for each of its tokens
    batch_tokens: int
    num_batches: int
    num_workers: int
    num_processes: int  # each with a model and shards of its own
    shard_rows: int  # of the largest shard
    num_shards: int
    text_bytes: float  # of a row, as Python holds it
    num_labels: int


def memory_bytes(load: Workload) -> int:
    """Reckon the memory of a run's processes together.

    Args:
        load: what it depends on.

    >>> small = Workload(4_000_000, 1024, 4096, 699, 2, 1, 6000, 1, 60.0, 9)
    >>> round(memory_bytes(small) / 1e6)
    1078
    """
    settled = 1 - math.exp(-load.num_batches / load.num_processes / _LEFT_BEHIND_BATCHES)
    batch_bytes = _BYTES_PER_NUMBER * load.numbers_per_token * load.batch_tokens
    per_worker = batch_bytes + settled * _LEFT_BEHIND_WORKER_BYTES
    per_row = _BYTES_PER_ROW + _COPIES_OF_TEXT * load.text_bytes + _BYTES_PER_PAIR * load.num_labels
    num_shards = min(load.num_shards, _SHARDS_AT_ONCE)
    own = (
        _LIBRARIES_BYTES
        + _COPIES_OF_WEIGHTS * load.weights_bytes
        + settled * _LEFT_BEHIND_BYTES
        + load.num_workers * per_worker
        + num_shards * load.shard_rows * per_row
    )
    return round(_CODE_BYTES + load.num_processes * own)
