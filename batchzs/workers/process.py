"""One worker process as the run sees it: started, given orders, listened to, waited for.

It shares nothing with the run but pipes and the descriptors of the output's locks, so that it can die in any way and
the run notices: its pipe ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, cast

from batchzs.errors import MachineError
from batchzs.stopping import SIGNALS
from batchzs.workers.messages import decode_report, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchzs.workers.messages import Order, Report

#: The run's own import path, whatever the working directory holds: what runs there is this very batchzs.
PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); from batchzs.workers.worker import main; main()"
_READ_BYTES = 2**16
#: A process whose pipe has ended is about to end, or it hangs in a driver.
_END_S = 5.0


class WorkerProcess:
    """A worker process.

    Args:
        name: for messages and for lists of processes.
        environ: its environment.
        descriptors: open files that it inherits: the kernel drops their locks when the last process ends.
        program: what Python runs in it.

    Raises:
        MachineError: it cannot be started.
    """

    def __init__(
        self, name: str, environ: Mapping[str, str], descriptors: Sequence[int], program: str = PROGRAM
    ) -> None:
        self.name = name
        self.has_ended = False
        self._pending = b""
        # A signal to the whole group must not meet the process before it has said what it does with signals.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-X", "utf8", "-P", "-c", program, f"batchzs {name}", json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environ,
                pass_fds=descriptors,
                bufsize=0,
            )
        except OSError as exc:
            raise MachineError(f"{name} cannot be started: {exc.strerror} ({sys.executable})") from exc
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._orders, self._reports = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)

    @property
    def process_id(self) -> int:
        """The process's id."""
        return self._process.pid

    def fileno(self) -> int:
        """Where reports come from, for `select`."""
        return self._reports.fileno()

    def send(self, order: Order) -> None:
        """Give an order; to one that has died in vain, which its reports' end shows."""
        line = encode(order)
        with suppress(BrokenPipeError):
            while line:
                line = line[self._orders.write(line) :]

    def receive(self) -> list[Report]:
        """Read what has come, waiting for something if nothing has; `has_ended` says whether it was the last.

        Raises:
            BatchzsError: it is no report.
        """
        content = os.read(self.fileno(), _READ_BYTES)
        self.has_ended = not content
        *lines, self._pending = (self._pending + content).split(b"\n")
        return [decode_report(line) for line in lines]

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """See that it ends: wait a moment, then kill it."""
        for pipe in (self._orders, self._reports):
            with suppress(OSError):
                pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            # One that hangs in a driver ends when that lets go of it, and runs no line of ours any more.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it, or it had to be left hanging."""
        return self._process.returncode is None or self._process.returncode < 0

    @property
    def ending(self) -> str:
        """How it ended, once it has."""
        code = self._process.returncode
        if code is None:
            return "it hangs"
        if code >= 0:
            return f"it ended with code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"{name} ended it" + (" (was memory short?)" if name == "SIGKILL" else "")
