"""The commands that work on a job: `run` and `fetch`, and what every such command shares.

Commands read their arguments, call the library, and show what it returns, through `printing` and nowhere else. Heavy
libraries are imported inside commands, so that `batchzs --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from batchzs.cli_hooks import RunReport, hook_options
from batchzs.errors import InterruptedRunError, UsageError
from batchzs.logs import log_to_stream
from batchzs.printing import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchzs.dates import Day
    from batchzs.job import JobConfig
    from batchzs.progress import Progress


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that every command on a job takes."""
    for decorator in (
        click.argument("job", type=click.Path(path_type=Path)),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Put a value over the job file's, such as --set engine.device=cpu; may be repeated.",
        ),
        click.option(
            "--date",
            metavar="DAY",
            help="The day for {date} in the job's paths: today (if absent), yesterday, or such as 2026-11-29.",
        ),
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
    from batchzs.slurm_day import slurm_job

    asked = None if date is None else parse_date(date)
    return load_dated_job(job, overrides, DateRequest(asked, slurm_job(os.environ)))


@click.command(
    epilog="""\b
Example:
  batchzs run jobs/news.yaml
  batchzs run jobs/news.yaml --limit 1000 --set output.path=out/first
"""
)
@job_options
@click.option("--limit", type=click.IntRange(min=1), help="Score the first N rows.", metavar="N")
@click.option("--sample", type=click.IntRange(min=1), help="Score N rows drawn at random.", metavar="N")
@click.option("--seed", type=int, help="The seed of --sample, 0 if absent.")
@click.option("--task", metavar="I/N", help="Do part I of N of the shards, I from 1 to N, beside other such tasks.")
@click.option("--restart", is_flag=True, help="Begin anew: remove what batchzs wrote into the output before.")
@hook_options
def run(  # noqa: PLR0913 - one parameter an option
    *,
    report: RunReport,
    job: Path,
    overrides: tuple[str, ...],
    date: str | None,
    offline: bool,
    log_format: Literal["plain", "json"],
    limit: int | None,
    sample: int | None,
    seed: int | None,
    task: str | None,
    restart: bool,
) -> None:
    """Score a job's texts, or what is missing of them.

    The same command again, after whatever interruption, goes on where the last one stopped.
    """
    if limit is not None and sample is not None:
        raise UsageError("--limit and --sample exclude each other: the first rows, or random ones")
    if seed is not None and sample is None:
        raise UsageError("--seed goes with --sample: how many rows are to be drawn?")
    if task is not None and restart:
        raise UsageError("--restart begins the whole run anew and --task does a part of one: restart without --task")
    config, day = begin_dated(job, overrides, log_format, date)
    from batchzs.paths import RunPaths
    from batchzs.plan import Selection
    from batchzs.prepare import RunContext, RunOptions, recorded_tasks
    from batchzs.run import refuse_too_many_bad_rows, run_job
    from batchzs.stopping import StopFlag
    from batchzs.summary import format_summary
    from batchzs.tasks import parse_task, slurm_task
    from batchzs.test_hook import TestHook

    paths = report.paths = RunPaths(config.output.path)
    part = slurm_task(os.environ, recorded_tasks(paths)) if task is None else parse_task(task)
    if part is not None and restart:
        raise UsageError("--restart begins the whole run anew and a task does a part of one: restart outside the array")
    options = RunOptions(Selection(limit, sample, seed or 0), restart=restart, offline=offline, task=part, day=day)
    hook = TestHook.from_environment(os.environ)
    stop = StopFlag()
    context = RunContext(config, paths, options, hook, stop, _progress(log_format))
    with stop.listening():
        try:
            outcome = report.outcome = run_job(context)
        except InterruptedRunError as error:
            # With --restart the same command would begin anew once more, and tomorrow it would mean another day.
            changes = [
                *([", without --restart"] if restart else []),
                *([f", with --date {day.value.isoformat()}"] if day is not None and not day.is_fixed else []),
            ]
            raise InterruptedRunError(f"{error}{''.join(changes)}") from error
    show(format_summary(outcome.summary, outcome.wall_s))
    if outcome.num_elsewhere:
        show(f"{'part':<12}{part} is complete; shards of other parts not there yet: {outcome.num_elsewhere:,}")
        return  # what share is quarantined is judged over everything
    refuse_too_many_bad_rows(outcome.summary)


@click.command(
    epilog="""\b
Example:
  batchzs fetch jobs/news-structbert.yaml
"""
)
@job_options
def fetch(
    *, job: Path, overrides: tuple[str, ...], date: str | None, offline: bool, log_format: Literal["plain", "json"]
) -> None:
    """Fetch a job's model, for machines without a network, and print where it lies."""
    config = begin(job, overrides, log_format, date)
    from batchzs.models.opening import open_model

    opened = open_model(config, known=None, offline=offline)
    show(str(opened.checkpoint.directory))


def _progress(log_format: Literal["plain", "json"]) -> Progress:
    from batchzs.progress import LineProgress, TerminalProgress

    stream = sys.stderr
    if log_format == "plain" and stream is not None and stream.isatty():
        return TerminalProgress(stream)
    return LineProgress()
