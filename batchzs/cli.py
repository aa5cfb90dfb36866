"""The `batchzs` command: the one place that turns errors into exit codes, and the commands that work on a job.

Commands read their arguments, call the library, and show what it returns, through `printing` and nowhere else. Those
that look at an output are in `cli_outputs`. Heavy libraries are imported inside commands, so that `batchzs --help`
answers at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from batchzs import __version__
from batchzs.cli_outputs import bad, status, verify
from batchzs.errors import BatchzsError, InterruptedRunError, OtherJobError, UsageError
from batchzs.logs import SEVERAL_LINES, flush_standard_streams, log_to_stream, open_standard_streams
from batchzs.printing import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchzs.job import JobConfig
    from batchzs.progress import Progress

EXIT_CODES = """\b
Exit codes:
  0   everything asked for is done
  1   a fault of batchzs: please report it, with the log
  2   the command line or the job file is wrong
  3   the input is missing, unreadable, or changed
  4   the model is missing, incomplete, or not what the job says
  5   done, but more rows were quarantined than allowed
  6   this output was begun by another job
  7   another run holds this output
  8   the machine is in the way: disk, permissions, device, memory
  9   `verify` found a difference, or these results are damaged
  75  stopped on request: the same command goes on
"""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, prog_name="batchzs")
def batchzs() -> None:
    """Label millions of texts with a zero-shot classifier, in jobs that may be killed at any time."""


batchzs.add_command(status)
batchzs.add_command(verify)
batchzs.add_command(bad)


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


@batchzs.command(
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
def run(  # noqa: PLR0913 - one parameter an option
    *,
    job: Path,
    overrides: tuple[str, ...],
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
    config = _begin(job, overrides, log_format)
    from batchzs.paths import RunPaths
    from batchzs.plan import Selection
    from batchzs.prepare import RunContext, RunOptions, recorded_tasks
    from batchzs.run import refuse_too_many_bad_rows, run_job
    from batchzs.stopping import StopFlag
    from batchzs.summary import format_summary
    from batchzs.tasks import parse_task, slurm_task
    from batchzs.test_hook import TestHook

    paths = RunPaths(config.output.path)
    part = slurm_task(os.environ, recorded_tasks(paths)) if task is None else parse_task(task)
    if part is not None and restart:
        raise UsageError("--restart begins the whole run anew and a task does a part of one: restart outside the array")
    options = RunOptions(Selection(limit, sample, seed or 0), restart=restart, offline=offline, task=part)
    hook = TestHook.from_environment(os.environ)
    stop = StopFlag()
    context = RunContext(config, paths, options, hook, stop, _progress(log_format))
    with stop.listening():
        try:
            outcome = run_job(context)
        except InterruptedRunError as error:
            # With --restart the same command would begin anew once more.
            raise InterruptedRunError(f"{error}{', without --restart' if restart else ''}") from error
    show(format_summary(outcome.summary, outcome.wall_s))
    if outcome.num_elsewhere:
        show(f"{'part':<12}{part} is complete; shards of other parts not there yet: {outcome.num_elsewhere:,}")
        return  # what share is quarantined is judged over everything
    refuse_too_many_bad_rows(outcome.summary)


@batchzs.command(
    epilog="""\b
Example:
  batchzs fetch jobs/news-structbert.yaml
"""
)
@job_options
def fetch(*, job: Path, overrides: tuple[str, ...], offline: bool, log_format: Literal["plain", "json"]) -> None:
    """Fetch a job's model, for machines without a network, and print where it lies."""
    config = _begin(job, overrides, log_format)
    from batchzs.models.opening import open_model

    opened = open_model(config, known=None, offline=offline)
    show(str(opened.checkpoint.directory))


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    open_standard_streams()
    _insist_on_utf8()
    code = _exit_code()
    flush_standard_streams()
    sys.exit(code)


def _insist_on_utf8() -> None:
    """Start this process again in Python's UTF-8 mode where the locale would have it name files in another encoding.

    Cron jobs run in the C locale, and with UTF-8 mode switched off by the environment not even a file with a Chinese
    name can be opened there. The mode is fixed when Python starts; the process keeps its id.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        arguments = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execv(sys.executable, [os.fsencode(argument) for argument in arguments])  # noqa: S606 - this very program


def _exit_code() -> int:
    try:
        batchzs.main(standalone_mode=False)
    except BatchzsError as error:
        level = logging.WARNING if isinstance(error, InterruptedRunError) else logging.ERROR
        # These two list what is wrong, a line each, and hold nothing that comes from the input.
        _complain(str(error), level, has_lines=isinstance(error, UsageError | OtherJobError))
        return error.exit_code
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        return UsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted", logging.WARNING)
        return InterruptedRunError.exit_code
    except Exception:
        logging.getLogger("batchzs").exception("unexpected error")
        _complain("this is a fault of batchzs: please report it, with the lines above or with state/run.log")
        return BatchzsError.exit_code
    return 0


def _complain(message: str, level: int = logging.ERROR, *, has_lines: bool = False) -> None:
    """Put a message on standard error and into the run's log, wherever messages go by now."""
    logger = logging.getLogger("batchzs")
    if not logger.handlers:
        log_to_stream(sys.stderr, "plain")
    logger.log(level, message, extra=SEVERAL_LINES if has_lines else None)


def _begin(job: Path, overrides: tuple[str, ...], log_format: Literal["plain", "json"]) -> JobConfig:
    log_to_stream(sys.stderr, log_format)
    from batchzs.libraries import refuse_old_libraries

    refuse_old_libraries()
    from batchzs.job import load_job

    return load_job(job, overrides)


def _progress(log_format: Literal["plain", "json"]) -> Progress:
    from batchzs.progress import LineProgress, TerminalProgress

    stream = sys.stderr
    if log_format == "plain" and stream is not None and stream.isatty():
        return TerminalProgress(stream)
    return LineProgress()
