"""When a run's hooks are called: `--on-finish` once it is finished, `--on-failure` where the command fails.

Both are called after the command has let go of the output, so that a hook may itself run batchzs on it.
"""

from __future__ import annotations

import functools
import logging
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from batchzs.errors import BatchzsError, InterruptedRunError, LockedError, UsageError
from batchzs.logs import log_to_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchzs.paths import RunPaths
    from batchzs.run import Outcome


@dataclass(slots=True)
class RunReport:
    """What a command knows of its run by the time it ends."""

    paths: RunPaths | None = None
    outcome: Outcome | None = None


def hook_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--on-finish` and `--on-failure` to a command; it gets a `report` to fill in."""

    @functools.wraps(command)
    def with_hooks(*, on_finish: str | None, on_failure: str | None, **given: Any) -> None:
        report = RunReport()
        try:
            command(report=report, **given)
        except Exception as error:
            if on_failure is not None:
                _call_on_failure(on_failure, error, report, given)
            raise
        if on_finish is not None and report.outcome is not None and report.outcome.has_finished:
            from batchzs.escape import json_line
            from batchzs.hooks import Hook, call_hook

            call_hook(Hook("--on-finish", on_finish), json_line(report.outcome.summary.model_dump(mode="json")))

    for decorator in (
        click.option(
            "--on-failure", metavar="CMD", help="A shell command for when this one fails; gets JSON that says why."
        ),
        click.option(
            "--on-finish", metavar="CMD", help="A shell command for when the run is finished; gets the summary as JSON."
        ),
    ):
        with_hooks = decorator(with_hooks)
    return with_hooks


def _call_on_failure(command: str, error: Exception, report: RunReport, given: dict[str, Any]) -> None:
    """Tell why the command fails; a stop on request is no failure, nor is an output that another run is at work on."""
    if isinstance(error, InterruptedRunError | LockedError | click.Abort):
        return
    if isinstance(error, click.ClickException):
        code, message = UsageError.exit_code, error.format_message()
    else:
        code = error.exit_code if isinstance(error, BatchzsError) else BatchzsError.exit_code
        message = str(error) or type(error).__name__
    if not logging.getLogger("batchzs").handlers:  # it failed before messages had anywhere to go
        log_to_stream(sys.stderr, given["log_format"])
    from batchzs.escape import json_line
    from batchzs.hooks import Hook, call_hook

    entry = {
        "exit_code": code,
        "message": message,
        "job": str(given["job"]),
        "output": None if report.paths is None else str(report.paths.output),
        "status": None if report.paths is None else _status(report.paths),
    }
    call_hook(Hook("--on-failure", command), json_line(entry))


def _status(paths: RunPaths) -> dict[str, Any] | None:
    """What `batchzs status --json` says; None where the run has not begun."""
    from batchzs.status import read_status

    with suppress(BatchzsError, OSError):
        return asdict(read_status(paths))
    return None
