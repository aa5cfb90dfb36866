"""A real run against a time limit: over before it, by its own pace, and the same command goes on from there."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Finished, Workshop

ASKED = {"BATCHZS_REQUEUE": "1", "SLURM_JOB_ID": "18", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}


@pytest.fixture
def clients(standard: Workshop) -> Path:
    """Stand-ins for Slurm's clients: each writes down what it was told, and squeue gives a job 50 s."""
    folder = standard.folder / "bin"
    folder.mkdir()
    for name, answer in (("squeue", "echo 0:50"), ("scontrol", "true")):
        (folder / name).write_text(f'#!/bin/sh\necho "$@" >> "$0.said"\n{answer}\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def said(clients: Path, name: str) -> str:
    """What a stand-in was told."""
    path = clients / f"{name}.said"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def with_clients(clients: Path, **variables: str) -> dict[str, str]:
    """An environment in which they are found."""
    return {"PATH": f"{clients}{os.pathsep}{os.defpath}", **variables}


@pytest.mark.slow
def test_a_slurm_jobs_time_limit(standard: Workshop, finished: Finished, clients: Path) -> None:
    """Asked of squeue; the run is over in time, requeues its array task, and the next one scores only the rest."""
    scored = standard.folder / "scored"
    scored.touch()
    hook = {"stand_in": True, "count_batches": str(scored)}
    started_s = time.monotonic()
    result = standard.run(
        *("run", standard.standard_job, "--task", "1/1"),
        hook={**hook, "delay_s": 1.5},  # most of a minute for all
        extra=with_clients(clients, **ASKED),
    )
    assert time.monotonic() - started_s < 50
    assert result.code == 75, result.stderr
    assert "(the Slurm job's), in " in result.stderr
    assert "stopped before the time limit, 20" in result.stderr
    assert result.stderr.endswith("asking Slurm to requeue job 17_3\n")
    assert said(clients, "squeue") == "--noheader --states=all --jobs=17_3 --format=%L\n"
    assert said(clients, "scontrol") == "requeue 17_3\n"
    assert len(standard.published(finished)) > 0
    num_scored = len(scored.read_bytes().splitlines())
    assert num_scored > 0
    assert "asking Slurm to requeue job 17_3" in standard.run("status", standard.output).stdout
    assert standard.run("run", standard.standard_job, hook=hook).code == 0
    assert standard.is_like(finished)
    num_both = len(scored.read_bytes().splitlines())
    scored.unlink()
    undisturbed = standard.run("run", standard.standard_job, "--restart", hook=hook)
    assert undisturbed.code == 0, undisturbed.stderr
    assert num_both == len(scored.read_bytes().splitlines())  # nothing was scored twice


def test_time_enough_changes_nothing(standard: Workshop, finished: Finished) -> None:
    """A run that is done before its deadline ends as any other."""
    result = standard.run("run", standard.standard_job, "--deadline", "1h")
    assert result.code == 0, result.stderr
    assert "(--deadline), in 1 h 00 min: stopping before it if need be" in result.stderr
    assert standard.is_like(finished)


@pytest.mark.slow
def test_an_attempt_that_gets_nowhere_is_not_requeued(standard: Workshop, finished: Finished, clients: Path) -> None:
    """With time for no batch the first attempt settles the run, which is something; the second one does nothing."""
    command = ("run", standard.standard_job, "--deadline", "18s")
    first = standard.run(*command, extra=with_clients(clients, **ASKED))
    assert first.code == 75, first.stderr
    assert said(clients, "scontrol") == "requeue 17_3\n"
    second = standard.run(*command, extra=with_clients(clients, **ASKED))
    assert second.code == 75, second.stderr
    assert "not requeued: this attempt got nowhere, and so would the next one: give the job more time" in second.stderr
    assert said(clients, "scontrol") == "requeue 17_3\n"
    assert standard.shards() == {}
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)


@pytest.mark.parametrize(
    ("number", "options", "is_asked", "message"),
    [
        (signal.SIGUSR1, (), True, "asking Slurm to requeue job 17_3\n"),
        (signal.SIGTERM, (), False, "stopped by SIGTERM: run the same command again to go on\n"),
        (signal.SIGINT, (), False, "stopped by SIGINT: run the same command again to go on\n"),
        (signal.SIGUSR1, ("--restart",), False, "because of --restart: submit it without\n"),
    ],
)
def test_which_signals_requeue(
    standard: Workshop, clients: Path, number: signal.Signals, options: tuple[str, ...], *, is_asked: bool, message: str
) -> None:
    """SIGUSR1 comes before a limit; a cancelled job stays cancelled, and one that would begin anew is not repeated."""
    running = standard.start(
        "run",
        standard.standard_job,
        *options,
        hook={"stand_in": True, "delay_s": 0.2},
        extra=with_clients(clients, **ASKED, SLURM_JOB_END_TIME=str(int(time.time()) + 3600)),
    )
    running.wait_until(lambda: len(standard.shards()) > 0)
    running.send(number)
    result = running.end()
    assert result.code == 75, result.stderr
    assert result.stderr.endswith(message)
    assert said(clients, "scontrol") == ("requeue 17_3\n" if is_asked else "")
    assert said(clients, "squeue") == ""  # the environment says when time is up


def test_scontrol_ends_the_process(standard: Workshop, finished: Finished, clients: Path) -> None:
    """Slurm kills a job that it requeues: by then everything is durable, and all that was to be said is in the log."""
    killer = f"#!{sys.executable}\nimport os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"
    (clients / "scontrol").write_text(killer, encoding="utf-8")
    running = standard.start(
        *("run", standard.standard_job),
        hook={"stand_in": True, "delay_s": 0.2},
        extra=with_clients(clients, **ASKED, SLURM_JOB_END_TIME=str(int(time.time()) + 3600)),
    )
    running.wait_until(lambda: len(standard.shards()) > 0)
    running.send(signal.SIGUSR1)
    assert running.end().code == -signal.SIGKILL
    log = (standard.state / "run.log").read_text(encoding="utf-8")
    assert "stopped by SIGUSR1" in log
    assert log.endswith("asking Slurm to requeue job 17_3\n")
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)


@pytest.mark.parametrize("value", ["2020-01-01T06:00", "7h30", ""])
def test_a_deadline_that_is_none(standard: Workshop, value: str) -> None:
    """One that is over, or that nobody can read: code 2 and nothing is begun."""
    result = standard.run("run", standard.standard_job, "--deadline", value)
    assert result.code == 2, result.stderr
    assert "--deadline: " in result.stderr
    assert not standard.output.exists()
