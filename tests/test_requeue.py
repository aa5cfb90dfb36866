"""Whether a job is run again: where that is asked for, and where it leads somewhere."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from batchzs.paths import RunPaths
from batchzs.slurm.requeue import durable_progress, obstacle_of, requeue
from batchzs.tasks import Task
from tests.builders import odd_folder

if TYPE_CHECKING:
    from pathlib import Path

ASKED = {"BATCHZS_REQUEUE": "1", "SLURM_JOB_ID": "17"}


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a stand-in for scontrol was told."""
    folder = odd_folder(tmp_path)
    scontrol = folder / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> "{folder}/said"\n', encoding="utf-8")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.defpath}")
    return folder / "said"


def test_slurm_is_asked_and_that_is_said(said: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Before the question, because Slurm ends the process at once."""
    with caplog.at_level("INFO", logger="batchzs"):
        requeue(ASKED, None)
    assert said.read_text() == "requeue 17\n"
    assert [record.getMessage() for record in caplog.records] == ["asking Slurm to requeue job 17"]


@pytest.mark.parametrize("value", [None, "", "0", "yes"])
def test_nothing_happens_unless_it_is_asked_for(
    said: Path, caplog: pytest.LogCaptureFixture, value: str | None
) -> None:
    """By the variable's one value; nobody is told anything."""
    with caplog.at_level("INFO", logger="batchzs"):
        requeue({"SLURM_JOB_ID": "17"} | ({} if value is None else {"BATCHZS_REQUEUE": value}), None)
    assert not said.exists()
    assert caplog.records == []


def test_an_obstacle_is_said_and_slurm_is_not_asked(said: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A job that got nowhere would be requeued for ever."""
    requeue(ASKED, "this attempt got nowhere")
    requeue({"BATCHZS_REQUEUE": "1"}, None)
    assert not said.exists()
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "not requeued: this attempt got nowhere"),
        (logging.WARNING, "not requeued: BATCHZS_REQUEUE is set, and this is no Slurm job"),
    ]


def test_a_refusal_is_a_warning(said: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The run has ended in order all the same."""
    (said.parent / "scontrol").write_text("#!/bin/sh\necho Invalid job id specified >&2\nexit 1\n", encoding="utf-8")
    requeue(ASKED, None)
    assert caplog.records[-1].getMessage() == (
        "not requeued: scontrol ended with 1: Invalid job id specified; submit the same job again to go on"
    )


def test_progress_is_what_the_next_attempt_goes_on_from(tmp_path: Path) -> None:
    """The run's record, a journal that grew, a shard: each is progress; another task's, and logs, are none."""
    paths = RunPaths(odd_folder(tmp_path) / "out")
    assert durable_progress(paths, None) == frozenset()
    for folder in paths.folders:
        folder.mkdir(parents=True, exist_ok=True)
    own = Task(2, 2)  # shards 1, 3, 5
    seen = [durable_progress(paths, own)]
    for path, content in (
        (paths.run_record, b"{}"),
        (paths.journal(1), b"12"),
        (paths.journal(1), b"1234"),
        (paths.shard(1), b"PAR1"),
    ):
        path.write_bytes(content)
        seen.append(durable_progress(paths, own))
    assert len(set(seen)) == len(seen)
    paths.journal(0).write_bytes(b"another task's")
    paths.shard(2).write_bytes(b"PAR1")
    paths.log.write_bytes(b"a line")
    (paths.journals / "part-x.journal").write_bytes(b"nobody's")
    assert durable_progress(paths, own) == seen[-1]
    assert durable_progress(paths, None) != seen[-1]


def test_what_leads_nowhere_is_said() -> None:
    """Nothing kept, or a command that begins anew each time."""
    assert obstacle_of({1}, {1, 2}, restart=False) is None
    assert obstacle_of({1}, {1}, restart=False) == (
        "this attempt got nowhere, and so would the next one: give the job more time"
    )
    assert "--restart" in (obstacle_of({1}, {1, 2}, restart=True) or "")
