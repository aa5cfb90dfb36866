"""How far a run is, asked from outside: at any moment, from its state alone."""

from __future__ import annotations

import json
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Workshop


def test_a_run_that_goes_on_that_died_and_that_is_done(standard: Workshop) -> None:
    """Running with its process, then not running, then finished; by the job and by the output, and in JSON."""
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 0.2})
    running.wait_until(lambda: len(standard.shards()) >= 2)
    status = standard.run("status", standard.standard_job, hook=None, extra={"GUARD_FORBIDS": "torch polars pyarrow"})
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


def test_tasks_at_work(standard: Workshop) -> None:
    """Each with its process."""
    hook = {"stand_in": True, "delay_s": 0.3}
    tasks = [standard.start("run", standard.standard_job, "--task", f"{n}/2", hook=hook) for n in (1, 2)]
    for one in tasks:
        one.wait_until(lambda one=one: "scoring in" in one.stderr)  # type: ignore[misc]
    status = json.loads(standard.run("status", standard.output, "--json", hook=None).stdout)
    assert [(worker["name"], "process " in worker["holder"]) for worker in status["workers"]] == [
        ("task-1-of-2", True),
        ("task-2-of-2", True),
    ]
    for one in tasks:
        assert one.end().code == 0


def test_it_answers_at_once(done: Workshop) -> None:
    """A generous limit here; and a folder without a run is refused plainly."""
    started_s = time.monotonic()
    assert done.run("status", done.output, hook=None).code == 0
    assert time.monotonic() - started_s < 10
    shutil.rmtree(done.output)
    refused = done.run("status", done.output, hook=None)
    assert refused.code == 2
    assert "holds no run of batchzs" in refused.stderr
