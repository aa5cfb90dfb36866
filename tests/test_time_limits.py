"""Whole runs against a deadline, on a clock of the test's: over in time, nothing scored twice, published what fits."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from batchzs import batch_scorer, shards, test_hook
from batchzs.deadline import Deadline
from batchzs.errors import MachineError, TimeLimitError
from batchzs.paths import RunPaths
from batchzs.plan import Selection
from batchzs.prepare import RunContext, RunOptions
from batchzs.progress import NoProgress
from batchzs.run import run_job
from batchzs.stopping import StopFlag
from batchzs.test_hook import TestHook
from tests.builders import make_job, odd_folder

SAMPLE_MODEL = Path(__file__).parent.parent / "sample_data" / "model"
NUM_ROWS = 20
RESERVE_S = 5


class FakeClock:
    """Seconds that pass only where a batch is scored or a shard is written."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        """Say what time it is."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let seconds pass."""
        self.now_s += seconds


class Bench:
    """A folder with one job: a batch a row, each of a second."""

    def __init__(self, folder: Path, clock: FakeClock, shard_rows: int) -> None:
        self.folder = folder
        self.clock = clock
        texts = [f"第{row}条新闻" for row in range(NUM_ROWS)]
        pl.DataFrame({"text": texts}).write_parquet(folder / "in.parquet")
        self.job = make_job(
            input={"path": [str(folder / "in.parquet")], "text": ["text"]},
            labels=["科技"],
            model={"path": str(SAMPLE_MODEL)},
            output={"path": str(folder / "out"), "shard_rows": shard_rows},
            engine={"device": "cpu", "precision": "fp32", "max_batch_tokens": 1, "workers": 1},
        )
        self.hook: type[TestHook] = TestHook

    @property
    def paths(self) -> RunPaths:
        """The output."""
        return RunPaths(self.folder / "out")

    @property
    def num_scored(self) -> int:
        """Batches scored by all attempts."""
        path = self.folder / "scored"
        return len(path.read_bytes().splitlines()) if path.exists() else 0

    def published(self) -> dict[str, bytes]:
        """The shards that are there."""
        return {path.name: path.read_bytes() for path in sorted(self.paths.scores.iterdir())}

    def run(self, seconds: float | None) -> None:
        """Run the job with a deadline in so many seconds, or with none."""
        stop = StopFlag()
        if seconds is not None:
            at = datetime.fromtimestamp(self.clock() + seconds, UTC)
            stop = StopFlag(Deadline(at, "a test", RESERVE_S, self.clock))
        hook = self.hook(stand_in=True, delay_s=1.0, count_batches=str(self.folder / "scored"))
        run_job(RunContext(self.job, self.paths, RunOptions(Selection()), hook, stop, NoProgress()))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The one clock of all that measures or waits."""
    made = FakeClock()
    monkeypatch.setattr(batch_scorer, "time", SimpleNamespace(monotonic=made))
    monkeypatch.setattr(test_hook, "time", SimpleNamespace(sleep=made.sleep))
    monkeypatch.setattr(shards, "ShardPipeline", partial(shards.ShardPipeline, clock=made))
    return made


def build(tmp_path: Path, name: str, clock: FakeClock, shard_rows: int = NUM_ROWS) -> Bench:
    """Make a folder of its own."""
    folder = tmp_path / name
    folder.mkdir()
    return Bench(odd_folder(folder), clock, shard_rows)


@pytest.mark.parametrize(
    ("seconds", "num_scored"),
    [
        (4, 0),  # less than the reserve
        (19, 0),  # a shard is taken to need 5 s to be read and 2 * 5 s for a batch, and 5 s are in reserve
        (20, 14),  # a batch of 1 s begins while 2 * 1 s and the reserve are left: at 0 s, 1 s, ..., 13 s
        (25.5, 19),
        (26, 20),  # all batches; writing is taken to need 2 s and a little: with the reserve not any more
    ],
)
def test_a_shard_is_cut_short_where_its_next_batch_would_not_fit(
    tmp_path: Path, clock: FakeClock, seconds: float, num_scored: int
) -> None:
    """By hand; the next attempt scores exactly the rest, and the bytes are an undisturbed run's."""
    whole = build(tmp_path, "whole", clock)
    whole.run(None)
    assert whole.num_scored == NUM_ROWS
    cut = build(tmp_path, "cut", clock)
    started_s = clock()
    with pytest.raises(TimeLimitError, match="stopped before the time limit"):
        cut.run(seconds)
    assert clock() - started_s <= max(seconds - RESERVE_S, 0)
    assert (cut.num_scored, cut.published()) == (num_scored, {})
    cut.run(None)
    assert cut.num_scored == NUM_ROWS
    assert cut.published() == whole.published()


def test_a_shard_that_is_nearly_done_is_finished_and_published(tmp_path: Path, clock: FakeClock) -> None:
    """20 s of batches, 2 s for writing, 5 s in reserve: 27.01 s are enough, and the run has ended."""
    bench = build(tmp_path, "whole", clock)
    bench.run(27.01)
    assert list(bench.published()) == ["part-00000.parquet"]
    assert bench.paths.success.exists()


def test_the_same_short_limit_again_and_again_comes_to_an_end(tmp_path: Path, clock: FakeClock) -> None:
    """Each attempt is over in time and adds to what is there, and no batch is scored twice."""
    whole = build(tmp_path, "whole", clock, shard_rows=7)
    whole.run(None)
    bench = build(tmp_path, "cut", clock, shard_rows=7)
    num_attempts = 0
    while not bench.paths.success.exists():
        num_attempts += 1
        started_s = clock()
        with contextlib.suppress(TimeLimitError):
            bench.run(22.0)
        assert clock() - started_s <= 22 - RESERVE_S
        assert bench.num_scored >= 14
    assert 2 <= num_attempts <= 4
    assert bench.num_scored == NUM_ROWS
    assert bench.published() == whole.published()


class SlowDisk(TestHook):
    """Writing a shard takes 30 s of the clock that the class is given."""

    clock: FakeClock

    def reach(self, point: str) -> None:
        """Let the time pass where a shard is written."""
        if point == "shard-written":
            self.clock.sleep(30.0)


def test_a_shard_is_not_written_where_writing_took_too_long_before(tmp_path: Path, clock: FakeClock) -> None:
    """The first shard's 30 s are known in the second attempt as well, from its record."""
    SlowDisk.clock = clock
    bench = build(tmp_path, "cut", clock, shard_rows=10)
    bench.hook = SlowDisk
    with pytest.raises(TimeLimitError):
        bench.run(10 + 30 + 10 + 30)
    assert (bench.num_scored, len(bench.published())) == (20, 1)
    with pytest.raises(TimeLimitError):
        bench.run(36)
    assert (bench.num_scored, len(bench.published())) == (20, 1)
    bench.run(50)  # batches that were scored meanwhile count as its time
    assert (bench.num_scored, len(bench.published())) == (20, 2)


class FullDisk(TestHook):
    """Writing fails, and not before the clock has come to the limit."""

    clock: FakeClock
    limit_s: float

    def reach(self, point: str) -> None:
        """Wait, and fail."""
        if point == "shard-written":
            while self.clock() < self.limit_s:
                time.sleep(0.001)
            time.sleep(0.3)  # the run hears of its limit meanwhile
            raise MachineError("no space left on device")


def test_a_full_disk_is_not_hidden_by_the_limit(tmp_path: Path, clock: FakeClock) -> None:
    """Where a shard fails on its way to the disk while the time is up, the failure is what is said."""
    bench = build(tmp_path, "cut", clock, shard_rows=10)
    bench.hook = FullDisk
    FullDisk.clock, FullDisk.limit_s = clock, clock() + 14
    with pytest.raises(MachineError, match="no space left"):
        bench.run(20)
