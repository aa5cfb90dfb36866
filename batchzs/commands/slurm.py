"""The commands for a cluster: `slurm` sends a job's tasks, `finish` is the step after them.

As in `run`, a command reads its arguments, calls the library and shows what it returns, and imports what is heavy
inside. What the library is told of Slurm is checked here first, so that a wrong option costs no queue's time.
"""

from __future__ import annotations

import errno
import logging
import shlex
import sys
from pathlib import Path
from typing import Literal

import click

from batchzs.commands.options import (
    begin,
    begin_dated,
    date_option,
    job_options,
    new_files_option,
    selection_of,
    selection_options,
)
from batchzs.errors import MachineError, UsageError
from batchzs.logs import log_to_stream
from batchzs.printing import show, show_lines

logger = logging.getLogger(__name__)

_SBATCH = "A line for #SBATCH, such as --sbatch --partition=gpu; may be repeated, and the last one wins."


@click.command(
    epilog="""\b
Example:
  batchzs slurm jobs/news.yaml --tasks 16 --submit --sbatch --partition=gpu --sbatch --time=8:00:00
  batchzs slurm jobs/news.yaml --tasks 16 --to news.sbatch
"""
)
@job_options
@selection_options
@new_files_option
@click.option(
    "--tasks", "num_tasks", type=click.IntRange(1, 1_000_000), required=True, metavar="N", help="How many tasks."
)
@click.option("--submit", is_flag=True, help="Submit what is unfinished, and the closing step after it.")
@click.option("--to", type=click.Path(path_type=Path), metavar="FILE", help="Write the script there, and FILE-finish.")
@click.option("--max-running", type=click.IntRange(min=1), metavar="M", help="Run M tasks at once at most.")
@click.option(
    "--gpus", type=click.IntRange(min=0), metavar="N", help="GPUs for a task: 1, but 0 for engine.device: cpu."
)
@click.option("--sbatch", "extra", multiple=True, metavar="OPTION", help=_SBATCH)
@click.option("--finish-sbatch", multiple=True, metavar="OPTION", help="Likewise, for the closing step, after those.")
@click.option(
    "--prolog", multiple=True, metavar="LINE", help="A line of shell to run first, or a file of such; may be repeated."
)
@click.option("--launcher", metavar="WORDS", help='What starts batchzs, such as "apptainer exec --nv image.sif".')
@click.option(
    "--program", metavar="WORDS", help="How batchzs is called; this very program, or `batchzs` in a launcher."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: parts, scripts, files, Slurm's job ids.")
def slurm(  # noqa: PLR0913 - one parameter an option
    *,
    job: Path,
    overrides: tuple[str, ...],
    date: str | None,
    offline: bool,
    log_format: Literal["plain", "json"],
    limit: int | None,
    sample: int | None,
    seed: int | None,
    new_files: bool,
    num_tasks: int,
    submit: bool,
    to: Path | None,
    max_running: int | None,
    gpus: int | None,
    extra: tuple[str, ...],
    finish_sbatch: tuple[str, ...],
    prolog: tuple[str, ...],
    launcher: str | None,
    program: str | None,
    as_json: bool,
) -> None:
    """Write a job's Slurm script, or submit it: an array of N tasks, and a closing step when all have ended.

    Only tasks with something left to do are in it; where all is done there is none. Without --submit and --to the
    script goes to standard output.
    """
    selection = selection_of(limit, sample, seed, new_files=new_files)
    if submit and to is not None:
        raise UsageError("--submit and --to exclude each other: submit the scripts, or write them")
    config, day = begin_dated(job, overrides, log_format, date)
    from batchzs.escape import json_line
    from batchzs.paths import RunPaths
    from batchzs.slurm.array import plan_array, submit_array, write_scripts
    from batchzs.slurm.array_text import array_to_json, format_scripts, format_submission
    from batchzs.slurm.run_arguments import RunArguments
    from batchzs.slurm.script import (
        Program,
        SlurmOptions,
        checked_directive,
        checked_prolog,
        checked_words,
        num_gpus,
    )

    options = SlurmOptions(
        num_tasks,
        max_running,
        num_gpus(config.engine.device, gpus),
        extra=tuple(checked_directive(line) for line in extra),
        finish_extra=tuple(checked_directive(line) for line in finish_sbatch),
        prolog=checked_prolog("\n".join(map(_lines, prolog))),
    )
    starts_with = Program(
        checked_words("--program", program) if program is not None else _own_program(launcher),
        checked_words("--launcher", launcher) if launcher is not None else None,
    )
    arguments = RunArguments(
        job,
        overrides,
        selection,
        date=None if day is None else day.value,
        offline=offline,
        new_files=new_files,
        log_format=log_format,
    )
    plan = plan_array(RunPaths(config.output.path), config, arguments, options, starts_with)
    submission = submit_array(plan) if submit and not plan.is_finished else None
    written = write_scripts(plan, to) if to is not None and not plan.is_finished else None
    if as_json:
        show(json_line(array_to_json(plan, submission or written)))
    elif plan.is_finished and submit:
        show("nothing to submit: the job is finished")
    elif plan.is_finished:
        logger.info("nothing to write: the job is finished")  # standard output is for a script alone
    elif submission is not None:
        show_lines(format_submission(plan, submission))
    elif written is not None:
        show_lines(format_scripts(plan, written))
    else:
        show((plan.array_script or plan.finish_script).removesuffix("\n"))


@click.command(
    epilog="""\b
Example:
  batchzs finish jobs/news.yaml --tasks 16
  batchzs finish out/news
"""
)
@click.argument("job_or_output", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="As in `batchzs run`; only with a job.")
@date_option
@click.option("--tasks", "num_tasks", type=click.IntRange(1, 1_000_000), metavar="N", help="How many parts there are.")
@click.option("--log-format", type=click.Choice(["plain", "json"]), default="plain", help="As in `batchzs run`.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, as `batchzs run` does.")
def finish(  # noqa: PLR0913 - one parameter an option
    *,
    job_or_output: Path,
    overrides: tuple[str, ...],
    date: str | None,
    num_tasks: int | None,
    log_format: Literal["plain", "json"],
    as_json: bool,
) -> None:
    """See whether every part of a job is done: write the end where it is, name what is missing where it is not.

    What `batchzs slurm` sends after an array. Needs neither the input nor the model. Ends with 9 where shards are
    missing, and with 5 where more rows are quarantined than the job allows.
    """
    from batchzs.paths import RunPaths

    if job_or_output.is_dir():
        for option, is_given in (("--set", overrides), ("--date", date)):
            if is_given:
                raise UsageError(
                    f"{option}: {job_or_output} is an output, whose job is settled; leave it out, or give the job"
                )
        log_to_stream(sys.stderr, log_format)
        config = None
        paths = RunPaths(job_or_output.absolute())
    else:
        config = begin(job_or_output, overrides, log_format, date)
        paths = RunPaths(config.output.path)
    from batchzs.ending import ending_to_json, format_ending
    from batchzs.escape import json_line
    from batchzs.finish import finish_run
    from batchzs.run import Outcome, refuse_too_many_bad_rows
    from batchzs.stopping import StopFlag

    stop = StopFlag()
    with stop.listening():
        summary = finish_run(paths, config, num_tasks, stop.check)
    outcome = Outcome(summary, wall_s=None)
    show_lines([json_line(ending_to_json(outcome, None))] if as_json else format_ending(outcome, None))
    refuse_too_many_bad_rows(summary)


def _own_program(launcher: str | None) -> str:
    """How this very program is started again; inside a launcher, which has another Python, by its name."""
    if launcher is not None:
        return "batchzs"
    started_by = Path(sys.argv[0]).absolute()
    words = [str(started_by)] if started_by.name == "batchzs" else [sys.executable, "-m", "batchzs"]
    return shlex.join(words)


def _lines(prolog: str) -> str:
    """The lines of a prolog: those of a file where there is one of this name, else the text itself."""
    try:
        path = Path(prolog)
        return path.read_text(encoding="utf-8") if path.is_file() else prolog
    except UnicodeDecodeError as exc:
        raise UsageError(f"--prolog: {prolog} is no text in UTF-8: {exc}") from exc
    except (OSError, ValueError) as exc:
        if isinstance(exc, OSError) and exc.errno != errno.ENAMETOOLONG:
            raise MachineError(f"--prolog: {prolog} cannot be read: {exc.strerror}") from exc
        return prolog  # longer than any name, or with what none can hold
