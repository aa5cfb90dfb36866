"""Commands of the user's, called when a run has ended: `--on-finish` and `--on-failure`.

A hook gets one line of JSON on standard input. Its own output becomes messages, a line each. It cannot change how the
run ended: what it does wrong is a warning, and one that hangs is ended. `commands.hooks` settles when it is called.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from batchzs.errors import InterruptedRunError
from batchzs.progress import format_duration
from batchzs.stopping import StopFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

#: Long enough to verify or upload a night's output; a hook that needs longer starts something in the background.
TIMEOUT_S = 3600.0
_POLL_S = 0.1
#: Between asking a hook to end and killing it.
_GRACE_S = 5.0
#: How long output is waited for once the hook has ended: what it left in the background may hold the pipe for ever.
_LAST_OUTPUT_S = 1.0
_MAX_LINES = 1_000
_MAX_LINE_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Hook:
    """A shell command, and the option that gave it."""

    option: str
    command: str
    timeout_s: float = TIMEOUT_S


def call_hook(hook: Hook, message: str) -> bool:
    """Run a hook to its end; every fault of it is a warning.

    A signal to this process is passed on: it ends the hook, and a second one this process.

    Args:
        hook: what to run.
        message: what it gets on standard input, one line without its end.

    Returns:
        Whether it ended well.
    """
    logger.info("calling %s", hook.option)
    stop = StopFlag()
    with stop.listening(), _readable(message) as stdin:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command, on purpose
                ["/bin/sh", "-c", hook.command],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches it through us, and all that it started ends with it
            )
        except OSError as exc:
            logger.warning("%s: cannot be started: %s", hook.option, exc.strerror)
            return False
        assert process.stdout is not None  # noqa: S101 - for mypy: it is a pipe
        reader = threading.Thread(target=_log_lines, args=(process.stdout, hook.option), daemon=True)
        reader.start()
        trouble = _wait(process, stop, hook.timeout_s)
        reader.join(_LAST_OUTPUT_S)
    if trouble is None and process.returncode:
        trouble = f"ended with code {process.returncode}"
    if trouble is not None:
        logger.warning("%s: %s; the run's own end stays as it is", hook.option, trouble)
    return trouble is None


@contextmanager
def _readable(message: str) -> Iterator[int]:
    """A descriptor that gives the message, whatever its length and whether or not anybody reads it."""
    descriptor = os.memfd_create("batchzs-hook")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(message.encode("utf-8", errors="backslashreplace") + b"\n")
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait(process: subprocess.Popen[bytes], stop: StopFlag, timeout_s: float) -> str | None:
    """Wait for a hook's end, or bring it about; say why it had to be."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
            return None
        try:
            stop.check()
        except InterruptedRunError as exc:
            _end(process)
            return str(exc).partition(":")[0]
        if time.monotonic() >= deadline_s:
            _end(process)
            return f"took longer than {format_duration(timeout_s)} and was ended"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a hook, with all that it started, to end; kill what does not."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _log_lines(output: IO[bytes], option: str) -> None:
    num_lines = 0
    with output:
        while line := output.readline(_MAX_LINE_BYTES):
            num_lines += 1
            if num_lines <= _MAX_LINES:
                logger.info("%s: %s", option, line.decode("utf-8", errors="replace").rstrip("\r\n"))
    if num_lines > _MAX_LINES:
        logger.info("%s: %d more lines", option, num_lines - _MAX_LINES)
