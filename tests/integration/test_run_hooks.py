"""`--on-finish` and `--on-failure`: when they are called, what they get, and that the run's end stays as it is."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Finished, Workshop

SLOW = {"stand_in": True, "delay_s": 3}
KEEP = 'cat >> "$KEPT"'


def keep(workshop: Workshop) -> dict[str, str]:
    """The variable that tells a hook where to keep what it gets."""
    return {"KEPT": str(workshop.folder / "得到.jsonl")}


def kept(workshop: Workshop) -> list[dict[str, Any]]:
    """What hooks got, call by call."""
    path = workshop.folder / "得到.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def test_once_when_the_run_is_finished(standard: Workshop, finished: Finished) -> None:
    """It gets the summary, finds everything on disk and the output free, and is not called again."""
    extra = keep(standard) | {"PY": sys.executable, "OUT": str(standard.output), "JOB": str(standard.standard_job)}
    command = f'{KEEP} && test -e "$OUT/_SUCCESS" && "$PY" -m batchzs run "$JOB" > /dev/null && echo 好 && exit 3'
    result = standard.run("run", standard.standard_job, "--on-finish", command, "--on-failure", KEEP, extra=extra)
    assert result.code == 0, result.stderr
    assert kept(standard) == [standard.record("summary.json")]
    assert "--on-finish: 好\n" in result.stderr
    assert "warning: --on-finish: ended with code 3" in result.stderr
    log = (standard.state / "run.log").read_text(encoding="utf-8")
    assert "--on-finish: 好\n" in log
    assert "all 8 shards are complete: nothing to score" in log
    assert standard.is_like(finished)
    assert standard.run("run", standard.standard_job, "--on-finish", KEEP, extra=extra).code == 0
    assert len(kept(standard)) == 1


@pytest.mark.parametrize(
    ("arguments", "changes", "code", "message"),
    [
        (["--limit", "3", "--sample", "3"], {}, 2, "--limit and --sample exclude each other"),
        (["--date", "2026-13-01"], {}, 2, "is no day of the calendar"),
        ([], {"labels": []}, 2, "labels"),
        ([], {"input": {"path": "没有.csv"}}, 3, "没有.csv: there is no such file or directory"),
        ([], {"input": {"max_bad_share": 0.001}}, 5, "are quarantined, more than input.max_bad_share allows"),
    ],
    ids=["options", "date", "job", "input", "quarantine"],
)
def test_when_the_command_fails(
    standard: Workshop, arguments: list[str], changes: dict[str, Any], code: int, message: str
) -> None:
    """Each kind of failure, before the job is read too: its code and message, and how far the run is where it began."""
    job = standard.job(**changes)
    options = ["--on-failure", KEEP, "--on-finish", "exit 1", *arguments]
    result = standard.run("run", job, *options, extra=keep(standard))
    assert result.code == code, result.stderr
    (entry,) = kept(standard)
    assert entry["exit_code"] == code
    assert message in entry["message"]
    assert entry["message"].splitlines()[0] in result.stderr.splitlines()[-1]
    assert entry["job"] == str(job)
    assert entry["output"] == (str(standard.output) if code > 2 else None)
    assert entry["status"] is None if code == 2 else entry["status"]["num_rows_done"] == (150 if code == 5 else 0)
    assert "--on-finish" not in result.stderr


@pytest.mark.slow
def test_no_hook_at_a_stop_or_at_a_held_output(standard: Workshop) -> None:
    """75 is no failure, and 7 is the other run's business."""
    options = ["--on-failure", KEEP, "--on-finish", KEEP]
    running = standard.start("run", standard.standard_job, *options, hook=SLOW, extra=keep(standard))
    running.wait_until(lambda: bool(standard.shards()))
    held = standard.run("run", standard.standard_job, *options, extra=keep(standard))
    assert held.code == 7
    assert len(held.stderr.splitlines()) == 1
    running.send(signal.SIGTERM)
    assert running.end().code == 75
    assert kept(standard) == []


def test_the_last_task_calls_it(standard: Workshop) -> None:
    """Of several tasks the one that finishes the run calls the hook, with the whole run's numbers."""
    for task in ("2/2", "1/2", "1/2"):
        result = standard.run("run", standard.standard_job, "--task", task, "--on-finish", KEEP, extra=keep(standard))
        assert result.code == 0, result.stderr
        assert len(kept(standard)) == (0 if task == "2/2" else 1)
    assert kept(standard)[0]["num_rows"] == 150


def test_a_signal_while_a_hook_runs(standard: Workshop, finished: Finished) -> None:
    """The hook is ended, the run is finished all the same, and the code says so."""
    running = standard.start("run", standard.standard_job, "--on-finish", "echo began; sleep 600")
    running.wait_until(lambda: "--on-finish: began" in running.stderr)
    running.send(signal.SIGTERM)
    sent_s = time.monotonic()
    result = running.end()
    assert time.monotonic() - sent_s < 20
    assert result.code == 0, result.stderr
    assert "warning: --on-finish: stopped by SIGTERM" in result.stderr
    assert standard.is_like(finished)
