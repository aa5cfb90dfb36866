"""Stop on request, or before a deadline: signals raise a flag, the run looks at it and at the clock between batches.

SIGTERM, SIGINT, SIGUSR1 and SIGHUP all mean the same: come to an end that the same command can continue. A second
signal ends the process at once; what is published stays whole, since publishing is a rename.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchzs.errors import InterruptedRunError, TimeLimitError
from batchzs.logs import fields
from batchzs.progress import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from batchzs.deadline import Deadline

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
#: What a scheduler is told to send before a time limit; the others may as well mean that nobody wants the run any more.
_BEFORE_TIME_LIMIT = signal.SIGUSR1


class StopFlag:
    """Remembers that a signal came, and which; knows until when there is time.

    Args:
        deadline: when the process has to be over; None: it may take as long as it takes.
    """

    def __init__(self, deadline: Deadline | None = None) -> None:
        self.deadline = deadline
        self._signal_name: str | None = None  # or what else asked

    def announce(self) -> None:
        """Say until when there is time, where that is known."""
        if self.deadline is not None:
            logger.info(
                "time limit: %s (%s), in %s: stopping before it if need be",
                self.deadline,
                self.deadline.source,
                format_duration(max(self.deadline.left_s, 0.0)),
                extra=fields("deadline", at=self.deadline.at.isoformat(), source=self.deadline.source),
            )

    def has_time(self, needed_s: float) -> bool:
        """Whether something that takes so long fits before the deadline."""
        return self.deadline is None or self.deadline.leaves(needed_s)

    def check(self) -> None:
        """Do nothing, or end the run if a signal came or time is up.

        Raises:
            InterruptedRunError: naming the signal.
            TimeLimitError: naming the deadline, or SIGUSR1.
        """
        if self._signal_name is not None:
            is_time_limit = self._signal_name == _BEFORE_TIME_LIMIT.name
            kind = TimeLimitError if is_time_limit else InterruptedRunError
            raise kind(f"stopped by {self._signal_name}: run the same command again to go on")
        self.check_time()

    def check_time(self, needed_s: float = 0.0) -> None:
        """Do nothing, or end the run if something that takes so long does not fit before the deadline.

        Raises:
            TimeLimitError: naming the deadline.
        """
        if not self.has_time(needed_s):
            raise TimeLimitError(f"stopped before the time limit, {self.deadline}: run the same command again to go on")

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
