"""Wait for another thread's work in steps, so that a stop, and a second signal, are heard in between."""

from __future__ import annotations

from concurrent.futures import TimeoutError as NotDoneYetError
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

#: How long a step is.
POLL_S = 0.5
_Result = TypeVar("_Result")


def result_of(future: Future[_Result], on_wait: Callable[[], None]) -> _Result:
    """Wait for a result; `on_wait` is called after every step, and what it raises ends the waiting."""
    while True:
        try:
            return future.result(timeout=POLL_S)
        except NotDoneYetError:
            on_wait()


def wait_for_all(futures: Sequence[Future[Any]]) -> None:
    """Wait until all have ended, whatever came of them; Polars has SIGINT restart any longer wait that it breaks."""
    while wait(futures, timeout=POLL_S).not_done:
        pass
