"""Planned batches to logits: several workers, results in planned order, smaller pieces where memory runs out.

On a CPU every worker is one thread with a batch of its own and no threads inside it: two workers beat one batch spread
over two threads, because nothing waits for the slower half of every matrix product, and the logits' bits do not depend
on how many workers there are. On a GPU one worker waits for its batch while another one puts the next batch together
and queues it behind.

A worker that runs out of memory halves and goes on; `TokenBudget` is shared, so that the others learn from it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from batchzs.batching import BatchPlan, TokenBudget, plan_batches
from batchzs.errors import DeviceError, InterruptedRunError
from batchzs.models.memory import is_out_of_memory
from batchzs.waiting import result_of, wait_for_all

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from batchzs.pairs import PackedPairs, PairAssembler

    Forward = Callable[[PackedPairs], np.ndarray]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Split:
    """One batch that did not fit: its shape, and the limit in force after it."""

    shape: str
    batch_tokens: int
    limit_tokens: int


class BatchGate(Protocol):
    """Whether there is time for another batch; see `batchzs.pace`."""

    def before(self) -> None:
        """Do nothing, or raise InterruptedRunError: no other batch begins, and those under way are still handed on."""

    def after(self, seconds: float) -> None:
        """Count a batch that took so long; called by a worker."""


class OpenGate:
    """Lets every batch begin."""

    def before(self) -> None:
        """Do nothing."""

    def after(self, seconds: float) -> None:
        """Count nothing."""


@dataclass(frozen=True, slots=True)
class BatchGates:
    """What is asked whether there is time for another batch: in the run's precision, and in fp32."""

    usual: BatchGate = field(default_factory=OpenGate)
    exact: BatchGate = field(default_factory=OpenGate)


class BatchScorer:
    """Scores planned batches with `num_workers` threads.

    Args:
        num_workers: batches under way at once.
        max_batch_tokens: the planned budget.
        release_memory: gives cached blocks back to the device.
        on_wait: called about twice a second while a batch is waited for; what it raises ends the scoring.
    """

    def __init__(
        self,
        num_workers: int,
        max_batch_tokens: int,
        release_memory: Callable[[], None],
        on_wait: Callable[[], None],
    ) -> None:
        self._num_workers = num_workers
        self._release_memory = release_memory
        self._on_wait = on_wait
        self._budget = TokenBudget(max_batch_tokens)
        self._lock = threading.Lock()
        self._is_ending = threading.Event()
        self.splits: list[Split] = []
        self._num_backoffs = 0

    @property
    def budget(self) -> tuple[int, int]:
        """How many tokens a batch may have just now, and how often memory has run out."""
        return self._budget.limit_tokens, self._num_backoffs

    def score(
        self,
        assembler: PairAssembler,
        plan: BatchPlan,
        batches: Sequence[slice],
        forward: Forward,
        gate: BatchGate | None = None,
    ) -> Generator[tuple[slice, np.ndarray]]:
        """Score batches of a plan.

        Args:
            assembler: builds the pairs.
            plan: says which pairs.
            batches: those of the plan's batches that are wanted.
            forward: one of the model's forwards.
            gate: asked before each batch; None: every one begins.

        Yields:
            Each batch with its (pairs, classes) logits, in the order asked for.

        Raises:
            DeviceError: not even one pair fits into memory.
            InterruptedRunError: the gate's, after the batches that were under way.
        """
        gate = gate or OpenGate()
        # One batch more than there are workers, so that none waits for the caller; with one worker the caller's work
        # is short, and doing things strictly in turn is easier to follow.
        num_ahead = self._num_workers + (self._num_workers > 1)
        waiting: deque[tuple[slice, Future[np.ndarray]]] = deque()
        with self._pool() as pool:
            try:
                end: InterruptedRunError | None = None
                for batch in batches:
                    try:
                        gate.before()
                    except InterruptedRunError as error:
                        end = error
                        break
                    score = partial(self._score_batch, assembler, plan, batch, forward)
                    waiting.append((batch, pool.submit(_timed, score, gate)))
                    if len(waiting) >= num_ahead:
                        yield self._next(waiting)
                while waiting:
                    yield self._next(waiting)
                if end is not None:
                    raise end
            finally:
                self._is_ending.set()
                for _, future in waiting:
                    future.cancel()
                wait_for_all([future for _, future in waiting])

    @contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor]:
        self._is_ending.clear()
        with ThreadPoolExecutor(self._num_workers, thread_name_prefix="batchzs-worker") as pool:
            yield pool

    def _next(self, waiting: deque[tuple[slice, Future[np.ndarray]]]) -> tuple[slice, np.ndarray]:
        batch, future = waiting[0]
        values = result_of(future, self._on_wait)
        waiting.popleft()
        return batch, values

    def _score_batch(self, assembler: PairAssembler, plan: BatchPlan, batch: slice, forward: Forward) -> np.ndarray:
        """Score one planned batch, in smaller pieces where it does not fit; runs in a worker."""
        text_ids, label_ids, lengths = plan.text_ids[batch], plan.label_ids[batch], plan.lengths[batch]
        pending = [slice(0, len(lengths))]
        scored: list[np.ndarray] = []
        while pending:
            piece = pending.pop()
            parts = plan_batches(lengths[piece], self._budget.limit_tokens)
            if len(parts) > 1:
                pending += [slice(piece.start + p.start, piece.start + p.stop) for p in reversed(parts)]
                continue
            if self._is_ending.is_set():
                break  # nobody waits for this batch any more
            pairs = assembler.assemble(text_ids[piece], label_ids[piece])
            values = _try_forward(forward, pairs)
            if values is None:
                self._back_off(pairs)
                pending.append(piece)
            else:
                with self._lock:
                    self._budget.record_success()
                scored.append(values)
        return np.concatenate(scored) if scored else np.empty((0, 0), dtype=np.float32)

    def _back_off(self, pairs: PackedPairs) -> None:
        batch_tokens = len(pairs.lengths) * int(pairs.lengths.max())
        if len(pairs.lengths) == 1:
            raise DeviceError(
                f"out of memory with a single pair of {batch_tokens} tokens: free memory on the device, or lower "
                "engine.max_length; the same command goes on from the last published shard"
            )
        with self._lock:
            # Two workers may fail at once: where the first one's failure has already ruled this size out, the second
            # one's is no reason to halve again.
            if batch_tokens <= self._budget.limit_tokens:
                self._budget.record_failure(batch_tokens)
            self._release_memory()
            split = Split(pairs.shape, batch_tokens, self._budget.limit_tokens)
            self.splits.append(split)
            self._num_backoffs += 1
        logger.warning(
            "out of memory with %s (%d tokens): going on with at most %d tokens a batch",
            split.shape,
            batch_tokens,
            split.limit_tokens,
        )


def _timed(score: Callable[[], np.ndarray], gate: BatchGate) -> np.ndarray:
    started_s = time.monotonic()
    values = score()
    gate.after(time.monotonic() - started_s)
    return values


def _try_forward(forward: Forward, pairs: PackedPairs) -> np.ndarray | None:
    """Logits, or None where memory ran out.

    The caller recovers after this has returned: while an exception is being handled, its traceback keeps every tensor
    of the failed forward alive, and the retry would fail for want of what they hold.
    """
    try:
        return forward(pairs)
    except Exception as exc:
        if not is_out_of_memory(exc):
            raise
    return None
