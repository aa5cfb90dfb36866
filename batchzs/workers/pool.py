"""A run on all devices: one worker process each, shards handed out as they are wanted, one display, one log.

A worker asks for its next shard when it begins to score the one before, so that reading and publishing overlap with
scoring inside it, and a fast device simply asks more often. Towards the end, when fewer shards are left than there are
workers, only one that has nothing to do gets one.

A worker that dies costs the others nothing but its share of the work: what it had not published goes back behind
everything else, so that a shard that kills whoever takes it does so last. An error that would meet any worker (a full
disk, a changed input) stops them all and is the run's.
"""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchzs import errors
from batchzs.counted import counted
from batchzs.durable import remove
from batchzs.errors import BatchzsError, DeviceError, InterruptedRunError, MachineError, TimeLimitError
from batchzs.logs import SEVERAL_LINES, fields
from batchzs.models.device import granted_cpus
from batchzs.records import ShardRecord, count_quarantined
from batchzs.resume import complete_shards
from batchzs.waiting import POLL_S
from batchzs.workers.messages import (
    Advanced,
    Begin,
    Budgeted,
    Failed,
    Finish,
    Logged,
    Published,
    Score,
    Stop,
    TimeLimit,
    Wanted,
)
from batchzs.workers.process import PROGRAM, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.deadline import Deadline
    from batchzs.models.device import Placement
    from batchzs.plan import Shard
    from batchzs.prepare import PreparedRun
    from batchzs.records import Resolved
    from batchzs.workers.messages import Report

logger = logging.getLogger(__name__)

#: Workers that were asked to stop have so long: less than the 20 s in which a run ends, and far more than a batch.
STOP_S = 15.0
#: Libraries that keep a pool of threads of their own, one a CPU of the machine unless told otherwise.
_POOL_VARIABLES = ("RAYON_NUM_THREADS", "POLARS_MAX_THREADS")


_REPORT = "This is a fault of batchzs: please report it, with the lines above or with state/run.log"


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a run's workers have in common, and the device of each."""

    placements: Sequence[Placement]
    attempt: int
    resolved: Resolved
    lock_descriptors: Sequence[int]
    program: str = PROGRAM


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker under way."""

    number: int
    process: WorkerProcess
    device: str
    shards: dict[int, Shard] = field(default_factory=dict)  # handed out and not published
    is_waiting: bool = False  # for a shard
    open_rows: float = 0.0  # reported as done, and not in a published shard
    failure: Failed | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return self.process.name


class WorkerPool:
    """Shares shards out among worker processes.

    Args:
        run: the prepared run, without a loaded model.
        fleet: the workers to be.
    """

    def __init__(self, run: PreparedRun, fleet: Fleet) -> None:
        self._run = run
        self._fleet = fleet
        self._left: deque[Shard] = deque()
        self._records: dict[int, ShardRecord] = {}
        self._workers: list[_Worker] = []
        self._budgets: dict[int, tuple[int, int]] = {}  # each worker's, as it last said
        self._selector = selectors.DefaultSelector()
        self._first_failure: BatchzsError | None = None
        self._waits_for_all = run.context.hook.together

    def run(self, shards: Sequence[Shard]) -> dict[int, ShardRecord]:
        """Have shards scored and published.

        Returns:
            Their records, by index.

        Raises:
            BatchzsError: a stop was asked for, every worker died, or one met what any would meet; no worker is left,
                and what is published stays.
        """
        context = self._run.context
        self._left.extend(shards)
        try:
            self._start(min(len(self._fleet.placements), len(shards)))
            while len(self._records) < len(shards):
                self._hand_out()
                self._hear(POLL_S)
                context.progress.advance(0.0, 0)
                context.stop.check()
            self._tell_all(Finish())
            self._hear_out()
        finally:
            self._tell_all(Stop())
            self._hear_out()
            self._selector.close()
        return self._records

    def _start(self, num_workers: int) -> None:
        cpus = max(1, granted_cpus(os.environ) // num_workers)
        environ = dict.fromkeys(_POOL_VARIABLES, str(cpus)) | os.environ  # what the user set stays
        fleet = self._fleet
        job = self._run.job.model_dump(mode="json")
        is_cpu = fleet.resolved.device_kind == "cpu"
        for number, placement in enumerate(fleet.placements[:num_workers], start=1):
            process = WorkerProcess(
                f"worker {number} on {placement.device}", environ, fleet.lock_descriptors, fleet.program
            )
            worker = _Worker(number, process, placement.device)
            self._workers.append(worker)
            self._selector.register(process, selectors.EVENT_READ, worker)
        for worker, placement in zip(self._workers, fleet.placements, strict=False):
            worker.process.send(
                Begin(
                    number=worker.number,
                    attempt=fleet.attempt,
                    job=job,
                    model=self._run.opened.record(self._run.record.model.num_classes),
                    # On a CPU the processes are the workers: one batch at a time in each.
                    resolved=fleet.resolved.model_copy(update={"workers": 1}) if is_cpu else fleet.resolved,
                    threads=fleet.resolved.threads if is_cpu else cpus,
                    device=placement.device,
                    device_kind=placement.kind,
                    device_name=placement.name,
                    time_limit=_time_limit(self._run.context.stop.deadline),
                )
            )

    def _hand_out(self) -> None:
        if self._waits_for_all and not all(worker.is_waiting for worker in self._workers):
            return
        self._waits_for_all = False
        for worker in self._workers:
            if worker.is_waiting and self._left and (not worker.shards or len(self._left) >= len(self._workers)):
                shard = self._left.popleft()
                worker.shards[shard.index] = shard
                worker.is_waiting = False
                worker.process.send(Score(index=shard.index))

    def _hear(self, timeout_s: float, *, is_over: bool = False) -> None:
        """Take what workers report within some time; those that have ended are taken leave of."""
        for key, _ in self._selector.select(timeout_s):
            worker: _Worker = key.data
            try:
                for report in worker.process.receive():
                    self._take(worker, report)
            except BatchzsError as error:  # no report: what it does from here on, nobody knows
                worker.failure = Failed(error=BatchzsError.__name__, text=f"{worker.name}: {error}")
                worker.process.kill()
            if worker.process.has_ended or worker.failure is not None:
                self._leave(worker)
                if not is_over:
                    self._mourn(worker)

    def _take(self, worker: _Worker, report: Report) -> None:
        progress = self._run.context.progress
        match report:
            case Wanted():
                worker.is_waiting = True
            case Advanced(rows=rows, tokens=tokens):
                worker.open_rows += rows
                progress.advance(rows, tokens)
            case Budgeted(limit_tokens=limit_tokens, num_backoffs=num_backoffs):
                self._budgets[worker.number] = (limit_tokens, num_backoffs)
                limits, backoffs = zip(*self._budgets.values(), strict=True)
                progress.budget(min(limits), sum(backoffs))
            case Published(record=record):
                shard = worker.shards.pop(record.index)
                worker.open_rows -= shard.num_rows
                self._records[record.index] = record
                progress.publish(record.num_pairs, record.num_tokens)
                progress.quarantine(count_quarantined(record.statuses))
            case Logged():
                _log(worker, report)
            case Failed():
                worker.failure = report

    def _leave(self, worker: _Worker) -> None:
        self._selector.unregister(worker.process)
        self._workers.remove(worker)
        worker.process.end()

    def _mourn(self, worker: _Worker) -> None:
        """Take back what a dead worker had not published, or end the run where its error would meet any other."""
        self._run.context.stop.check()
        failure, reason = _failure_of(worker)
        if isinstance(failure, TimeLimitError):
            self._let_finish()
            raise failure
        # It may have died between giving a shard its name and saying so.
        done = complete_shards(self._run, list(worker.shards.values()))
        self._records |= done
        for index, record in done.items():
            remove(self._run.paths.journal(index))
            worker.open_rows -= record.num_rows
            self._run.context.progress.quarantine(count_quarantined(record.statuses))
        self._run.context.progress.advance(-worker.open_rows, 0)
        unfinished = [shard for index, shard in worker.shards.items() if index not in done]
        self._left.extend(unfinished)
        is_last = bool(self._left) and not self._workers
        if not (is_last and self._first_failure is None):
            logger.warning(
                "%s: %s left, %s of its to do again",
                reason,
                counted(len(self._workers), "worker"),
                counted(len(unfinished), "unfinished shard"),
                extra=fields("worker_lost", worker=worker.number, device=worker.device, reason=reason),
            )
        self._first_failure = self._first_failure or failure
        if is_last:
            raise self._first_failure

    def _let_finish(self) -> None:
        """Hand out nothing more: time is short, and each worker publishes what it can before it ends."""
        self._tell_all(Finish())
        while self._workers:
            self._hear(POLL_S, is_over=True)
            self._run.context.progress.advance(0.0, 0)
            self._run.context.stop.check()

    def _tell_all(self, order: Finish | Stop) -> None:
        for worker in self._workers:
            worker.process.send(order)

    def _hear_out(self) -> None:
        """Listen until every worker has ended; one that takes too long is killed, which loses no published row."""
        deadline_s = time.monotonic() + STOP_S
        while self._workers and time.monotonic() < deadline_s:
            self._hear(POLL_S, is_over=True)
        for worker in self._workers:
            logger.warning("%s does not stop: killing it", worker.name)
            worker.process.kill()
        for worker in list(self._workers):
            self._leave(worker)


def _failure_of(worker: _Worker) -> tuple[BatchzsError, str]:
    """The error that a run ends with whose every worker has died, this one first; and the reason in short.

    Raises:
        BatchzsError: the worker's own, where any other worker would meet it too.
    """
    name, failure = worker.name, worker.failure
    if failure is None:
        reason = f"{name} died: {worker.process.ending}"
        if worker.process.was_killed:
            return MachineError(f"{reason}; the same command goes on from what is published"), reason
        return BatchzsError(f"{reason}, and what it had to say stands above. {_REPORT}"), reason
    if failure.error is None:
        logger.error("%s failed:\n%s", name, failure.text, extra=SEVERAL_LINES)
        reason = f"{name} failed: {failure.text.splitlines()[-1]}"
        return BatchzsError(f"{reason}. {_REPORT}"), reason
    kind: type[BatchzsError] = getattr(errors, failure.error)
    if issubclass(kind, TimeLimitError):
        return kind(failure.text), failure.text
    if not issubclass(kind, DeviceError | InterruptedRunError):
        raise kind(failure.text)
    return kind(f"{name}: {failure.text}"), f"{name}: {failure.text.partition(': ')[0]}"


def _time_limit(deadline: Deadline | None) -> TimeLimit | None:
    return None if deadline is None else TimeLimit(at=deadline.at, source=deadline.source, reserve_s=deadline.reserve_s)


def _log(worker: _Worker, report: Logged) -> None:
    """Log a worker's message as if it had been logged here, with the worker's name before it."""
    attributes: dict[str, object] = {
        "name": report.logger,
        "levelno": report.level,
        "levelname": logging.getLevelName(report.level),
        "created": report.created,
        "msg": f"{worker.name}: %s",
        "args": (report.text,),
    }
    if report.event is not None:
        attributes |= fields(report.event, worker=worker.number, **report.fields)
    if report.has_lines:
        attributes |= SEVERAL_LINES
    logging.getLogger(report.logger).handle(logging.makeLogRecord(attributes))
