"""Kill a run anywhere, damage what it left, run it again: it ends like an undisturbed one, or is refused with why."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import Finished, Workshop

SLOW = {"stand_in": True, "delay_s": 0.02}
#: Where the process kills itself, each attempt going on from what the one before left.
CRASHES = (
    "inputs-frozen",
    "run-recorded",
    "batch-scored",
    "batch-scored:9",
    "shard-written:2",
    "shard-published",
    "shard-recorded:2",
    "shard-published:2",
    "run-finished",
)


@pytest.mark.slow
def test_killed_at_every_point(standard: Workshop, finished: Finished) -> None:
    """Killed wherever it hurts, time and again, a run publishes whole shards only and ends like an undisturbed one."""
    num_published = 0
    for crash in CRASHES:
        result = standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": crash})
        assert result.code == -signal.SIGKILL, (crash, result.stderr)
        published = standard.published(finished)
        assert len(published) >= num_published, crash
        num_published = len(published)
        assert not (standard.output / "_SUCCESS").exists()
    assert num_published == standard.num_shards
    result = standard.run("run", standard.standard_job)
    assert result.code == 0, result.stderr
    assert "all 8 shards are complete: nothing to score" in result.stderr
    assert standard.is_like(finished)
    assert standard.table().equals(finished.table)


def kill_at_random(workshop: Workshop, finished: Finished, num_kills: int, seed: int) -> int:
    """Kill runs of one job at random moments, beginning anew where all is scored; return how many kills hit."""
    moments = random.Random(seed)
    num_hits = 0
    for _ in range(num_kills):
        running = workshop.start("run", workshop.standard_job, hook=SLOW)
        time.sleep(moments.uniform(0.3, 2.5))
        running.send(signal.SIGKILL)
        num_hits += running.end().code == -signal.SIGKILL
        published = workshop.published(finished)
        if len(published) == workshop.num_shards:
            shutil.rmtree(workshop.output)
    return num_hits


def test_killed_at_random_moments(standard: Workshop, finished: Finished) -> None:
    """Moments that nobody named do no harm either."""
    assert kill_at_random(standard, finished, num_kills=3, seed=1) > 0
    result = standard.run("run", standard.standard_job)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)


@pytest.mark.slow
def test_killed_sixty_times(standard: Workshop, finished: Finished) -> None:
    """The same at sixty moments."""
    assert kill_at_random(standard, finished, num_kills=60, seed=2) > 30
    result = standard.run("run", standard.standard_job)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)


def test_only_what_is_missing_is_scored(standard: Workshop, finished: Finished) -> None:
    """A later attempt leaves published shards and their records alone; each record says which attempt scored it."""
    standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "shard-published:3"})
    before = standard.moments()
    result = standard.run("run", standard.standard_job)
    assert result.code == 0, result.stderr
    assert "going on: 3 of 8 shards are complete (0-2), scoring the other 5 (3-7)" in result.stderr
    after = standard.moments()
    kept = [f"scores/part-0000{index}.parquet" for index in range(3)]
    kept += [f"state/shards/part-0000{index}.json" for index in range(3)]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert standard.attempts() == [1, 1, 1, 2, 2, 2, 2, 2]
    assert standard.record("summary.json")["num_attempts"] == 2
    assert standard.is_like(finished)


def test_what_a_kill_leaves_half_written_is_swept(standard: Workshop) -> None:
    """A killed run leaves a temporary file; the next one removes it, so that kills do not fill the disk (case R1)."""
    standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "shard-written:2"})
    assert [path.name.partition(".parquet")[0] for path in (standard.state / "tmp").iterdir()] == ["part-00001"]
    assert standard.run("run", standard.standard_job).code == 0
    assert list((standard.state / "tmp").iterdir()) == []


def test_a_finished_job_ends_at_once(done: Workshop, finished: Finished) -> None:
    """A finished job loads no torch and no Polars, touches no file, and shows the same numbers."""
    before = done.moments()
    started_s = time.monotonic()
    result = done.run("run", done.standard_job, extra={"GUARD_FORBIDS": "torch polars modelscope"})
    assert time.monotonic() - started_s < 10
    assert result.code == 0, result.stderr
    assert done.moments() == before
    lines = [line for line in finished.ended.stdout.splitlines() if not line.startswith(("time", "output"))]
    assert [line for line in result.stdout.splitlines() if not line.startswith(("time", "output"))] == lines


def test_damaged_shards_are_scored_again_and_no_others(done: Workshop, finished: Finished) -> None:
    """Truncated, emptied, removed and exchanged shards are found and scored again; a lost record is made again."""
    shards = sorted((done.output / "scores").iterdir())
    shards[0].write_bytes(shards[0].read_bytes()[:-20])
    shards[1].write_bytes(b"")
    shards[2].unlink()
    shards[3].write_bytes(shards[4].read_bytes())
    (done.state / "shards/part-00005.json").unlink()
    torn = done.state / "shards/part-00006.json"
    torn.write_bytes(torn.read_bytes()[:100])
    result = done.run("run", done.standard_job)
    assert result.code == 0, result.stderr
    for index, what in enumerate(("is no whole Parquet file", "is no whole Parquet file")):
        assert f"part-0000{index}.parquet: {what}: scoring this shard again" in result.stderr
    assert "part-00003.parquet: its metadata says shard 4, expected 3: scoring this shard again" in result.stderr
    assert done.attempts() == [2, 2, 2, 2, 1, 0, 0, 1]
    assert done.is_like(finished)
    summary = done.record("summary.json")
    assert summary["num_rows"] == sum(summary["statuses"].values()) == done.num_rows
    assert summary["labels"] == {label: (done.table()["label"] == label).sum() for label in done.labels}


def cut_in_half(path: Path) -> None:
    """Tear a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    """Leave no byte of a file."""
    path.write_bytes(b"")


def remove(path: Path) -> None:
    """Remove a file."""
    path.unlink()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("state/run.json", cut_in_half, "run.json: is damaged: settling the run again"),
        ("state/run.json", empty, "run.json: is damaged: settling the run again"),
        ("state/run.json", remove, ""),
        ("state/inputs.json", cut_in_half, "inputs.json: is missing or damaged: reading the input again"),
        ("state/inputs.json", empty, "inputs.json: is missing or damaged: reading the input again"),
        ("state/shards/part-00003.json", empty, "part-00003.parquet: is complete, its record is not there"),
        ("state/attempt", empty, ""),
        ("_SUCCESS", remove, "all 8 shards are complete"),
        ("state/summary.json", remove, "all 8 shards are complete"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_damaged_state_is_made_again(
    done: Workshop, finished: Finished, name: str, damage: Callable[[Path], None], message: str
) -> None:
    """Torn state is settled anew from job, input and shards, with a warning; no shard is scored again (case R2)."""
    damage(done.output / name)
    scores = {path: path.stat().st_mtime_ns for path in done.output.glob("scores/*")}
    result = done.run("run", done.standard_job)
    assert result.code == 0, result.stderr
    assert message in result.stderr
    assert {path: path.stat().st_mtime_ns for path in done.output.glob("scores/*")} == scores
    assert done.is_like(finished)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"labels": ["文化", "体育,球赛", "军事"]}, "labels"),
        ({"labels": ["体育,球赛", "文化", "娱乐"]}, "hypotheses"),
        ({"labels": ["文化", "体育,球赛", "娱乐", "军事"]}, "labels"),
        ({"template": "这句话说的是{}"}, "hypotheses"),
        ({"threshold": 0.4}, "threshold"),
        ({"multi_label": True}, "multi_label"),
        ({"input": {"keep": []}}, "input.keep"),
        ({"engine": {"max_length": 200}}, "engine.max_length"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_job_is_refused(done: Workshop, changes: dict[str, Any], field: str) -> None:
    """A job that would give other results is refused by the field that differs, and nothing is touched (case R5)."""
    before = done.moments()
    result = done.run("run", done.job(**changes), extra={"GUARD_FORBIDS": "torch polars"})
    assert result.code == 6, result.stderr
    assert f"  {field}: begun with " in result.stderr
    assert "--restart" in result.stderr
    assert done.moments() == before


def test_another_job_is_refused_half_way(standard: Workshop, finished: Finished) -> None:
    """Half a run is no other job's either, and the job that began it goes on all the same (case R5)."""
    standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "shard-published:3"})
    before = standard.moments()
    result = standard.run("run", standard.job("b.yaml", labels=["文化", "体育,球赛", "娱乐", "军事"]))
    assert result.code == 6, result.stderr
    assert "  labels: begun with " in result.stderr
    assert standard.moments() == before
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)
    assert standard.attempts() == [1, 1, 1, 2, 2, 2, 2, 2]


def test_another_selection_is_refused(done: Workshop) -> None:
    """`--limit` makes another run, named as the option."""
    result = done.run("run", done.standard_job, "--limit", "10")
    assert result.code == 6, result.stderr
    assert "  --limit: begun with nothing, now 10" in result.stderr


@pytest.mark.parametrize("name", ["pytorch_model.bin", "vocab.txt"])
def test_another_model_file_is_refused(standard: Workshop, name: str) -> None:
    """A model's file exchanged in place, by one of the same size, is noticed (case R5)."""
    shutil.copytree(standard.model, standard.folder / "model")
    job = standard.job(model={"path": "model"})
    standard.run("run", job, hook={"stand_in": True, "crash": "shard-published:2"})
    before = standard.moments()
    path = standard.folder / "model" / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = standard.run("run", job)
    assert result.code == 6, result.stderr
    assert "  model files: begun with " in result.stderr
    assert standard.moments() == before


def test_what_changes_no_result_is_accepted(done: Workshop, finished: Finished) -> None:
    """Batches, chunks, shard size, log format, the device and a moved model are no other job (case R5)."""
    model = done.folder / "moved" / done.model.name
    shutil.copytree(done.model, model)
    engine = {"max_batch_tokens": 333, "labels_per_chunk": 1, "device": "auto"}
    job = done.job("other name.yaml", engine=engine, output={"shard_rows": 7}, model={"path": str(model)})
    (done.output / "scores/part-00002.parquet").unlink()
    result = done.run("run", job, "--log-format", "json")
    assert result.code == 0, result.stderr
    assert done.is_like(finished)


def edit_in_place(folder: Path) -> None:
    """Change one character, and neither size nor name."""
    path = folder / "part-10.csv"
    path.write_bytes(path.read_bytes().replace("观众".encode(), "观看".encode(), 1))


def add_file(folder: Path) -> None:
    """Add a file."""
    shutil.copy(folder / "part-2.csv", folder / "part-3.csv")


def remove_file(folder: Path) -> None:
    """Take a file away."""
    (folder / "part-2.csv").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit_in_place, "part-10.csv: has changed since this output was begun"),
        (add_file, "the input has files that this output was not begun with: part-3.csv"),
        (remove_file, "the input lacks files that this output was begun with: part-2.csv"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.__name__,
)
def test_a_changed_input_is_refused(done: Workshop, change: Callable[[Path], None], message: str) -> None:
    """Another content, an additional file and a missing one are named, also where all shards are there."""
    change(done.input)
    before = done.moments()
    result = done.run("run", done.standard_job)
    assert result.code == 3, result.stderr
    assert message in result.stderr.replace("'", "")
    assert done.moments() == before


def test_a_changed_input_is_refused_when_its_record_is_lost_too(done: Workshop) -> None:
    """Reading the input again must not take an edited file for the one that older shards were made from."""
    (done.state / "inputs.json").unlink()
    edit_in_place(done.input)
    result = done.run("run", done.standard_job)
    assert result.code == 3, result.stderr
    assert "the input is not what it was when this run began" in result.stderr


def test_a_touched_or_moved_input_is_the_same(done: Workshop, finished: Finished) -> None:
    """Another modification time or place alone is no change: names below the input's root and contents decide."""
    for path in done.input.iterdir():
        os.utime(path, (1, 1))
    done.input.rename(done.folder / "moved")
    result = done.run("run", done.job(input={"path": "moved"}))
    assert result.code == 0, result.stderr
    assert done.is_like(finished)


def test_restart_begins_anew_and_removes_nothing_foreign(done: Workshop) -> None:
    """`--restart` takes another job into a used output, scores all of it, and leaves users' files where they are."""
    own = [done.output / "我的笔记.txt", done.state / "notes.json", done.output / "other" / "a.parquet"]
    for path in own:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    (done.output / "scores/part-00007.parquet").write_bytes(b"damaged")
    result = done.run("run", done.job(threshold=0.9), "--restart")
    assert result.code == 0, result.stderr
    assert [path.read_bytes() for path in own] == [b"mine"] * 3
    assert done.attempts() == [1] * done.num_shards
    assert done.table()["label"].null_count() > 6
    assert (done.state / "run.log").read_text(encoding="utf-8").count("TEST HOOK") == 2


@pytest.mark.slow
def test_inputs_job_and_log_outlast_every_attempt(standard: Workshop, finished: Finished) -> None:
    """Nothing of the user's is touched, so that a requeued run finds all of it; the log tells attempts (case S3)."""
    users = [standard.standard_job, *standard.input.iterdir(), *standard.model.iterdir()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in users}
    standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "shard-written:2"})
    standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "shard-published:2"})
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)
    assert standard.run("run", standard.standard_job, "--restart").code == 0
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in users} == before
    log = (standard.state / "run.log").read_text(encoding="utf-8")
    assert re.findall(r"attempt (\d+): scoring in ", log) == ["1", "2", "3", "1"]


def run_both_without_locks(workshop: Workshop, job: Path, *hooks: dict[str, Any]) -> list[int]:
    """Run a job twice at the same time on what looks like a file system without locks; return the exit codes."""
    runs = [workshop.start("run", job, hook=hook, extra={"GUARD_LOCKS": "1"}) for hook in hooks]
    results = [running.end() for running in runs]
    assert all("this file system has no locks" in result.stderr for result in results)
    return [result.code for result in results]


@pytest.mark.slow
def test_two_runs_without_locks(standard: Workshop, finished: Finished) -> None:
    """On a file system without locks a double run is warned of and does no harm, killed ones too (cases R3, S5)."""
    job = standard.job(engine={"checkpoint_seconds": 1})
    killed = [{**SLOW, "crash": "shard-published:3"}, {**SLOW, "crash": "journal-written:9"}]
    run_both_without_locks(standard, job, *killed)
    standard.published(finished)
    assert run_both_without_locks(standard, job, SLOW, SLOW) == [0, 0]
    assert standard.is_like(finished)
    verified = standard.run("verify", standard.output)
    assert verified.code == 0, verified.stdout


@pytest.mark.parametrize(("name", "options"), [("mine.parquet", ()), ("part-mine.parquet", ("--restart",))])
def test_a_foreign_file_among_the_shards(done: Workshop, name: str, options: tuple[str, ...]) -> None:
    """What is no shard of the run lies in the way in `scores/`: it is named, and nothing is removed for it."""
    foreign = done.output / "scores" / name
    shutil.copy(done.output / "scores/part-00000.parquet", foreign)
    before = done.moments()
    result = done.run("run", done.standard_job, *options)
    assert result.code == 6, result.stderr
    assert str(foreign) in result.stderr
    assert done.moments() == before


@pytest.mark.parametrize("options", [(), ("--restart",)])
def test_hidden_names_among_the_shards_are_left_alone(done: Workshop, options: tuple[str, ...]) -> None:
    """What readers of a directory pass over (Spark's `_temporary`, a dot file) stops no run and outlasts it."""
    hidden = [done.output / "scores" / name for name in ("_temporary", ".nfs0001")]
    for path in hidden:
        path.write_bytes(b"mine")
    result = done.run("run", done.standard_job, *options)
    assert result.code == 0, result.stderr
    assert [path.read_bytes() for path in hidden] == [b"mine"] * 2
    assert len(list((done.output / "scores").glob("part-*.parquet"))) == done.num_shards


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"input": {"path": "none.csv"}}, 3), ({"model": {"path": "none"}}, 4)],
    ids=["input", "model"],
)
def test_restart_removes_nothing_before_the_new_run_can_begin(
    done: Workshop, changes: dict[str, Any], code: int
) -> None:
    """`--restart` with a job that cannot run at all costs nobody a night's results."""
    before = done.moments()
    result = done.run("run", done.job(**changes), "--restart")
    assert result.code == code, result.stderr
    assert done.moments() == before


def test_a_record_of_a_newer_format_is_refused(done: Workshop) -> None:
    """State that a newer batchzs wrote is not misread: exit 6, with the version that wrote it."""
    path = done.state / "run.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"format_version": 1', '"format_version": 9'))
    result = done.run("run", done.standard_job)
    assert result.code == 6, result.stderr
    assert "in format 9, this one reads 1" in result.stderr


def test_a_real_model_goes_on_with_the_same_bytes(standard: Workshop, finished_by_model: Finished) -> None:
    """With a checkpoint, killed in the middle and gone on with on more CPUs: the shards of an undisturbed run."""
    common = ("run", standard.standard_job, "--limit", "80")
    hook = {"crash": "shard-recorded:2"}  # the next shard is half scored by then
    killed = standard.run(*common, hook=hook, extra={"SLURM_CPUS_PER_TASK": "1"})
    assert killed.code == -signal.SIGKILL, killed.stderr
    assert 0 < len(standard.published(finished_by_model)) < len(finished_by_model.shards)
    result = standard.run(*common, hook=None)
    assert result.code == 0, result.stderr
    assert standard.record("run.json")["resolved"]["threads"] == 1
    assert {standard.record(f"shards/part-{index:05d}.json")["threads"] for index in range(4)} == {1}
    assert standard.is_like(finished_by_model)


def test_a_setting_that_stays_is_named(standard: Workshop, finished: Finished) -> None:
    """Batches and shards stay those that the run began with, so that its bytes do; whoever asks for others hears so."""
    first = standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "shard-recorded:2"})
    assert first.code == -signal.SIGKILL, first.stderr
    assert "the job asks for" not in first.stderr
    asks = ("--set", "engine.max_batch_tokens=300", "--set", "output.shard_rows=50")
    for _ in range(2):  # going on, and where all is done
        result = standard.run("run", standard.standard_job, *asks)
        assert result.code == 0, result.stderr
        assert "engine.max_batch_tokens: the job asks for 300, and 600 stays, with which this run was" in result.stderr
        assert "output.shard_rows: the job asks for 50, and 20 stays" in result.stderr
        assert result.stderr.count("the job asks for") == 2
    assert standard.is_like(finished)
