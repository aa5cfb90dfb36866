"""The `batchzs` command: its commands put together, and the one place that turns errors into exit codes.

Each command is in `commands`, in a file with those of its kind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn

import click

from batchzs import __version__
from batchzs.commands.decide import compare, decide
from batchzs.commands.init import init
from batchzs.commands.outputs import bad, status, verify
from batchzs.commands.plan import plan
from batchzs.commands.report import report
from batchzs.commands.run import fetch, run
from batchzs.commands.schema import schema
from batchzs.commands.slurm import finish, slurm
from batchzs.commands.try_texts import try_texts
from batchzs.errors import BatchzsError, InterruptedRunError, OtherJobError, TimeLimitError, UsageError
from batchzs.logs import SEVERAL_LINES, flush_standard_streams, log_to_stream, open_standard_streams
from batchzs.slurm.requeue import requeue

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
  9   `verify` or `compare` found a difference, or results are damaged or incomplete
  75  stopped on request, or before a time limit: the same command goes on
"""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, prog_name="batchzs")
def batchzs() -> None:
    """Label millions of texts with a zero-shot classifier, in jobs that may be killed at any time."""


for command in (init, plan, try_texts, run, fetch, slurm, finish, status, verify, bad, report, decide, compare, schema):
    batchzs.add_command(command)


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
        if isinstance(error, TimeLimitError):  # here, where all is written and no lock is held: it ends the process
            requeue(os.environ, error.obstacle)
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
