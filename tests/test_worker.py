"""A worker process by itself: it ends with the run, and is quiet about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from batchzs.errors import DeviceError
from batchzs.workers.messages import decode_report
from batchzs.workers.worker import ReportedProgress, Reports, failure_of

START = [sys.executable, "-c", "from batchzs.workers.worker import main; main()"]


def test_it_ends_when_the_run_is_gone() -> None:
    """The orders end: whoever gave them is no more."""
    done = subprocess.run(START, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (75, b"", b"")


def test_an_order_that_is_none_is_told_of() -> None:
    """And the worker ends, by code 1: versions of batchzs were mixed."""
    done = subprocess.run(START, input=b"{}\n", capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (1, b"")
    report = json.loads(done.stdout)
    assert (report["kind"], report["error"]) == ("failed", "BatchzsError")
    assert "do not understand each other" in report["text"]


def test_progress_is_reported_now_and_then() -> None:
    """A fast model's hundreds of batches a second make a few reports, and nothing is lost."""
    reading, writing = os.pipe()
    now_s = 0.0
    progress = ReportedProgress(Reports(writing), lambda: now_s)
    for number in range(11):
        now_s = number * 0.09
        progress.advance(0.5, 3)
    progress.report()
    progress.report()
    reports = [decode_report(line) for line in os.read(reading, 2**16).splitlines()]
    os.close(reading)
    os.close(writing)
    assert [report.kind for report in reports] == ["advanced"] * 4
    assert sum(getattr(report, "rows", 0) for report in reports) == 5.5
    assert sum(getattr(report, "tokens", 0) for report in reports) == 33


def test_failures_are_told_with_what_helps() -> None:
    """Errors of ours by their kind, even with names that are no UTF-8; others with where they came from."""
    known = failure_of(DeviceError("\udcff.csv: no memory"))
    assert (known.error, known.text) == ("DeviceError", "\\udcff.csv: no memory")
    unknown = failure_of(ValueError("3"))
    assert (unknown.error, unknown.text.splitlines()[-1]) == (None, "ValueError: 3")
