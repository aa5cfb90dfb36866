"""Which pairs are scored together, and how that shrinks when memory runs out.

Pure: NumPy and no torch. Pairs are put in order of length, longest first, so that a batch holds pairs of nearly equal
length and the largest allocation comes first: an allocator whose pool only grows meets its peak in the first minute
and not in the last hour. A batch's size is counted in tokens as a padded batch would have them (pairs x longest),
which is an upper bound for a packed one.

The plan depends on lengths and the planned budget alone, never on what happened to fit: two runs on the same kind of
device score the same batches. Running out of memory only divides a planned batch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

#: A limit that has shrunk is tried a quarter larger after this many batches without a failure, and after twice as many
#: with every further failure: a machine at its limit spends its time scoring and not failing.
SUCCESSES_BEFORE_GROWTH = 32


def order_longest_first(lengths: np.ndarray) -> np.ndarray:
    """Return the order that sorts by length, longest first; equal lengths keep their order.

    Args:
        lengths: (pairs,) integers, tokens.

    Returns:
        (pairs,) int64 indices.

    >>> order_longest_first(np.array([3, 9, 3, 5])).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(-lengths.astype(np.int64), kind="stable")


def plan_batches(lengths: np.ndarray, max_batch_tokens: int) -> list[slice]:
    """Cut pairs that are sorted longest first into batches of at most `max_batch_tokens`, padding counted.

    A pair longer than the budget gets a batch of its own: nothing is left out.

    Args:
        lengths: (pairs,) integers, tokens, in descending order.
        max_batch_tokens: the budget, at least 1.

    Returns:
        Slices that cover `lengths` once, in order.

    >>> [(b.start, b.stop) for b in plan_batches(np.array([9, 5, 4, 2, 2]), max_batch_tokens=10)]
    [(0, 1), (1, 3), (3, 5)]
    """
    batches = []
    start = 0
    while start < len(lengths):
        num_pairs = max(1, max_batch_tokens // int(lengths[start]))
        stop = min(start + num_pairs, len(lengths))
        batches.append(slice(start, stop))
        start = stop
    return batches


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A shard's pairs in the order in which they are scored, and where batches begin and end."""

    text_ids: np.ndarray  # (pairs,) int64
    label_ids: np.ndarray  # (pairs,) int64
    lengths: np.ndarray  # (pairs,) int64, descending within each chunk of labels
    batches: tuple[slice, ...]

    @property
    def num_tokens(self) -> int:
        """Real tokens over all pairs."""
        return int(self.lengths.sum())

    @property
    def digest(self) -> bytes:
        """SHA-256 over the pairs and the batches: two plans with one digest are scored in the same batches."""
        starts = np.array([batch.start for batch in self.batches], dtype=np.int64)
        parts = (self.text_ids, self.label_ids, self.lengths, starts)
        return hashlib.sha256(b"".join(hashlib.sha256(part.tobytes()).digest() for part in parts)).digest()


@dataclass(slots=True)
class TokenBudget:
    """How many tokens a batch may have just now: the planned budget, less what running out of memory taught.

    The smallest size that failed is an exclusive bound: no batch of that size or more is tried again. Below it the
    limit halves on a failure and grows by a quarter after `SUCCESSES_BEFORE_GROWTH` batches, later after more.

    >>> budget = TokenBudget(planned_tokens=1000)
    >>> budget.record_failure(batch_tokens=960)
    >>> budget.limit_tokens
    480
    >>> for _ in range(SUCCESSES_BEFORE_GROWTH):
    ...     budget.record_success()
    >>> budget.limit_tokens
    600
    """

    planned_tokens: int
    failed_tokens: int | None = None
    limit_tokens: int = field(init=False)
    _num_successes: int = field(init=False, default=0)
    _num_before_growth: int = field(init=False, default=SUCCESSES_BEFORE_GROWTH)

    def __post_init__(self) -> None:
        self.limit_tokens = self.planned_tokens

    def record_failure(self, batch_tokens: int) -> None:
        """Take note that a batch of `batch_tokens` did not fit, and halve."""
        if self.failed_tokens is None:
            self.failed_tokens = batch_tokens
        else:
            self.failed_tokens = min(self.failed_tokens, batch_tokens)
            self._num_before_growth *= 2
        self.limit_tokens = max(1, min(self.limit_tokens, batch_tokens) // 2)
        self._num_successes = 0

    def record_success(self) -> None:
        """Take note that a batch fitted; after enough of them the limit grows, below what failed."""
        if self.failed_tokens is None or self.limit_tokens >= self._ceiling:
            return
        self._num_successes += 1
        if self._num_successes == self._num_before_growth:
            self._num_successes = 0
            self.limit_tokens = min(self.limit_tokens + max(1, self.limit_tokens // 4), self._ceiling)

    @property
    def _ceiling(self) -> int:
        if self.failed_tokens is None:
            return self.planned_tokens
        return max(1, min(self.planned_tokens, self.failed_tokens - 1))
