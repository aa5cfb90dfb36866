"""The commands that work on a job: `run` and `fetch`.

Commands read their arguments, call the library, and show what it returns, through `printing` and nowhere else. Heavy
libraries are imported inside commands, so that `batchzs --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

import click

from batchzs.commands.hooks import RunReport, hook_options
from batchzs.commands.options import begin, begin_dated, job_options, new_files_option, selection_of, selection_options
from batchzs.errors import InterruptedRunError, TimeLimitError, UsageError
from batchzs.printing import show, show_lines

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.progress import Progress


@click.command(
    epilog="""\b
Example:
  batchzs run jobs/news.yaml
  batchzs run jobs/news.yaml --limit 1000 --set output.path=out/first
"""
)
@job_options
@selection_options
@click.option("--task", metavar="I/N", help="Do part I of N of the shards, I from 1 to N, beside other such tasks.")
@click.option(
    "--deadline",
    metavar="TIME",
    help="Stop in order before then: 7h30m or 90m from now, 06:00, or 2026-12-01T06:00. A Slurm job's limit is known.",
)
@new_files_option
@click.option("--restart", is_flag=True, help="Begin anew: remove what batchzs wrote into the output before.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
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
    deadline: str | None,
    new_files: bool,
    restart: bool,
    as_json: bool,
) -> None:
    """Score a job's texts, or what is missing of them.

    The same command again, after whatever interruption, goes on where the last one stopped.
    """
    selection = selection_of(limit, sample, seed, new_files=new_files)
    if task is not None and restart:
        raise UsageError("--restart begins the whole run anew and --task does a part of one: restart without --task")
    config, day = begin_dated(job, overrides, log_format, date)
    from batchzs.deadline import find_deadline
    from batchzs.ending import ending_to_json, format_ending
    from batchzs.escape import json_line
    from batchzs.paths import RunPaths
    from batchzs.prepare import RunContext, RunOptions, recorded_tasks
    from batchzs.run import refuse_too_many_bad_rows, run_job
    from batchzs.slurm.requeue import durable_progress, obstacle_of
    from batchzs.stopping import StopFlag
    from batchzs.tasks import parse_task, slurm_task
    from batchzs.test_hook import TestHook

    paths = report.paths = RunPaths(config.output.path)
    part = slurm_task(os.environ, recorded_tasks(paths)) if task is None else parse_task(task)
    if part is not None and restart:
        raise UsageError("--restart begins the whole run anew and a task does a part of one: restart outside the array")
    options = RunOptions(selection, restart=restart, offline=offline, new_files=new_files, task=part, day=day)
    hook = TestHook.from_environment(os.environ)
    stop = StopFlag(find_deadline(deadline, os.environ))
    before = durable_progress(paths, part)
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
            message = f"{error}{''.join(changes)}"
            if isinstance(error, TimeLimitError):
                obstacle = obstacle_of(before, durable_progress(paths, part), restart=restart)
                raise TimeLimitError(message, obstacle) from error
            raise InterruptedRunError(message) from error
    show_lines([json_line(ending_to_json(outcome, part))] if as_json else format_ending(outcome, part))
    if not outcome.num_elsewhere:  # what share is quarantined is judged over everything
        refuse_too_many_bad_rows(outcome.summary)


@click.command(
    epilog="""\b
Example:
  batchzs fetch jobs/news-structbert.yaml
"""
)
@job_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the files and their digests.")
def fetch(  # noqa: PLR0913 - one parameter an option
    *,
    job: Path,
    overrides: tuple[str, ...],
    date: str | None,
    offline: bool,
    log_format: Literal["plain", "json"],
    as_json: bool,
) -> None:
    """Fetch a job's model, for machines without a network, and print where it lies."""
    config = begin(job, overrides, log_format, date)
    from batchzs.escape import json_line
    from batchzs.models.opening import open_model, opened_to_json

    opened = open_model(config, known=None, offline=offline)
    show(json_line(opened_to_json(opened)) if as_json else str(opened.checkpoint.directory))


def _progress(log_format: Literal["plain", "json"]) -> Progress:
    from batchzs.progress import LineProgress, TerminalProgress

    stream = sys.stderr
    if log_format == "plain" and stream is not None and stream.isatty():
        return TerminalProgress(stream)
    return LineProgress()
