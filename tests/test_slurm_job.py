"""What is asked of Slurm, by stand-ins for its clients: the answer, or none, and never a delay."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from batchzs.slurm import job as slurm_job
from batchzs.slurm.job import SlurmJob, parse_time_left
from tests.builders import odd_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH before the others."""
    folder = odd_folder(tmp_path)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.defpath}")
    return folder


def write_client(folder: Path, name: str, script: str) -> None:
    """Put a client of Slurm's there, as a script for sh."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("environ", "job_id"),
    [
        ({"SLURM_JOB_ID": "18"}, "18"),
        ({"SLURM_JOB_ID": "18", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "0"}, "17_0"),
        ({"SLURM_JOB_ID": "18", "SLURM_ARRAY_JOB_ID": "17"}, "18"),
        ({"SLURM_JOB_ID": "18; rm"}, None),
        ({"SLURM_JOB_ID": ""}, None),
        ({}, None),
    ],
)
def test_an_array_task_is_named_as_one(environ: dict[str, str], job_id: str | None) -> None:
    """The first task's own number is the array's: requeueing that would run all of them again."""
    job = SlurmJob.from_environment(environ)
    assert (None if job is None else job.job_id) == job_id


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:07", 7),
        ("59:30", 3570),
        ("1:00:00", 3600),
        ("  2-03:04:05 ", 183845),
        *[(word, None) for word in ("UNLIMITED", "NOT_SET", "INVALID", "N/A", "", "-0:05", "1-2", "7")],
    ],
)
def test_time_left_as_squeue_writes_it(text: str, seconds: float | None) -> None:
    """What is no time is no limit."""
    assert parse_time_left(text) == seconds


def test_squeue_is_asked_for_this_job(clients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, in a form that no user's own view changes; of several lines the least counts."""
    monkeypatch.setenv("SQUEUE_STATES", "PD")
    said = clients / "said"
    write_client(clients, "squeue", f'echo "$SQUEUE_STATES $@" >> "{said}"; echo UNLIMITED; echo 2:00; echo 1:30')
    assert SlurmJob("17_3").time_left_s() == 90
    assert said.read_text() == " --noheader --states=all --jobs=17_3 --format=%L\n"


def test_the_environment_saves_the_question(clients: Path) -> None:
    """Newer versions of Slurm say the end in the job's environment."""
    write_client(clients, "squeue", "exit 1")
    left_s = SlurmJob("17", time.time() + 100).time_left_s()
    assert left_s is not None
    assert 90 < left_s <= 100


@pytest.mark.parametrize("script", ["echo Unable to contact slurm controller >&2; exit 1", "sleep 30", "exit 0"])
def test_no_answer_is_no_limit(clients: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A controller that is down, a client that hangs with children of its own, silence: the run begins soon."""
    monkeypatch.setattr(slurm_job, "TIME_LEFT_TIMEOUT_S", 0.5)
    write_client(clients, "squeue", script)
    started_s = time.monotonic()
    assert SlurmJob("17").time_left_s() is None
    assert time.monotonic() - started_s < 10


def test_no_client_and_one_that_cannot_be_run(clients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container there is none, or one for another system."""
    (clients / "squeue").write_bytes(b"\x7fELF no program")
    (clients / "squeue").chmod(0o755)
    assert SlurmJob("17").time_left_s() is None
    monkeypatch.setenv("PATH", str(clients / "empty"))
    assert SlurmJob("17").time_left_s() is None
    assert SlurmJob("17").requeue() == "there is no scontrol here"


def test_requeue_names_the_job_and_says_what_is_in_the_way(clients: Path) -> None:
    """Slurm's own words, in one line."""
    said = clients / "said"
    write_client(clients, "scontrol", f'echo "$@" >> "{said}"')
    assert SlurmJob("17_3").requeue() is None
    assert said.read_text() == "requeue 17_3\n"
    write_client(clients, "scontrol", "echo; echo 'Requested operation is presently disabled' >&2; exit 1")
    assert SlurmJob("17_3").requeue() == "scontrol ended with 1: Requested operation is presently disabled"
