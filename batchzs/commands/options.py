"""What commands on a job share: their options, and how they begin."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from batchzs.errors import BatchzsError, UsageError
from batchzs.logs import log_to_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchzs.dates import Day
    from batchzs.job import JobConfig
    from batchzs.plan import Selection

date_option = click.option(
    "--date",
    metavar="DAY",
    help="The day for {date} in the job's paths: today (if absent), yesterday, or such as 2026-11-29.",
)
new_files_option = click.option(
    "--new-files", is_flag=True, help="Score files too that the input had not when this output was begun."
)


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that every command on a job takes, and the lines of its keys to errors."""
    command = _with_places(command)
    for decorator in (
        click.argument("job", type=click.Path(path_type=Path)),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Put a value over the job file's, such as --set engine.device=cpu; may be repeated.",
        ),
        date_option,
        click.option("--offline", is_flag=True, help="Make no connection, even for a hub model that is not on disk."),
        click.option(
            "--log-format",
            type=click.Choice(["plain", "json"]),
            default="plain",
            show_default=True,
            help="How messages on standard error are written.",
        ),
    ):
        command = decorator(command)
    return command


def _with_places(command: Callable[..., None]) -> Callable[..., None]:
    """Have errors that name a key of the job say where it is written."""

    @functools.wraps(command)
    def with_places(*, job: Path, overrides: tuple[str, ...], **given: Any) -> None:
        try:
            command(job=job, overrides=overrides, **given)
        except BatchzsError as error:
            if error.key is None:
                raise
            from batchzs.job_places import placed

            raise type(error)(placed(str(error), error.key, job, overrides)) from error

    return with_places


def selection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which rows are scored."""
    for decorator in (
        click.option("--seed", type=int, help="The seed of --sample, 0 if absent."),
        click.option("--sample", type=click.IntRange(min=1), help="Score N rows drawn at random.", metavar="N"),
        click.option("--limit", type=click.IntRange(min=1), help="Score the first N rows.", metavar="N"),
    ):
        command = decorator(command)
    return command


def selection_of(limit: int | None, sample: int | None, seed: int | None, *, new_files: bool = False) -> Selection:
    """Which rows these options ask for.

    Raises:
        UsageError: they contradict each other.
    """
    if limit is not None and sample is not None:
        raise UsageError("--limit and --sample exclude each other: the first rows, or random ones")
    if seed is not None and sample is None:
        raise UsageError("--seed goes with --sample: how many rows are to be drawn?")
    if new_files and (limit is not None or sample is not None):
        raise UsageError("--new-files scores every row of the new files: leave --limit and --sample out")
    from batchzs.plan import Selection

    return Selection(limit, sample, seed or 0)


def begin(
    job: Path, overrides: tuple[str, ...], log_format: Literal["plain", "json"], date: str | None = None
) -> JobConfig:
    """Have messages go to standard error, refuse old libraries, and read the job.

    Raises:
        UsageError: the job is wrong.
        MachineError: a library is too old.
    """
    return begin_dated(job, overrides, log_format, date)[0]


def begin_dated(
    job: Path, overrides: tuple[str, ...], log_format: Literal["plain", "json"], date: str | None
) -> tuple[JobConfig, Day | None]:
    """Do as `begin`, and say which day is in the job's paths; None where there is none.

    Raises:
        UsageError: the job is wrong.
        MachineError: a library is too old.
    """
    log_to_stream(sys.stderr, log_format)
    from batchzs.libraries import refuse_old_libraries

    refuse_old_libraries()
    from batchzs.dates import parse_date
    from batchzs.job import load_dated_job
    from batchzs.job_dates import DateRequest
    from batchzs.slurm.day import slurm_origin

    asked = None if date is None else parse_date(date)
    return load_dated_job(job, overrides, DateRequest(asked, slurm_origin(os.environ)))
