"""A directory that grows: `--new-files` scores what came since, touches nothing else, and survives any kill."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.conftest import Ended, Running, Workshop

#: More than one shard of 20 rows, and names that sort before, between and behind those that are there.
NEW = {"part-1.csv": 23, "part-3.csv": 4, "天/part-0.csv": 20}
NUM_NEW = sum(NEW.values())
POSITION = ("source_file", "source_row")


def add(workshop: Workshop, new: dict[str, int]) -> None:
    """Add files with so many rows."""
    for name, num_rows in new.items():
        path = workshop.input / name
        path.parent.mkdir(exist_ok=True)
        lines = [f'"{row}","{name} 第{row}条{"，新闻" * (row % 5)}"\n' for row in range(num_rows)]
        path.write_text("id,text\n" + "".join(lines), encoding="utf-8")


def grow(workshop: Workshop, *options: str, code: int = 0, crash: str | None = None) -> Ended:
    """Run the job with `--new-files`."""
    hook = {"stand_in": True, **({"crash": crash} if crash else {})}
    result = workshop.run("run", workshop.standard_job, "--new-files", *options, hook=hook)
    assert result.code == code, result.stderr
    return result


@pytest.fixture(scope="module")
def fresh_tables() -> dict[str, pl.DataFrame]:
    """What runs over all files at once gave, by these files' digest: most tests here end with the same files."""
    return {}


@pytest.fixture
def equals_a_fresh_run(fresh_tables: dict[str, pl.DataFrame]) -> Callable[[Workshop], None]:
    """A check that every row is what a run over all files at once gives, and that nothing is found wrong."""

    def check(workshop: Workshop) -> None:
        files = sorted(path for path in workshop.input.rglob("*") if path.is_file())
        content = b"".join(bytes(path.relative_to(workshop.input)) + b"\0" + path.read_bytes() for path in files)
        digest = hashlib.sha256(content).hexdigest()
        if digest not in fresh_tables:
            output = workshop.folder / "fresh"
            result = workshop.run("run", workshop.standard_job, "--set", f"output.path={output}")
            assert result.code == 0, result.stderr
            fresh_tables[digest] = workshop.table(output).sort(POSITION)
            shutil.rmtree(output)
        assert workshop.table().sort(POSITION).equals(fresh_tables[digest])
        assert workshop.findings() == []
        assert (workshop.output / "_SUCCESS").exists()

    return check


def test_new_files_are_scored_and_nothing_else(done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]) -> None:
    """Behind the old rows, in shards of their own; old shards keep their bytes and times; three generations."""
    before, moments = done.shards(), done.moments()
    add(done, NEW)
    result = grow(done)
    assert "generation 2: 3 new files, 47 rows in 3 shards: part-1.csv, part-3.csv, 天/part-0.csv" in result.stderr
    assert "going on: 8 of 11 shards are complete (0-7), scoring the other 3 (8-10)" in result.stderr
    assert f"rows        {done.num_rows + NUM_NEW} in 11 shards" in result.stdout
    shards = done.shards()
    assert {name: shards[name] for name in before} == before
    kept = [name for name in moments if name.startswith(("scores/", "state/shards/")) or name == "state/run.json"]
    assert {name: done.moments()[name] for name in kept} == {name: moments[name] for name in kept}
    table = done.table()
    assert table["source_file"][done.num_rows :].unique(maintain_order=True).to_list() == list(NEW)
    equals_a_fresh_run(done)
    add(done, {"part-11.csv": 1})
    assert "generation 3: 1 new file, 1 row in 1 shard" in grow(done).stderr
    assert {name: done.shards()[name] for name in shards} == shards
    equals_a_fresh_run(done)
    status = json.loads(done.run("status", done.output, "--json", hook=None).stdout)
    assert (status["is_finished"], status["num_rows"], status["num_shards"]) == (True, done.num_rows + NUM_NEW + 1, 12)
    assert (status["num_rows_done"], status["num_shards_done"]) == (status["num_rows"], 12)


@pytest.mark.slow
def test_without_new_files_it_is_an_ordinary_run(
    standard: Workshop, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """On a fresh output, on a half finished one, and on a finished one, where there is nothing to do."""
    grow(standard, crash="shard-published:3", code=-signal.SIGKILL)
    assert "going on: 3 of 8 shards" in grow(standard).stderr
    moments = standard.moments()
    result = grow(standard)
    assert "all 8 shards are complete: nothing to score" in result.stderr
    assert standard.moments() == moments
    assert standard.run("run", standard.standard_job).code == 0
    equals_a_fresh_run(standard)


def edit(path: Path) -> None:
    """Change a character."""
    path.write_bytes(path.read_bytes().replace("观众".encode(), "观看".encode(), 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit, "part-10.csv: has changed since this output was begun"),
        (Path.unlink, "the input lacks files that this output was begun with: part-10.csv"),
    ],
    ids=["changed", "missing"],
)
def test_files_that_changed_are_named_and_refused(done: Workshop, change: Callable[[Path], None], message: str) -> None:
    """Whatever is new beside them; nothing is written. So is a file of a later generation."""
    add(done, NEW)
    before = done.moments()
    content = (done.input / "part-10.csv").read_bytes()
    change(done.input / "part-10.csv")
    assert message in grow(done, code=3).stderr
    assert done.moments() == before
    assert (done.output / "_SUCCESS").exists()
    (done.input / "part-10.csv").write_bytes(content)
    grow(done)
    add(done, {"part-3.csv": 5})
    assert "part-3.csv: has changed since this output was begun" in grow(done, code=3).stderr


def test_the_refusal_without_the_option_names_it(done: Workshop) -> None:
    """Whoever meets it learns what there is to do."""
    add(done, NEW)
    result = done.run("run", done.standard_job)
    assert result.code == 3, result.stderr
    assert "was not begun with: part-1.csv, part-3.csv, 天/part-0.csv: add them with --new-files" in result.stderr


@pytest.mark.parametrize("option", ["--limit", "--sample"])
def test_selections_are_refused(done: Workshop, option: str) -> None:
    """Which rows of the new files would be meant?"""
    assert "leave --limit and --sample out" in grow(done, option, "10", code=2).stderr


def test_a_new_file_that_cannot_be_read_is_refused_and_leaves_the_output_as_it_is(done: Workshop) -> None:
    """Before scoring, with its name; the end stays, and what is there is still complete."""
    add(done, NEW)
    path = done.input / "part-3.csv"
    for content, message in (
        ('id,text\n1,"甲', "part-3.csv"),
        ("text\n甲\n", "part-3.csv: no column 'id' (input.keep)"),
    ):
        path.write_text(content, encoding="utf-8")
        before = done.moments()
        assert message in grow(done, code=3).stderr
        assert done.moments() == before
        assert (done.output / "_SUCCESS").exists()


def test_files_without_rows_are_known_and_cost_nothing(
    done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """A day without news: no shard, the output is complete, and the file is not new again."""
    before = done.shards()
    add(done, {"part-3.csv": 0})
    assert "generation 2: 1 new file, 0 rows in 0 shards" in grow(done).stderr
    assert done.shards() == before
    assert "nothing to score" in grow(done).stderr
    equals_a_fresh_run(done)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--new-files",), ()], ids=["again", "plain"])
@pytest.mark.parametrize(
    "crash",
    [
        "generation-frozen",
        "generation-recorded",
        "batch-scored",
        "shard-written:2",
        "shard-recorded",
        "shard-published:2",
        "run-finished",
    ],
)
def test_killed_anywhere(
    done: Workshop, crash: str, options: tuple[str, ...], equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """The same command goes on, and so does the plain one once the generation is settled."""
    before = done.shards()
    add(done, NEW)
    grow(done, crash=crash, code=-signal.SIGKILL)
    is_settled = crash != "generation-frozen"
    assert not (is_settled and (done.output / "_SUCCESS").exists())
    assert {name: content for name, content in done.shards().items() if name in before} == before
    status = json.loads(done.run("status", done.output, "--json", hook=None).stdout)
    assert status["num_shards"] == (11 if is_settled else 8)
    result = done.run("run", done.standard_job, *options)
    if not options and not is_settled:
        assert result.code == 3
        grow(done)
    else:
        assert result.code == 0, result.stderr
    equals_a_fresh_run(done)


@pytest.mark.slow
def test_new_files_beside_an_unfinished_generation(
    done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """A whole run is alone: it takes in what has come since and does all of it."""
    add(done, NEW)
    grow(done, crash="shard-published", code=-signal.SIGKILL)
    add(done, {"part-12.csv": 30})
    result = done.run("run", done.standard_job)
    assert result.code == 3
    assert "was not begun with: part-12.csv: add" in result.stderr
    assert "generation 3: 1 new file, 30 rows in 2 shards" in grow(done).stderr
    equals_a_fresh_run(done)


@pytest.mark.slow
def test_dated_folders(workshop: Workshop) -> None:
    """A folder for each day, whose name is a column: new names count, wherever the tree lies."""
    job = workshop.job(input={"path": "news", "partitions": "keep", "keep": ["id"]}, output={"shard_rows": 2})

    def write(day: int) -> None:
        folder = workshop.folder / "news" / f"day=2024-05-{day:02d}"
        folder.mkdir(parents=True)
        pl.DataFrame({"id": [1, 2, 3], "text": [f"{day}日{n}" for n in "一二三"]}).write_parquet(folder / "0.parquet")

    for day in (9, 10, 1):  # a late one sorts first, and still comes last
        write(day)
        result = workshop.run("run", job, "--new-files")
        assert result.code == 0, result.stderr
    days = workshop.table()["day"].to_list()
    assert days == ["2024-05-09"] * 3 + ["2024-05-10"] * 3 + ["2024-05-01"] * 3
    assert workshop.table()["id"].to_list() == [1, 2, 3] * 3
    (workshop.folder / "news").rename(workshop.folder / "moved")
    os.utime(workshop.folder / "moved" / "day=2024-05-10" / "0.parquet", (1, 1))
    moved = workshop.job(input={"path": "moved", "partitions": "keep"}, output={"shard_rows": 2})
    assert "nothing to score" in workshop.run("run", moved, "--new-files").stderr
    assert workshop.run("verify", workshop.output).code == 0


def test_bad_lists_the_rows_of_every_generation(done: Workshop) -> None:
    """With their records, which are read by the generation's own file list."""
    add(done, NEW)
    with (done.input / "part-1.csv").open("a", encoding="utf-8") as file:
        file.write("a,b,又一条\n")
    grow(done)
    listed = done.run("bad", done.output, "--texts").stdout
    assert "part-1.csv\t23\tbad_record\t" in listed
    assert "又一条" in listed
    assert "3 rows quarantined" in listed


@pytest.mark.slow
def test_state_that_was_damaged(done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]) -> None:
    """Lost first records are made again though there are generations; a lost generation is settled again."""
    add(done, NEW)
    grow(done)
    before = done.shards()
    for name in ("inputs.json", "run.json"):
        (done.state / name).unlink()
        result = done.run("run", done.standard_job)
        assert result.code == 0, result.stderr
        assert "all 11 shards are complete" in result.stderr
    path = done.state / "generation-00002.json"
    path.write_bytes(path.read_bytes()[:-20])
    verified = done.run("verify", done.output)
    assert verified.code == 9
    assert "generation-00002.json: is damaged, or of another run: run the job again with --new-files" in verified.stderr
    assert done.run("run", done.standard_job).code == 3
    result = grow(done)
    assert "generation-00002.json: is damaged: settling this generation again" in result.stderr
    assert "all 11 shards are complete" in result.stderr
    assert done.shards() == before
    equals_a_fresh_run(done)


@pytest.mark.slow
def test_beginning_anew_takes_everything_at_once(
    done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """`--restart` removes generations with the rest."""
    add(done, NEW)
    grow(done)
    result = done.run("run", done.standard_job, "--restart")
    assert result.code == 0, result.stderr
    assert not list(done.state.glob("generation-*"))
    equals_a_fresh_run(done)


def test_verify_sees_generations_that_are_not_what_they_say(done: Workshop) -> None:
    """The numbers of a generation's record are held against its files, and a shard's footer against its input."""
    add(done, NEW)
    grow(done)
    path = done.state / "generation-00002.json"
    content = json.loads(path.read_bytes())
    content["generation"]["num_shards"] = 7
    path.write_text(json.dumps(content), encoding="utf-8")
    verified = done.run("verify", done.output)
    assert verified.code == 9
    assert "state/generation-00002.json: says num_shards 7, the frozen input gives 3" in verified.stdout


def start_task(workshop: Workshop, task: str, extra: dict[str, str] | None = None, **hook: str) -> Running:
    """Start a task with `--new-files`."""
    return workshop.start(
        "run", workshop.standard_job, "--task", task, "--new-files", hook={"stand_in": True, **hook}, extra=extra
    )


@pytest.mark.slow
def test_tasks_at_once(done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]) -> None:
    """One of them settles the generation, all do their part of it, the last one ends the run."""
    add(done, NEW)
    ended = [one.end() for one in [start_task(done, f"{number}/3") for number in (1, 2, 3)]]
    assert [one.code for one in ended] == [0, 0, 0], [one.stderr for one in ended]
    assert sum("generation 2: 3 new files" in one.stderr for one in ended) == 1
    equals_a_fresh_run(done)


@pytest.mark.slow
def test_a_file_that_comes_between_two_tasks_waits(
    done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """While a generation is under way every task does its part of that one, whatever arrives; then the next begins."""
    add(done, NEW)
    assert start_task(done, "1/2").end().code == 0
    add(done, {"part-12.csv": 30})
    result = start_task(done, "2/2").end()
    assert result.code == 0, result.stderr
    assert "waiting until every shard is there: 1 new file: part-12.csv; give --new-files again then" in result.stderr
    assert (done.output / "_SUCCESS").exists()
    assert len(done.shards()) == 11
    for number in (1, 2):
        assert start_task(done, f"{number}/2").end().code == 0
    equals_a_fresh_run(done)


@pytest.mark.slow
@pytest.mark.parametrize("crash", ["generation-frozen", "generation-recorded", "shard-recorded"])
def test_a_task_killed_around_a_generation(
    done: Workshop, crash: str, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """The others settle it or take it over, and the task goes on when it is sent again."""
    add(done, NEW)
    assert start_task(done, "1/2", crash=crash).end().code == -signal.SIGKILL
    for number in (2, 1):
        result = start_task(done, f"{number}/2").end()
        assert result.code == 0, result.stderr
    equals_a_fresh_run(done)


@pytest.mark.slow
def test_a_task_about_to_finish_when_another_takes_in_new_files(
    done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """It knows nothing of them: it neither ends the run nor takes the other's shards for strangers."""
    (done.output / "scores/part-00000.parquet").unlink()
    slow = start_task(done, "1/2", pause="run-finished")
    slow.wait_until_paused()
    add(done, NEW)
    assert start_task(done, "1/3").end().code == 0
    slow.send(signal.SIGCONT)
    result = slow.end()
    assert result.code == 0, result.stderr
    assert "part 1/2 is complete; 3 of 11 shards are other parts' and not there yet" in result.stderr
    assert not (done.output / "_SUCCESS").exists()
    grow(done)
    equals_a_fresh_run(done)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["inputs-frozen", "inputs-stored"])
def test_two_first_tasks_without_locks(
    standard: Workshop, point: str, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """Where locks do not work the first one's plan holds, also if a file came between the two; nobody overwrites it."""
    no_locks = {"GUARD_LOCKS": "1"}
    add(standard, {"part-12.csv": 30})
    slow = standard.start(
        *("run", standard.standard_job, "--task", "1/2", "--set", "engine.max_batch_tokens=300"),
        hook={"stand_in": True, "pause": point},
        extra=no_locks,
    )
    slow.wait_until_paused()
    (standard.input / "part-12.csv").rename(standard.folder / "part-12.csv")
    first = start_task(standard, "2/2", extra=no_locks).end()
    assert first.code == 0, first.stderr
    before = standard.record("run.json")
    slow.send(signal.SIGCONT)
    result = slow.end()
    assert "another process has settled this run meanwhile" in result.stderr
    assert result.code == 3, "it saw a file that the first one did not"
    assert standard.record("run.json") == before
    assert before["resolved"]["max_batch_tokens"] == 600
    again = start_task(standard, "1/2", extra=no_locks).end()
    assert again.code == 0, again.stderr
    assert {standard.record(f"shards/part-{index:05d}.json")["max_batch_tokens"] for index in range(8)} == {600}
    assert not list(standard.state.glob("inputs-*"))
    equals_a_fresh_run(standard)


@pytest.mark.slow
@pytest.mark.parametrize("new", [{}, {"part-12.csv": 30}], ids=["same", "grown"])
def test_two_first_tasks_without_locks_of_which_one_takes_over(
    standard: Workshop, new: dict[str, int], equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """The second one has the first one's settings and files, also one that came after it looked; each does its part."""
    extra = {"GUARD_LOCKS": "1"}
    slow = start_task(standard, "1/2", extra=extra, pause="inputs-stored")
    slow.wait_until_paused()
    add(standard, new)
    assert start_task(standard, "2/2", extra=extra).end().code == 0
    slow.send(signal.SIGCONT)
    result = slow.end()
    assert result.code == 0, result.stderr
    assert "another process has settled this run meanwhile: taking over what it settled" in result.stderr
    equals_a_fresh_run(standard)


@pytest.mark.slow
def test_two_tasks_without_locks_settle_one_generation(
    done: Workshop, equals_a_fresh_run: Callable[[Workshop], None]
) -> None:
    """The first one's stays, whatever files the second one saw."""
    extra = {"GUARD_LOCKS": "1"}
    add(done, NEW)
    slow = start_task(done, "1/2", extra=extra, pause="generation-frozen")
    slow.wait_until_paused()
    add(done, {"part-12.csv": 30})
    assert "generation 2: 4 new files" in start_task(done, "2/2", extra=extra).end().stderr
    slow.send(signal.SIGCONT)
    result = slow.end()
    assert result.code == 0, result.stderr
    assert "generation 2" not in result.stderr
    assert (done.output / "_SUCCESS").exists()
    equals_a_fresh_run(done)
