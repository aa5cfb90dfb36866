"""`batchzs finish`: the end of a run in parts, or what is missing for it."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Finished, Workshop


@pytest.mark.slow
def test_the_end_is_written_where_no_task_did(standard: Workshop, finished: Finished) -> None:
    """The last task dies before it: the step after it needs neither the input nor the model."""
    crash = {"stand_in": True, "crash": "run-finished"}
    assert standard.run("run", standard.standard_job, "--task", "1/2").code == 0
    assert standard.run("run", standard.standard_job, "--task", "2/2", hook=crash).code != 0
    assert not (standard.output / "_SUCCESS").exists()
    shutil.rmtree(standard.input)
    ended = standard.run("finish", standard.standard_job, "--set", "model.path=gone", "--tasks", "2")
    assert ended.code == 0, ended.stderr
    assert standard.is_like(finished)
    assert "rows        150 in 8 shards" in ended.stdout
    assert standard.record("summary.json")["num_rows"] == 150
    before = standard.moments()
    again = standard.run("finish", standard.output, hook=None)
    assert (again.code, again.stdout) == (0, ended.stdout)
    assert standard.moments() == before


@pytest.mark.slow
def test_missing_parts_are_named_with_what_became_of_them(standard: Workshop) -> None:
    """One part is done, one was killed, one stopped, one never began; shards and ways on are in the message."""
    killed = {"stand_in": True, "crash": "shard-published"}
    assert standard.run("run", standard.standard_job, "--task", "1/4").code == 0
    assert standard.run("run", standard.standard_job, "--task", "2/4", hook=killed).code != 0
    stopped = standard.start("run", standard.standard_job, "--task", "3/4", hook={"stand_in": True, "delay_s": 1})
    stopped.wait_until(lambda: "scoring in" in stopped.stderr)
    stopped.send(signal.SIGTERM)
    assert stopped.end().code == 75
    ended = standard.run("finish", standard.standard_job, "--tasks", "4")
    assert ended.code == 9, ended.stderr
    assert ended.stdout == ""
    assert "5 of 8 shards are not there (2-3, 5-7), of parts 2-4 of 4" in ended.stderr
    assert "batchzs slurm" in ended.stderr
    assert "part 2/4 is not at work, and its log ends without a reason" in ended.stderr
    assert "part 3/4 ended: " in ended.stderr
    assert "stopped by SIGTERM" in ended.stderr
    assert "part 4/4 has not begun" in ended.stderr
    assert not (standard.output / "_SUCCESS").exists()
    log = (standard.state / "run.log").read_text(encoding="utf-8")
    assert "is not complete" in log


@pytest.mark.slow
def test_a_part_at_work_is_not_waited_for(standard: Workshop) -> None:
    """By hand, mid-run: it says who is at work, and disturbs nobody."""
    hook = {"stand_in": True, "delay_s": 2}
    running = standard.start("run", standard.standard_job, "--task", "1/2", hook=hook)
    running.wait_until(lambda: "scoring in" in running.stderr)
    ended = standard.run("finish", standard.standard_job)
    assert ended.code == 9, ended.stderr
    assert "part 1/2 is at work: process " in ended.stderr
    assert not running.has_ended
    running.stop()


@pytest.mark.slow
def test_a_whole_run_holds_the_output(standard: Workshop) -> None:
    """As it does for tasks."""
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 2})
    running.wait_until(lambda: "scoring in" in running.stderr)
    ended = standard.run("finish", standard.output)
    assert ended.code == 7, ended.stderr
    running.stop()


def test_success_goes_where_a_shard_has_gone(done: Workshop) -> None:
    """`_SUCCESS` is there when every shard is, and only then; a damaged shard counts as gone."""
    (done.output / "scores/part-00002.parquet").write_bytes(b"no parquet")
    ended = done.run("finish", done.output)
    assert ended.code == 9, ended.stderr
    assert "1 of 8 shards are not there (2): `batchzs run` on its job goes on" in ended.stderr
    assert not (done.output / "_SUCCESS").exists()


def test_the_quarantine_rule_is_the_jobs_of_now(done: Workshop) -> None:
    """As a run would judge; by the output alone it is the one that the run began with."""
    job = done.job(input={"max_bad_share": 0.001})
    ended = done.run("finish", job)
    assert ended.code == 5, ended.stderr
    assert "more than input.max_bad_share allows (0.10%)" in ended.stderr
    assert done.run("finish", done.output).code == 0


def test_another_job_is_refused(done: Workshop) -> None:
    """Its end is not this one's."""
    ended = done.run("finish", done.job(labels=["甲", "乙"]))
    assert ended.code == 6, ended.stderr
    assert "labels" in ended.stderr


@pytest.mark.parametrize("what", ["output", "job"])
def test_where_no_run_began(standard: Workshop, what: str) -> None:
    """A wrong folder is a usage error; an array whose tasks all failed at once is no success."""
    if what == "output":
        ended = standard.run("finish", standard.input)
        assert ended.code == 2, ended.stderr
        assert "holds no run of batchzs" in ended.stderr
    else:
        (standard.state / "slurm").mkdir(parents=True)
        ended = standard.run("finish", standard.standard_job, "--tasks", "4")
        assert ended.code == 9, ended.stderr
        assert "none of 4 parts has begun" in ended.stderr


def test_set_goes_with_a_job(done: Workshop) -> None:
    """An output's job is settled."""
    ended = done.run("finish", done.output, "--set", "engine.device=cpu")
    assert ended.code == 2, ended.stderr
