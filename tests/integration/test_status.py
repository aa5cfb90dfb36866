"""How far a run is, asked from outside: at any moment, from its state alone."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Workshop


def test_a_run_that_goes_on_that_died_and_that_is_done(standard: Workshop) -> None:
    """Running with its process, then not running, then finished; by the job and by the output, and in JSON."""
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "pause": "shard-published:2"})
    running.wait_until(lambda: len(standard.shards()) >= 2)
    nothing_heavy = {"GUARD_FORBIDS": "torch polars pyarrow numpy"}
    status = standard.run("status", standard.standard_job, hook=None, extra=nothing_heavy)
    assert status.code == 0, status.stderr
    assert "state       running" in status.stdout
    assert " of 150 (" in status.stdout
    assert "run         process " in status.stdout
    running.send(signal.SIGKILL)
    running.end()
    killed = json.loads(standard.run("status", standard.output, "--json", hook=None).stdout)
    assert 0 < killed["num_shards_done"] < killed["num_shards"] == 8
    assert killed["num_rows_done"] == 20 * killed["num_shards_done"]
    assert (killed["is_finished"], killed["workers"][0]["holder"], killed["remaining_s"] > 0) == (False, None, True)
    assert standard.run("run", standard.standard_job).code == 0
    done = standard.run("status", standard.standard_job, "--watch", "1", hook=None).stdout
    assert "state       finished\nrows        150 of 150 (100.0%), 8 of 8 shards\nquarantined 2\n" in done


def test_why_it_stopped(standard: Workshop) -> None:
    """The last error in the log, until a later attempt says something else."""
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 0.3})
    running.wait_until(lambda: "scoring in" in running.stderr)
    running.send(signal.SIGTERM)
    assert running.end().code == 75
    stopped = standard.run("status", standard.output, hook=None).stdout
    assert "state       not running, not finished: the same command goes on" in stopped
    assert "warning: stopped by SIGTERM" in stopped
    hook = {"stand_in": True, "fail_above_tokens": 1}
    assert standard.run("run", standard.standard_job, "--task", "1/2", hook=hook).code == 8
    failed = standard.run("status", standard.output, hook=None).stdout
    assert "task-1-of-2 " in failed
    assert "error: out of memory with a single pair" in failed


def test_several_processes_at_work(standard: Workshop) -> None:
    """They share what is left: it takes a part of the time that one would need."""
    job = standard.job(engine={"device": "all", "workers": 2})
    running = standard.start("run", job, hook={"stand_in": True, "together": True, "delay_s": 0.2})
    running.wait_until(lambda: len(standard.shards()) >= 2)
    running.send(signal.SIGTERM)
    running.end()
    shared = json.loads(standard.run("status", standard.output, "--json", hook=None).stdout)
    (standard.state / "attempt").write_text("1\n")
    alone = json.loads(standard.run("status", standard.output, "--json", hook=None).stdout)
    assert alone["remaining_s"] == pytest.approx(2 * shared["remaining_s"])


@pytest.mark.slow
def test_tasks_at_work(standard: Workshop) -> None:
    """Each with its process."""
    hook = {"stand_in": True, "delay_s": 1.0}
    tasks = [standard.start("run", standard.standard_job, "--task", f"{n}/2", hook=hook) for n in (1, 2)]
    for one in tasks:
        one.wait_until(lambda one=one: "scoring in" in one.stderr)  # type: ignore[misc]
    status = json.loads(standard.run("status", standard.output, "--json", hook=None).stdout)
    assert [(worker["name"], "process " in worker["holder"]) for worker in status["workers"]] == [
        ("task-1-of-2", True),
        ("task-2-of-2", True),
    ]
    part = status["workers"][0]["progress"]
    assert (part["num_shards"], status["num_shards"]) == (4, 8)
    assert "task-1-of-2  " in standard.run("status", standard.output, hook=None).stdout
    for one in tasks:
        assert one.end().code == 0


def test_what_each_task_has_done(standard: Workshop) -> None:
    """A complete part is counted, one that stopped is shown with what it has done and why it stopped."""
    assert standard.run("run", standard.standard_job, "--task", "1/2").code == 0
    stopped = standard.start("run", standard.standard_job, "--task", "2/2", hook={"stand_in": True, "delay_s": 0.3})
    stopped.wait_until(lambda: len(standard.shards()) > 4)
    stopped.send(signal.SIGTERM)
    assert stopped.end().code == 75
    lines = standard.run("status", standard.standard_job, hook=None).stdout.splitlines()
    assert "tasks       1 of the 2 that were started are complete" in lines
    (part,) = [line for line in lines if line.startswith("task-2-of-2")]
    assert re.match(r"task-2-of-2  [1-3] of 4 shards, [2-6]0 rows, [0-9,]+ tokens/s; .*stopped by SIGTERM", part), part


def test_rows_of_a_shard_under_way_are_counted(standard: Workshop) -> None:
    """A shard may take hours on a slow machine, and what its journal keeps is work done."""
    settings = ("output.shard_rows=150", "engine.checkpoint_seconds=1", "engine.max_batch_tokens=64")
    options = [f"--set={setting}" for setting in settings]
    running = standard.start("run", standard.standard_job, *options, hook={"stand_in": True, "delay_s": 0.2})
    running.wait_until(lambda: any(path.stat().st_size > 200 for path in standard.output.glob("state/journal/*")))
    running.send(signal.SIGKILL)
    running.end()
    status = json.loads(standard.run("status", standard.output, "--json", hook=None).stdout)
    assert 0 < status["num_rows_journalled"] < 150 == status["num_rows"]
    assert status["num_rows_done"] == 0
    assert "more rows are scored and kept" in standard.run("status", standard.output, hook=None).stdout


def test_it_answers_at_once(done: Workshop) -> None:
    """A generous limit here; and a folder without a run is refused plainly."""
    started_s = time.monotonic()
    assert done.run("status", done.output, hook=None).code == 0
    assert time.monotonic() - started_s < 10
    shutil.rmtree(done.output)
    refused = done.run("status", done.output, hook=None)
    assert refused.code == 2
    assert "holds no run of batchzs" in refused.stderr
