"""Stop on request: signals raise a flag, the run looks at it between batches.

SIGTERM, SIGINT, SIGUSR1 and SIGHUP all mean the same: come to an end that the same command can continue. A second
signal ends the process at once; what is published stays whole, since publishing is a rename.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchzs.errors import InterruptedRunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class StopFlag:
    """Remembers that a signal came, and which."""

    def __init__(self) -> None:
        self._signal_name: str | None = None  # or what else asked

    def check(self) -> None:
        """Do nothing, or end the run if a signal came.

        Raises:
            InterruptedRunError: naming the signal.
        """
        if self._signal_name is not None:
            raise InterruptedRunError(f"stopped by {self._signal_name}: run the same command again to go on")

    def ask(self, name: str) -> None:
        """Ask for a stop as a signal does, in another one's name."""
        self._signal_name = name

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over the signals while the block runs, but for those that whoever started us wants ignored (nohup)."""
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        previous = {number: signal.signal(number, self._handle) for number in heard}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._signal_name is not None:
            os._exit(InterruptedRunError.exit_code)
        self._signal_name = signal.Signals(number).name
