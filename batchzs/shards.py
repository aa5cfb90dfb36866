"""Shards through their stages: while one is scored, the next is read and tokenised and the last one is written.

    read, tokenise, plan  ->  score  ->  decide, write, rename

One thread each, at most one shard in each: three shards are in memory at most. Scoring stays on the caller's thread,
where signals arrive. Whatever fails in another stage ends the scoring at the next batch, and whatever ends the scoring
ends the others: a shard that is being written is written to its end, one that is being read is dropped.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from batchzs.batch_scorer import BatchGates
from batchzs.durable import publish, remove
from batchzs.engine import Engine
from batchzs.errors import InterruptedRunError
from batchzs.inputs.read import read_rows
from batchzs.journal import ShardJournal
from batchzs.logs import fields
from batchzs.output import label_shard, write_shard
from batchzs.pace import Pace, TimedBatches
from batchzs.records import ShardRecord, SplitRecord, count_quarantined, write_record
from batchzs.resources import engine_settings
from batchzs.resume import shard_provenance
from batchzs.waiting import result_of, wait_for_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from batchzs.engine import PairModel, PreparedTexts, TextLogits
    from batchzs.inputs.rows import ShardRows
    from batchzs.models.device import Placement
    from batchzs.plan import Shard
    from batchzs.prepare import PreparedRun
    from batchzs.records import Resolved

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Attempt:
    """This attempt's number, what it computes with, and what is known of how long that takes."""

    number: int
    placement: Placement
    resolved: Resolved
    pace: Pace = field(default_factory=Pace)


class ShardSource(Protocol):
    """Where the shards to score come from."""

    def next_shard(self, on_wait: Callable[[], None]) -> Shard | None:
        """The next shard, None after the last; `on_wait` is called while one is waited for, and may end that."""


class ListedShards:
    """Shards that are all known."""

    def __init__(self, shards: Iterable[Shard]) -> None:
        self._shards = iter(shards)

    def next_shard(self, on_wait: Callable[[], None]) -> Shard | None:
        """The next shard, at once."""
        del on_wait
        return next(self._shards, None)


class _DroppedError(Exception):
    """Ends a stage whose result nobody waits for any more."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A shard that is read and planned."""

    shard: Shard
    rows: ShardRows
    texts: PreparedTexts
    read_s: float


@dataclass(frozen=True, slots=True)
class _Scored:
    """A shard with its logits."""

    ready: _Ready
    logits: TextLogits
    score_s: float


class ShardPipeline:
    """Takes shards through their stages.

    Args:
        run: the prepared run.
        attempt: what this attempt computes with.
        model: gives logits.
        on_published: told of every shard that has its name, in a thread of its own.
        clock: gives seconds.
    """

    def __init__(
        self,
        run: PreparedRun,
        attempt: Attempt,
        model: PairModel,
        on_published: Callable[[ShardRecord], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._pace = attempt.pace
        stop = run.context.stop
        self._gates = BatchGates(
            TimedBatches(self._pace, stop, is_exact=False), TimedBatches(self._pace, stop, is_exact=True)
        )
        self._journal: ShardJournal | None = None
        self._attempt = attempt
        self._path = model.path
        self._on_published = on_published
        self._clock = clock
        self._classes = run.opened.classes(model.num_classes)
        self._is_ending = threading.Event()
        self._publishing: Future[ShardRecord] | None = None
        self._num_rows = 0  # of the shard that is scored
        self._told_budget: tuple[int, int] | None = None
        self._engine = Engine(
            model,
            run.opened.tokenizer,
            [label.hypothesis for label in run.job.labels],
            engine_settings(run.job, attempt.resolved, self._classes),
            self._on_batch,
        )

    def run(self, source: ShardSource) -> dict[int, ShardRecord]:
        """Read, score and publish shards.

        Args:
            source: gives them; asked for one more as soon as the one before it is about to be scored.

        Returns:
            Their records, by index.

        Raises:
            BatchzsError: of any kind, from any stage; what is published stays.
        """
        records: dict[int, ShardRecord] = {}
        stop = self._run.context.stop
        with ThreadPoolExecutor(1, "batchzs-read") as reader, ThreadPoolExecutor(1, "batchzs-publish") as publisher:
            reading = reader.submit(self._read_next, source)
            try:
                while (ready := self._wait_for(reading)) is not None:
                    reading = reader.submit(self._read_next, source)
                    scored = self._score(ready)
                    records |= self._collect()
                    stop.check_time(self._pace.to_publish_s(ready.shard.num_rows))
                    self._publishing = publisher.submit(self._publish, scored)
                return records | self._collect()
            except InterruptedRunError:
                self._end(reading)
                if self._publishing is not None:
                    self._publishing.result()  # what went wrong on its way to the disk says more than the stop
                raise
            finally:
                self._end(reading)

    def _end(self, reading: Future[_Ready | None]) -> None:
        """Drop what is read, and let the shard that is on its way to the disk get there."""
        self._is_ending.set()
        wait_for_all([reading, *([self._publishing] if self._publishing else [])])

    def _read_next(self, source: ShardSource) -> _Ready | None:
        """Read, tokenise and plan the next shard, if there is one; runs in a thread of its own."""
        shard = source.next_shard(self._drop_if_ending)
        if shard is None:
            return None
        self._run.context.stop.check_time(self._pace.to_begin_shard_s())  # ends the run when this shard's turn comes
        start_s = self._clock()
        rows = read_rows(self._run.spec, self._run.inputs, shard.spans, self._drop_if_ending)
        read_s = self._clock() - start_s
        texts = self._engine.prepare(rows.texts, self._drop_if_ending)
        self._pace.read(self._clock() - start_s)
        return _Ready(shard, rows, texts, read_s)

    def _drop_if_ending(self) -> None:
        if self._is_ending.is_set():
            raise _DroppedError

    def _score(self, ready: _Ready) -> _Scored:
        shard = ready.shard
        self._num_rows = shard.num_rows
        start_s = self._clock()
        logits = self._engine.score_prepared(
            ready.texts, lambda plan_digest: self._open_journal(shard, plan_digest), self._gates
        )
        return _Scored(ready, logits, self._clock() - start_s)

    def _on_batch(self, shard_share: float, num_tokens: int) -> None:
        context = self._run.context
        if num_tokens:
            context.hook.reach("batch-scored")
        if self._engine.budget != self._told_budget:
            self._told_budget = self._engine.budget
            context.progress.budget(*self._told_budget)
        context.progress.advance(self._num_rows * shard_share, num_tokens)
        if self._journal is not None:
            self._pace.sync(self._journal.longest_write_s)
        context.stop.check()
        if self._publishing is not None and self._publishing.done():
            self._publishing.result()  # a full disk ends the run now, and not after another shard

    def _wait_for(self, future: Future[_Result]) -> _Result:
        return result_of(future, lambda: self._on_batch(0.0, 0))

    def _collect(self) -> dict[int, ShardRecord]:
        """The record of the shard that was last on its way to the disk, once it is there."""
        if self._publishing is None:
            return {}
        record = self._wait_for(self._publishing)
        self._publishing = None
        self._run.context.progress.publish(record.num_pairs, record.num_tokens)
        self._run.context.progress.quarantine(count_quarantined(record.statuses))
        return {record.index: record}

    def _open_journal(self, shard: Shard, plan_digest: bytes) -> ShardJournal:
        """The shard's journal; it holds only for the same pairs, batched and computed in the same way."""
        run, resolved = self._run, self._attempt.resolved
        identity = (
            *(run.fingerprint_digest, shard.index, shard.first_row, shard.num_rows, plan_digest.hex()),
            *(self._attempt.placement.kind, resolved.precision, self._path, resolved.threads),
            *(resolved.max_batch_tokens, resolved.rescore_margin),
        )
        key = hashlib.sha256(repr(identity).encode()).digest()
        self._journal = ShardJournal(
            run.paths.journal(shard.index), key, run.job.engine.checkpoint_seconds, reach=run.context.hook.reach
        )
        return self._journal

    def _publish(self, scored: _Scored) -> ShardRecord:
        """Decide labels, write the shard and its record, and give it its name; runs in a thread of its own."""
        run, hook, shard = self._run, self._run.context.hook, scored.ready.shard
        start_s = self._clock()
        labelled = label_shard(run.job, self._classes, scored.ready.rows, scored.logits)
        names = [label.name for label in run.job.labels]
        best = {names[index]: count for index, count in Counter(labelled.best.tolist()).items() if index >= 0}
        path = run.paths.shard(shard.index)
        with publish(path, run.paths.temporary) as file:
            provenance = shard_provenance(run, shard)
            size_bytes, sha256 = write_shard(file, labelled.table, provenance, run.job.output.compression)
            hook.reach("shard-written")
            record = self._record(shard, scored, Counter(labelled.statuses.tolist()), best).model_copy(
                update={"size_bytes": size_bytes, "sha256": sha256, "write_s": self._clock() - start_s}
            )
            # The record first: alone it says nothing, and no shard is ever without it.
            write_record(run.paths.shard_record(shard.index), record, run.paths.temporary)
            hook.reach("shard-recorded")
        hook.reach("shard-published")
        remove(run.paths.journal(shard.index))
        publish_s = self._clock() - start_s
        self._pace.publication(publish_s)
        seconds = scored.ready.read_s + scored.score_s + publish_s
        logger.info(
            "%s: %s rows published, %.1f s",
            path.name,
            f"{shard.num_rows:,}",
            seconds,
            extra=fields("shard_published", shard=shard.index, rows=shard.num_rows, seconds=round(seconds, 3)),
        )
        self._on_published(record)
        return record

    def _record(self, shard: Shard, scored: _Scored, statuses: Counter[str], labels: dict[str, int]) -> ShardRecord:
        attempt, logits = self._attempt, scored.logits
        return ShardRecord(
            index=shard.index,
            first_row=shard.first_row,
            num_rows=shard.num_rows,
            statuses=dict(statuses),
            labels=labels,
            num_truncated=int(logits.truncated.sum()),
            num_duplicates=logits.counts.num_duplicates,
            num_nul_texts=sum("\0" in text for text in scored.ready.rows.texts),
            num_scored_alone=logits.counts.num_scored_alone,
            num_rescored=int(logits.rescored.sum()),
            num_pairs=logits.counts.num_pairs,
            num_tokens=logits.counts.num_tokens,
            size_bytes=0,
            sha256="",
            read_s=scored.ready.read_s,
            score_s=scored.score_s + logits.counts.recovered_s,
            exact_s=logits.counts.exact_s,
            write_s=0.0,
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            attempt=attempt.number,
            host=os.uname().nodename,
            device=attempt.placement.device,
            device_name=attempt.placement.name,
            precision=attempt.resolved.precision,
            path=self._path,
            threads=attempt.resolved.threads,
            max_batch_tokens=attempt.resolved.max_batch_tokens,
            splits=tuple(SplitRecord(**asdict(split)) for split in logits.counts.splits),
        )
