"""Kill a run at any moment, inside shards too: the same bytes in the end, and little scored twice.

The stand-in notes every batch that it scored, so that after each kill three things are known: what had been scored,
what of it was durable, and that what was scored were the planned batches, from the first one that was not durable on
(several workers finish theirs in any order, a few batches apart).
"""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import struct
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from batchzs.test_hook import POINTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import Workshop

CHECKPOINT_S = 1
#: A batch of the stand-in takes at least as long, on a busy machine longer: then fewer fit into a second.
DELAY_S = 0.05
NUM_ROWS = 330
SHARD_ROWS = 110
#: Bytes of a pair in a journal: three classes of float32.
PAIR_BYTES = 12
#: What stands before a journal's records, before a record's payload, and before its logits (see `batchzs.journal`).
HEADER_BYTES, RECORD, SECONDS_BYTES = 40, struct.Struct("<II"), 8


def lost_limit(num_workers: int) -> int:
    """What a kill may cost: each worker's batches of `checkpoint_seconds` and one more, and those under way."""
    return num_workers * round(CHECKPOINT_S / DELAY_S + 1) + num_ahead(num_workers)


def num_ahead(num_workers: int) -> int:
    """How many batches may be under way or finished out of turn."""
    return num_workers + (num_workers > 1)


def write_input(workshop: Workshop, num_workers: int, num_rows: int = NUM_ROWS) -> Path:
    """Write texts of many lengths and a job whose shards each take about `checkpoint_seconds` or more."""
    lines = [f"{row},第{row}条新闻{'很长' * (row * 7 % 40)}\n" for row in range(num_rows)]
    (workshop.folder / "新闻.csv").write_text("id,text\n" + "".join(lines), encoding="utf-8")
    return workshop.job(
        input={"path": "新闻.csv"},
        output={"shard_rows": SHARD_ROWS * num_workers},
        engine={"max_batch_tokens": 600, "checkpoint_seconds": CHECKPOINT_S, "workers": num_workers},
    )


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """A run that nobody disturbed: its files, and for each shard the pairs of each of its batches."""

    shards: dict[str, bytes]
    batches: list[list[int]]


def run_undisturbed(workshop: Workshop, job: Path) -> Undisturbed:
    """Run the job once, note its batches, and clear the output away."""
    shutil.rmtree(workshop.output, ignore_errors=True)
    counted = workshop.folder / "undisturbed"
    counted.write_bytes(b"")
    hook = {"stand_in": True, "count_batches": str(counted)}
    result = workshop.run("run", job, "--set", "engine.workers=1", hook=hook)  # in planned order
    assert result.code == 0, result.stderr
    left = iter([int(line) for line in counted.read_text().splitlines()])
    batches = []
    for index in range(len(workshop.shards())):
        num_pairs = workshop.record(f"shards/part-{index:05d}.json")["num_pairs"]
        shard: list[int] = []
        while sum(shard) < num_pairs:
            shard.append(next(left))
        assert sum(shard) == num_pairs
        batches.append(shard)
    assert next(left, None) is None
    undisturbed = Undisturbed(workshop.shards(), batches)
    shutil.rmtree(workshop.output)
    return undisturbed


def journal_pairs(path: Path) -> int:
    """How many pairs a journal's whole records hold; read here by the format's description, not by batchzs."""
    content = path.read_bytes()[HEADER_BYTES:] if path.exists() else b""
    num_pairs = 0
    while len(content) >= RECORD.size:
        length, checksum = RECORD.unpack_from(content)
        payload, content = content[RECORD.size : RECORD.size + length], content[RECORD.size + length :]
        if len(payload) < length or zlib.crc32(payload, num_pairs * PAIR_BYTES) != checksum:
            break
        num_pairs += (length - SECONDS_BYTES) // PAIR_BYTES
    return num_pairs


@dataclass(slots=True)
class Figures:
    """What was measured over all chains."""

    num_kills: int = 0
    num_inside: int = 0  # kills that left progress inside a shard
    num_rows: int = 0
    num_batches: int = 0
    num_twice: int = 0
    most_twice: int = 0

    def show(self, what: str) -> None:
        """Print the figures, so that they can be written down; `pytest -s` or `-rP` shows them."""
        print(  # noqa: T201 - figures for docs/reliability.md
            f"\n{what}: {self.num_kills} kills, {self.num_inside} of them inside a shard; {self.num_rows} rows "
            f"compared, all equal; {self.num_twice} of {self.num_batches} batches scored twice, "
            f"at most {self.most_twice} after one kill"
        )


class Chain:
    """One job, killed and gone on with until it is done."""

    def __init__(
        self, workshop: Workshop, job: Path, num_workers: int, undisturbed: Undisturbed, figures: Figures
    ) -> None:
        self._num_workers = num_workers
        self._workshop = workshop
        self._job = job
        self._undisturbed = undisturbed
        self._figures = figures
        self._counted = workshop.folder / "counted"
        self._plan = list(itertools.chain.from_iterable(undisturbed.batches))
        if workshop.output.exists():
            shutil.rmtree(workshop.output)

    def attempt(self, *, crash: str | None = None, kill_after_s: float | None = None) -> bool:
        """Run the job and kill it; return whether it was done before that."""
        self._counted.write_bytes(b"")
        start = self._num_durable()
        hook: dict[str, Any] = {"stand_in": True, "delay_s": DELAY_S, "count_batches": str(self._counted)}
        running = self._workshop.start("run", self._job, hook=hook if crash is None else {**hook, "crash": crash})
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            running.send(signal.SIGKILL)
        result = running.end()
        scored = [int(line) for line in self._counted.read_text().splitlines()]
        ahead = num_ahead(self._num_workers) if self._num_workers > 1 else 0
        others = Counter(scored) - Counter(self._plan[start : start + len(scored) + ahead])
        assert not others, "not the planned batches that were left"
        self._figures.num_batches += len(scored)
        num_twice = start + len(scored) - self._num_durable()
        assert 0 <= num_twice <= lost_limit(self._num_workers), (crash, kill_after_s, num_twice)
        for name, content in self._workshop.shards().items():
            assert content == self._undisturbed.shards[name], name
        if result.code == 0:
            self._see_that_it_is_done(num_twice)
            return True
        assert result.code == -signal.SIGKILL, result.stderr
        assert not (self._workshop.output / "_SUCCESS").exists() or crash is None
        self._figures.num_kills += 1
        self._figures.num_twice += num_twice
        self._figures.most_twice = max(self._figures.most_twice, num_twice)
        self._figures.num_inside += any(journal_pairs(path) for path in self._workshop.state.glob("journal/*"))
        return False

    def _see_that_it_is_done(self, num_twice: int) -> None:
        assert num_twice == 0
        assert self._workshop.shards() == self._undisturbed.shards
        assert (self._workshop.output / "_SUCCESS").exists()
        table = self._workshop.table()
        assert table.select("source_file", "source_row").is_unique().all()
        assert self._workshop.record("summary.json")["num_rows"] == table.height
        assert not list(self._workshop.state.glob("journal/*"))
        self._figures.num_rows += table.height

    def _num_durable(self) -> int:
        """How many planned batches are on disk, in shards or in journals; a journal ends where a batch ends."""
        num_durable = 0
        for index, batches in enumerate(self._undisturbed.batches):
            name = f"part-{index:05d}"
            if (self._workshop.output / "scores" / f"{name}.parquet").exists():
                num_durable += len(batches)
                continue
            num_pairs = journal_pairs(self._workshop.state / "journal" / f"{name}.journal")
            num_in_journal = [0, *itertools.accumulate(batches)].index(num_pairs)
            num_durable += num_in_journal
            if num_in_journal < len(batches):
                break  # a shard whose pairs are all in its journal may be on its way to the disk, the next one begun
        return num_durable


def some_kills(draw: random.Random) -> Iterator[dict[str, Any]]:
    """Moments and points to kill at, as often as asked for."""
    while True:
        if draw.random() < 0.5:
            yield {"kill_after_s": draw.uniform(0.1, 3.5)}
        else:
            yield {"crash": f"{draw.choice(POINTS)}:{draw.choice((1, 1, 2, 5, 25))}"}


@pytest.mark.slow
def test_a_dozen_kills(workshop: Workshop) -> None:
    """Killed at every named point and at moments that nobody named, one after the other, in one job."""
    job = write_input(workshop, num_workers=1)
    chain = Chain(workshop, job, 1, run_undisturbed(workshop, job), figures := Figures())
    for crash in ("inputs-frozen", "run-recorded", "batch-scored:5", "journal-torn", "journal-written"):
        assert not chain.attempt(crash=crash)
    for kill_after_s in (0.7, 1.9, 2.6):
        assert not chain.attempt(kill_after_s=kill_after_s)
    for crash in ("shard-written", "shard-published", "shard-recorded", "run-finished"):
        assert not chain.attempt(crash=crash)
    assert chain.attempt()
    figures.show("a dozen kills")
    assert figures.num_kills == 12
    assert figures.num_inside >= 2


@pytest.mark.slow
def test_more_than_a_hundred_kills(workshop: Workshop) -> None:
    """Chains of kills at random moments and points, each until the job is done: sixty kills a number of workers."""
    seed = 20
    draw = random.Random(seed)
    kills = some_kills(draw)
    for num_workers in (1, 2):
        job = write_input(workshop, num_workers)
        undisturbed = run_undisturbed(workshop, job)
        figures = Figures()
        num_chains = 0
        while figures.num_kills < 60:
            chain = Chain(workshop, job, num_workers, undisturbed, figures)
            while not chain.attempt(**next(kills)):
                pass
            num_chains += 1
        figures.show(f"{num_chains} chains, {num_workers} worker(s), seed {seed}")
        assert figures.num_inside > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "crashes",
    [("journal-written",), ("journal-written", "journal-torn:2", "batch-scored:3", "journal-written", "shard-written")],
    ids=len,
)
def test_a_checkpoint_killed_inside_a_shard(workshop: Workshop, crashes: tuple[str, ...]) -> None:
    """A real network in fp32: logits from a journal and logits computed anew make the bits of an undisturbed run."""
    num_rows = 20_000
    write_input(workshop, 1, num_rows)
    engine = {"checkpoint_seconds": 1, "max_batch_tokens": 4096}
    sections: dict[str, Any] = {"input": {"path": "新闻.csv"}, "engine": engine}
    undisturbed = workshop.job("一.yaml", **sections, output={"path": "一", "shard_rows": num_rows})
    job = workshop.job(**sections, output={"shard_rows": num_rows})
    assert workshop.run("run", undisturbed, hook=None).code == 0
    for crash in crashes:
        result = workshop.run("run", job, hook={"crash": crash})
        assert result.code == -signal.SIGKILL, result.stderr
        assert workshop.shards() == {}
        assert journal_pairs(workshop.state / "journal/part-00000.journal") > 0
    result = workshop.run("run", job, hook=None)
    assert result.code == 0, result.stderr
    assert f"of the shard's {3 * num_rows} pairs were scored before: going on after them" in result.stderr
    assert workshop.shards() == workshop.shards(workshop.folder / "一")
