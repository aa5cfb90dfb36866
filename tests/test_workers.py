"""Shards shared out among processes: each once, whoever dies; nobody waits for a worker that is gone.

The workers here are small programs that speak as `batchzs.workers.worker` does and score nothing.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from batchzs.durable import hold_lock, make_folders
from batchzs.errors import BatchzsError, DeviceError, InterruptedRunError, LockedError, MachineError
from batchzs.inputs.rows import InputSet, RowSpan
from batchzs.known_input import KnownInput
from batchzs.models.device import Placement
from batchzs.paths import RunPaths
from batchzs.plan import Selection, Shard
from batchzs.prepare import PreparedRun, RunContext, RunOptions, read_spec
from batchzs.stopping import StopFlag
from batchzs.test_hook import TestHook
from batchzs.workers import pool as workers
from batchzs.workers.pool import Fleet, WorkerPool
from batchzs.workers.process import WorkerProcess
from tests.builders import make_job, model_record, odd_folder, resolved, run_record, shard_record

if TYPE_CHECKING:
    from pathlib import Path

SHARD_ROWS = 10
#: What every program begins with; `score` publishes, and a test's own lines say what happens with whom.
SPEECH = f"""
import json, os, signal, sys, time

TEMPLATE = json.loads({shard_record().model_dump_json()!r})

def say(kind, **values):
    print(json.dumps({{"kind": kind, **values}}), flush=True)

def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(75)

def fail(error, text):
    say("failed", error=error, text=text)
    sys.exit(8)

def score(index, *, rows={SHARD_ROWS}):
    say("advanced", rows=rows, tokens=7)
    record = {{**TEMPLATE, "index": index, "num_rows": {SHARD_ROWS}, "statuses": {{"ok": 9, "bad_record": 1}},
              "device": begin["device"]}}
    say("published", record=record)

def work(before=lambda index: None):
    while True:
        say("wanted")
        order = hear()
        if order["kind"] != "score":
            sys.exit(0 if order["kind"] == "finish" else 75)
        before(order["index"])
        score(order["index"])

begin = hear()
number = begin["number"]
"""


@dataclass
class Recorded:
    """Progress, added up."""

    rows: float = 0.0
    tokens: int = 0
    num_quarantined: int = 0
    calls: list[float] = field(default_factory=list)
    budgets: list[tuple[int, int]] = field(default_factory=list)

    def start(self, num_rows: int, num_done: int) -> None:
        """Not the pool's to call."""

    def advance(self, rows: float, tokens: int) -> None:
        """Count."""
        self.rows += rows
        self.tokens += tokens
        self.calls.append(rows)

    def publish(self, num_pairs: int, num_tokens: int) -> None:
        """Metrics are the run's."""

    def budget(self, limit_tokens: int, num_backoffs: int) -> None:
        """Take note."""
        self.budgets.append((limit_tokens, num_backoffs))

    def quarantine(self, num_rows: int) -> None:
        """Count."""
        self.num_quarantined += num_rows

    def close(self) -> None:
        """Not the pool's to call."""


@dataclass
class Bench:
    """A prepared run of `num_shards` shards, and pools on it."""

    folder: Path
    num_shards: int = 6
    stop: StopFlag = field(default_factory=StopFlag)
    progress: Recorded = field(default_factory=Recorded)

    @property
    def shards(self) -> list[Shard]:
        """All shards."""
        return [
            Shard(index, index * SHARD_ROWS, (RowSpan(0, index * SHARD_ROWS, (index + 1) * SHARD_ROWS),))
            for index in range(self.num_shards)
        ]

    def score(self, program: str, num_workers: int = 2) -> dict[int, str]:
        """Run a pool whose workers run this program; returns which device published each shard."""
        job = make_job()
        paths = RunPaths(self.folder)
        make_folders(*paths.folders)
        # A worker that comes first would leave nothing to the others.
        hook = TestHook(together=True)
        context = RunContext(job, paths, RunOptions(Selection()), hook, self.stop, self.progress)
        opened: Any = SimpleNamespace(record=lambda _: model_record())
        known = KnownInput(InputSet((), ()))
        run = PreparedRun(context, read_spec(job), known, self.shards, run_record(job), opened, loaded=None)
        placements = [Placement(f"cuda:{index}", "cuda", "A GPU") for index in range(num_workers)]
        fleet = Fleet(placements, 3, resolved(device_kind="cuda"), [], SPEECH + program)
        return {index: record.device for index, record in WorkerPool(run, fleet).run(self.shards).items()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Six shards and nobody yet to score them."""
    return Bench(odd_folder(tmp_path))


def test_every_shard_is_scored_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Rows, tokens, quarantined rows and messages of all workers come together in one place."""
    program = """
say("logged", logger="batchzs.shards", level=20, created=1.0, text=f"sees {os.environ['RAYON_NUM_THREADS'] > '0'}",
    has_lines=False, event="seen", fields={"shard": 4})
work(lambda index: time.sleep(0.05))
"""
    with caplog.at_level("INFO", logger="batchzs"):
        assert set(bench.score(program)) == set(range(6))
    assert (round(bench.progress.rows), bench.progress.tokens, bench.progress.num_quarantined) == (60, 42, 6)
    said = {record.getMessage(): record for record in caplog.records}
    assert set(said) == {"worker 1 on cuda:0: sees True", "worker 2 on cuda:1: sees True"}
    record: Any = said["worker 2 on cuda:1: sees True"]
    assert (record.batchzs_event, record.batchzs_fields) == ("seen", {"worker": 2, "shard": 4})


def test_the_last_shards_go_to_who_has_nothing_to_do(bench: Bench) -> None:
    """A worker that is busy reads ahead only while there is enough for all: else it would sit on the last shard."""
    program = f"""
import pathlib, select
begun = pathlib.Path({str(bench.folder / "begun")!r})
if number == 2:
    work(lambda index: begun.touch() if index == 2 else None)
say("wanted")
first = hear()["index"]
say("wanted")  # while it scores the first
while not begun.exists():
    assert not select.select([sys.stdin], [], [], 0.05)[0], "an order came"
score(first)
assert hear()["kind"] == "finish"
"""
    bench.num_shards = 3
    assert bench.score(program) == {0: "cuda:0", 1: "cuda:1", 2: "cuda:1"}


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "died: SIGKILL ended it (was memory short?)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "died: SIGSEGV ended it"),
        ("os._exit(3)", "died: it ended with code 3"),
        ("sys.stdout.flush(); os.close(1); time.sleep(60)", "died: SIGKILL ended it (was memory short?)"),
        ('fail("DeviceError", "out of memory with a single pair: free some")', "out of memory with a single pair"),
        ('fail("InterruptedRunError", "stopped by SIGTERM: run it again")', "stopped by SIGTERM"),
        (
            'fail(None, "Traceback (most recent call last):\\nRuntimeError: CUDA error")',
            "failed: RuntimeError: CUDA error",
        ),
    ],
)
def test_a_worker_that_ends_early(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, end: str, said: str
) -> None:
    """The other one does its shards; what it had done of them is counted once."""
    monkeypatch.setattr("batchzs.workers.process._END_S", 0.3)
    program = f"""
def before(index):
    if number == 2:
        say("advanced", rows=4, tokens=1)
        {end}
work(before)
"""
    with caplog.at_level("WARNING", logger="batchzs"):
        assert set(bench.score(program)) == set(range(6))
    assert round(bench.progress.rows) == 60
    assert min(bench.progress.calls) == -4
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning == f"worker 2 on cuda:1: {said}: 1 worker left, 1 unfinished shard of its to do again".replace(
        ": died", " died"
    ).replace(": failed", " failed")


@pytest.mark.parametrize(
    ("end", "kind", "code", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", MachineError, 8, "worker 1 on cuda:0 died: SIGKILL ended it"),
        ('fail("DeviceError", "no memory: free some")', DeviceError, 8, "worker 1 on cuda:0: no memory: free some"),
        ('fail("InterruptedRunError", "stopped by SIGTERM: x")', InterruptedRunError, 75, "stopped by SIGTERM: x"),
        (
            'fail(None, "Traceback:\\nValueError: 3")',
            BatchzsError,
            1,
            "worker 1 on cuda:0 failed: ValueError: 3. This is",
        ),
        (
            "sys.exit(1)",
            BatchzsError,
            1,
            "worker 1 on cuda:0 died: it ended with code 1, and what it had to say stands",
        ),
    ],
)
def test_when_all_have_ended_the_first_ones_error_is_the_runs(
    bench: Bench, end: str, kind: type[BatchzsError], code: int, message: str
) -> None:
    """And not the one that came last."""
    program = f"""
def before(index):
    if number == 2:
        time.sleep(0.5)
        fail("DeviceError", "another one: later")
    {end}
work(before)
"""
    with pytest.raises(kind, match=message) as caught:
        bench.score(program)
    assert type(caught.value).exit_code == code


def test_an_error_that_meets_everyone_stops_the_others(bench: Bench) -> None:
    """With its own message; the other worker is told to stop, and does."""
    program = f"""
def before(index):
    if number == 1:
        time.sleep(0.2)
        fail("MachineError", "/out: cannot be written: full")
    assert hear()["kind"] == "stop"
    open({str(bench.folder / "stopped")!r}, "w")
    fail("MachineError", "/out: the same again")
work(before)
"""
    with pytest.raises(MachineError, match=r"^/out: cannot be written: full$"):
        bench.score(program)
    assert (bench.folder / "stopped").exists()


def test_a_worker_that_does_not_stop_is_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop is over in time, whatever a device does."""
    monkeypatch.setattr(workers, "STOP_S", 0.5)
    process_ids = bench.folder / "ids"
    program = f"""
open({str(process_ids)!r}, "a").write(f"{{os.getpid()}} ")
say("wanted")
hear()
say("advanced", rows=1, tokens=1)
time.sleep(600)
"""
    original = bench.progress.advance

    def advance(rows: float, tokens: int) -> None:
        original(rows, tokens)
        if bench.progress.rows >= 2:
            bench.stop.ask("SIGTERM")

    bench.progress.advance = advance  # type: ignore[method-assign]
    with caplog.at_level("WARNING", logger="batchzs"), pytest.raises(InterruptedRunError, match="stopped by SIGTERM"):
        bench.score(program)
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"worker {number} on cuda:{number - 1} does not stop: killing it" for number in (1, 2)
    ]
    for process_id in process_ids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(process_id), 0)


def test_a_worker_that_says_something_else_ends_the_run(bench: Bench) -> None:
    """A line that is no report would be work that nobody knows of."""
    with pytest.raises(BatchzsError, match="do not understand each other"):
        bench.score('print("hello", flush=True); time.sleep(60) if not hear() else None')


def test_a_lock_is_held_until_the_last_process_has_ended(bench: Bench) -> None:
    """A run that is killed leaves the output locked for as long as one of its workers could write."""
    path = bench.folder / "run.lock"
    with hold_lock(path, "process 1") as lock:
        process = WorkerProcess("worker 1 on cpu", os.environ, [lock.descriptor], "import time; time.sleep(600)")
    try:
        with pytest.raises(LockedError), hold_lock(path, "process 2"):
            pytest.fail("the lock was given twice")
    finally:
        process.kill()
        process.end()
    with hold_lock(path, "process 2"):
        pass


def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine at its limit of processes is in the way: no fault of ours."""

    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", fail)
    with pytest.raises(MachineError, match="worker 1 on cpu cannot be started: Resource temporarily unavailable"):
        WorkerProcess("worker 1 on cpu", os.environ, [])
