"""One process of a run on all devices: scores the shards that the run hands it, on one device, and reports.

The run has prepared everything and holds the output's lock, which this process holds as well by an inherited
descriptor. It ends with the run, however that ends: when the run is gone it dies on the spot, as the run did, and what
it had scored is in its shard's journal.

Nothing is printed: what would go to standard output goes to standard error, and messages go to the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, NoReturn

from batchzs.deadline import Deadline
from batchzs.errors import BatchzsError, InterruptedRunError, ModelError
from batchzs.finished import open_run
from batchzs.job import JobConfig
from batchzs.logs import ROOT, log_to_stream, open_standard_streams
from batchzs.models.device import Placement
from batchzs.models.opening import open_model
from batchzs.prepare import PreparedRun, RunContext, RunOptions, read_spec
from batchzs.resources import load_pair_model
from batchzs.shards import Attempt, ShardPipeline
from batchzs.stopping import SIGNALS, StopFlag
from batchzs.test_hook import TestHook
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
    Wanted,
    decode_order,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from batchzs.plan import Shard
    from batchzs.workers.messages import Order, Report

#: Between two reports of progress: a fast model finishes hundreds of batches a second.
_REPORT_INTERVAL_S = 0.2
_PR_SET_PDEATHSIG = 1


class Reports:
    """Sends reports, from any thread; where nobody reads them any more the run is gone, and so is this process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, report: Report) -> None:
        """Send a report."""
        line = encode(report)
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                _end_at_once()


class ReportedProgress:
    """Tells the run of work done, now and then; shows nothing."""

    def __init__(self, reports: Reports, clock: Callable[[], float] = time.monotonic) -> None:
        self._reports = reports
        self._clock = clock
        self._rows = 0.0
        self._num_tokens = 0
        self._last_s = clock()

    def start(self, num_rows: int, num_done: int) -> None:
        """The run knows."""

    def advance(self, rows: float, tokens: int) -> None:
        """Count, and report when it is time."""
        self._rows += rows
        self._num_tokens += tokens
        if self._clock() - self._last_s >= _REPORT_INTERVAL_S:
            self.report()

    def report(self) -> None:
        """Report what was counted."""
        self._last_s = self._clock()
        if self._rows or self._num_tokens:
            self._reports.send(Advanced(rows=self._rows, tokens=self._num_tokens))
        self._rows, self._num_tokens = 0.0, 0

    def publish(self, num_pairs: int, num_tokens: int) -> None:
        """The run knows from the shard's record."""

    def budget(self, limit_tokens: int, num_backoffs: int) -> None:
        """Report it: it seldom changes."""
        self._reports.send(Budgeted(limit_tokens=limit_tokens, num_backoffs=num_backoffs))

    def quarantine(self, num_rows: int) -> None:
        """Likewise."""

    def close(self) -> None:
        """Nothing is on the screen."""


class Orders:
    """The run's orders as they come: a source of shards, and of stops.

    Args:
        file: where they come from.
        reports: where shards are asked for.
        stop: raised when the run stops.
    """

    def __init__(self, file: BinaryIO, reports: Reports, stop: StopFlag) -> None:
        self._file = file
        self._reports = reports
        self._stop = stop
        self._indices: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._shards: Sequence[Shard] = ()

    def begin(self) -> Begin:
        """Wait for the first order, and listen for the others from then on, in a thread of its own."""
        order = self._next()
        if not isinstance(order, Begin):
            raise BatchzsError(f"the run began with an order to {order.kind}")
        threading.Thread(target=self._listen, name="batchzs-orders", daemon=True).start()
        return order

    def give_from(self, shards: Sequence[Shard]) -> None:
        """Say which shards orders are about."""
        self._shards = shards

    def next_shard(self, on_wait: Callable[[], None]) -> Shard | None:
        """The next shard, None after the last; see `batchzs.shards.ShardSource`."""
        self._reports.send(Wanted())
        while True:
            with contextlib.suppress(queue.Empty):
                index = self._indices.get(timeout=POLL_S)
                return None if index is None else self._shards[index]
            on_wait()

    def _listen(self) -> None:
        while True:
            try:
                order = self._next()
            except BatchzsError as error:
                self._reports.send(failure_of(error))
                _end_at_once()
            match order:
                case Score(index=index):
                    self._indices.put(index)
                case Finish():
                    self._indices.put(None)
                case Stop():
                    self._stop.ask("the run")
                case Begin():
                    pass  # once is enough

    def _next(self) -> Order:
        line = self._file.readline()
        if not line:
            _end_at_once()
        return decode_order(line)


class _ReportHandler(logging.Handler):
    """Hands messages to the run."""

    def __init__(self, reports: Reports) -> None:
        super().__init__()
        self._reports = reports

    def emit(self, record: logging.LogRecord) -> None:
        self._reports.send(
            Logged(
                logger=record.name,
                level=record.levelno,
                created=record.created,
                text=_sendable(record.getMessage()),
                has_lines=hasattr(record, "batchzs_several_lines"),
                event=getattr(record, "batchzs_event", None),
                fields=json.loads(json.dumps(getattr(record, "batchzs_fields", {}), default=str)),
            )
        )


def main() -> NoReturn:
    """Do what the run orders, until there is no more."""
    _die_with_the_run()
    open_standard_streams()
    # Whatever a library prints must not stand among the reports.
    reports = Reports(os.dup(1))
    os.dup2(2, 1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # a terminal sends them to the run as well
        signal.signal(number, signal.SIG_IGN)
    stop = StopFlag()
    with stop.listening():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the run held them back until here
        code = _exit_code(Orders(sys.stdin.buffer, reports, stop), reports, stop)
    os._exit(code)  # a device's libraries may take long to say goodbye, or never


def _exit_code(orders: Orders, reports: Reports, stop: StopFlag) -> int:
    try:
        _work(orders.begin(), orders, reports, stop)
    except BatchzsError as error:
        reports.send(failure_of(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the run shows it
        reports.send(failure_of(error))
        return BatchzsError.exit_code
    return 0


def failure_of(error: Exception) -> Failed:
    """What a worker says of an error that ends it; of one that nobody foresaw, also where it came from."""
    if isinstance(error, BatchzsError):
        return Failed(error=type(error).__name__, text=_sendable(str(error)))
    return Failed(error=None, text=_sendable("".join(traceback.format_exception(error)).rstrip()))


def _work(begin: Begin, orders: Orders, reports: Reports, stop: StopFlag) -> None:
    if begin.time_limit is not None:
        stop.deadline = Deadline(begin.time_limit.at, begin.time_limit.source, begin.time_limit.reserve_s)
    log_to_stream(None, "plain")
    logging.getLogger(ROOT).addHandler(_ReportHandler(reports))
    job = JobConfig.model_validate_json(json.dumps(begin.job))
    hook = TestHook.from_environment(os.environ).in_worker(begin.number)
    progress = ReportedProgress(reports)
    placement = Placement(begin.device, begin.device_kind, begin.device_name)
    run = _take_over(begin, job, hook, stop, progress)
    orders.give_from(run.shards)
    # The record of threads stays the run's: it says how batches were planned, and beside a GPU changes no bit.
    own = begin.resolved.model_copy(update={"threads": begin.threads})
    model = load_pair_model(run.opened, placement, own, hook, stop.check).model
    stop.check()
    attempt = Attempt(begin.attempt, placement, begin.resolved)
    ShardPipeline(run, attempt, model, lambda record: reports.send(Published(record=record))).run(orders)
    progress.report()


def _take_over(begin: Begin, job: JobConfig, hook: TestHook, stop: StopFlag, progress: ReportedProgress) -> PreparedRun:
    """Open the run as it was prepared; input and weights are not digested again where sizes and times are the same."""
    begun = open_run(job.output.path)
    opened = open_model(job, begin.model, offline=True, on_chunk=stop.check)
    if [file.sha256 for file in opened.files] != [file.sha256 for file in begin.model.files]:
        raise ModelError(f"{begin.model.directory}: has changed while the run went on")
    context = RunContext(job, begun.paths, RunOptions(begun.selection, offline=True), hook, stop, progress)
    return PreparedRun(context, read_spec(job), begun.known, begun.shards, begun.record, opened, loaded=None)


def _die_with_the_run() -> None:
    """Have the kernel kill this process when the one that started it ends, even while no thread of it can look."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_at_once() -> NoReturn:
    os._exit(InterruptedRunError.exit_code)


def _sendable(text: str) -> str:
    """Names of files may hold bytes that are no UTF-8."""
    return text.encode(errors="backslashreplace").decode()
