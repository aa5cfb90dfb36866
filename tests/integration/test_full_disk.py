"""A disk that fills up or turns read-only under a run: one clear message, nothing torn, and the same command goes on.

On a small file system of its own where this user may mount one; elsewhere these tests say why they are skipped.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import Ended, Finished, Workshop

PAGE_BYTES = 4096
DISK_BYTES = 2**21
#: Enough of them that a journal's record takes several pages.
NUM_ROWS = 4000
FULL = "No space left on device"


def command(*arguments: str | Path) -> bool:
    """Run a command of the system; say whether it did what it was asked for."""
    path = shutil.which(str(arguments[0]))
    return path is not None and subprocess.run([path, *arguments[1:]], check=False, capture_output=True).returncode == 0


@pytest.fixture
def disk(standard: Workshop) -> Iterator[Path]:
    """A file system of two megabytes, mounted in the workshop's folder."""
    path = standard.folder / "盘 [1]"
    path.mkdir()
    if not command("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", path):
        pytest.skip("mounting a small file system takes rights that this user has not")
    yield path
    standard.stop_all()
    assert command("umount", path)


def fill(disk: Path, *, num_pages_left: int) -> None:
    """Leave so many pages of a disk free."""
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(PAGE_BYTES))
        except OSError as exc:
            assert exc.errno == errno.ENOSPC  # noqa: PT017 - any other end of the loop goes on to the caller
        file.truncate(max(0, file.tell() - num_pages_left * PAGE_BYTES))


def assert_refused(result: Ended, *, word: str) -> None:
    """See that a command ended with the machine's exit code and one message that says what to do."""
    assert result.code == 8, result.stderr
    assert result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if " error: " in line]
    assert len(errors) == 1, result.stderr
    assert word in errors[0]
    assert "Free space" in errors[0] or "cannot be" in errors[0]


def fill_and_free(workshop: Workshop, disk: Path, finished: Finished, pages: range, *, anew: bool = False) -> int:
    """Run a job on a disk with ever more room until it finishes, going on or `anew`; return how often it was full."""
    job = workshop.job(output={"path": f"{disk.name}/结果"})
    output = disk / "结果"
    num_refused = 0
    for num_pages_left in pages:
        fill(disk, num_pages_left=num_pages_left)
        result = workshop.run("run", job)
        (disk / "filler").unlink()
        if result.code == 0:
            break
        assert_refused(result, word=FULL)
        num_refused += 1
        for name, content in workshop.shards(output).items():
            assert content == finished.shards[name], (num_pages_left, name)
        assert not (output / "_SUCCESS").exists()
        assert not list(output.glob("state/tmp/*"))
        if anew:
            shutil.rmtree(output, ignore_errors=True)  # with room for nothing it was not even made
    else:
        result = workshop.run("run", job)
    assert result.code == 0, result.stderr
    assert workshop.shards(output) == finished.shards
    assert (output / "_SUCCESS").exists()
    return num_refused


@pytest.mark.slow
def test_a_disk_that_is_full_at_several_moments(standard: Workshop, disk: Path, finished: Finished) -> None:
    """With room for nothing, for the state alone, for some shards: exit 8 each time, and then the same bytes (R7)."""
    assert fill_and_free(standard, disk, finished, range(0, 24, 6)) >= 3


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_moment(standard: Workshop, disk: Path, finished: Finished) -> None:
    """The same with every number of free pages there is, so that each write of a run is the one that fails."""
    num_refused = fill_and_free(standard, disk, finished, range(DISK_BYTES // PAGE_BYTES), anew=True)
    print(f"\nfull disk: {num_refused} runs refused before the one that found room")  # noqa: T201 - a figure for docs
    assert num_refused > 20


def write_long_input(workshop: Workshop) -> dict[str, Any]:
    """Write enough rows that a journal's record takes several pages; return the job's sections for them."""
    lines = [f"{row},第{row}条新闻{'很长' * (row % 9)}\n" for row in range(NUM_ROWS)]
    (workshop.folder / "多.csv").write_text("id,text\n" + "".join(lines), encoding="utf-8")
    return {
        "input": {"path": "多.csv"},
        "output": {"shard_rows": NUM_ROWS},
        "engine": {"max_batch_tokens": 6000, "checkpoint_seconds": 1, "workers": 1},
    }


@pytest.mark.slow
def test_a_disk_that_fills_up_while_a_journal_grows(standard: Workshop, disk: Path) -> None:
    """The record that finds no room is given up whole; what was recorded before is not scored again."""
    sections = write_long_input(standard)
    undisturbed = standard.job("一.yaml", **{**sections, "output": {"path": "一", "shard_rows": NUM_ROWS}})
    planned = standard.folder / "planned"
    assert standard.run("run", undisturbed, hook={"stand_in": True, "count_batches": str(planned)}).code == 0
    job = standard.job(**{**sections, "output": {"path": f"{disk.name}/结果", "shard_rows": NUM_ROWS}})
    output, counted = disk / "结果", standard.folder / "counted"
    hook = {"stand_in": True, "delay_s": 0.05, "count_batches": str(counted)}
    running = standard.start("run", job, hook=hook)
    journal = output / "state/journal/part-00000.journal"
    running.wait_until(lambda: journal.exists() and journal.stat().st_size > PAGE_BYTES)
    fill(disk, num_pages_left=0)
    result = running.end()
    assert_refused(result, word=FULL)
    assert "part-00000.journal: progress inside the shard cannot be kept" in result.stderr
    assert standard.shards(output) == {}
    (disk / "filler").unlink()
    num_scored = len(counted.read_bytes().splitlines())
    result = standard.run("run", job, hook=hook)
    assert result.code == 0, result.stderr
    assert f"of the shard's {3 * NUM_ROWS} pairs were scored before" in result.stderr
    assert standard.shards(output) == standard.shards(standard.folder / "一")
    num_again = len(counted.read_bytes().splitlines()) - len(planned.read_bytes().splitlines())
    assert 0 < num_again <= 21 < num_scored  # a second of batches of 0.05 s, and the one under way


@pytest.mark.parametrize(
    "name",
    [
        "state/journal",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("state/tmp", "state/shards", "scores")),
    ],
)
def test_a_folder_that_turns_read_only(standard: Workshop, disk: Path, finished: Finished, name: str) -> None:
    """A folder that nobody may write to any more ends the run with 8 and its path; mended, the run goes on."""
    job = standard.job(output={"path": f"{disk.name}/结果"})
    output = disk / "结果"
    running = standard.start("run", job, hook={"stand_in": True, "delay_s": 0.05})
    running.wait_until(lambda: len(standard.shards(output)) >= 2)
    if not command("chattr", "+i", output / name):
        pytest.skip("this file system has no immutable folders")
    result = running.end()
    again = standard.run("run", job)
    assert command("chattr", "-i", output / name)
    for refused in (result, again):
        assert_refused(refused, word="Operation not permitted")
        assert name in refused.stderr
    for shard, content in standard.shards(output).items():
        assert content == finished.shards[shard]
    assert standard.run("run", job).code == 0
    assert standard.shards(output) == finished.shards


@pytest.mark.slow
def test_a_disk_that_comes_back_read_only(standard: Workshop, disk: Path, finished: Finished) -> None:
    """After a fault the kernel mounts a disk read-only: the next run says so with 8, finished or not."""
    job = standard.job(output={"path": f"{disk.name}/结果"})
    output = disk / "结果"
    standard.run("run", job, hook={"stand_in": True, "crash": "shard-published:3"})
    for _ in range(2):
        assert command("mount", "-o", "remount,ro", disk)
        started_s = time.monotonic()
        result = standard.run("run", job)
        assert time.monotonic() - started_s < 20
        assert_refused(result, word=os.strerror(errno.EROFS))
        assert command("mount", "-o", "remount,rw", disk)
        assert standard.run("run", job).code == 0
        assert standard.shards(output) == finished.shards
