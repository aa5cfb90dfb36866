"""A signal asks for an end between batches; a second one ends at once."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from batchzs.deadline import Deadline
from batchzs.errors import InterruptedRunError, TimeLimitError
from batchzs.stopping import SIGNALS, StopFlag

TWICE = """
import os, signal, sys, time
from batchzs.stopping import StopFlag
flag = StopFlag()
with flag.listening():
    os.kill(os.getpid(), signal.SIGTERM)
    print("first", flush=True)
    os.kill(os.getpid(), signal.SIGUSR1)
    print("second", flush=True)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_remembered_and_named(number: signal.Signals) -> None:
    """SIGTERM, SIGINT, SIGUSR1 and SIGHUP all mean the same, and nothing ends before the next look at the flag."""
    flag = StopFlag()
    with flag.listening():
        flag.check()
        os.kill(os.getpid(), number)
        with pytest.raises(InterruptedRunError, match=f"stopped by {number.name}: run the same command again"):
            flag.check()


def test_a_second_signal_ends_the_process_at_once_with_the_same_code() -> None:
    """Someone who presses Ctrl-C twice means it; what is published stays whole."""
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, check=False, encoding="utf-8")
    assert (done.returncode, done.stdout) == (75, "first\n")


def test_a_stop_may_be_asked_for_without_a_signal() -> None:
    """As a run asks its worker processes."""
    flag = StopFlag()
    flag.ask("the run")
    with pytest.raises(InterruptedRunError, match="stopped by the run: run the same command again"):
        flag.check()


def test_handlers_are_put_back() -> None:
    """Whoever calls the library keeps its own."""
    before = [signal.getsignal(number) for number in SIGNALS]
    flag = StopFlag()

    def fail() -> None:
        with flag.listening():
            assert signal.getsignal(signal.SIGTERM) not in before
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        fail()
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_without_a_signal_nothing_happens() -> None:
    """The flag is looked at between any two batches."""
    flag = StopFlag()
    for _ in range(3):
        flag.check()


def until(left_s: float) -> StopFlag:
    """A flag with a deadline in so many seconds of a clock that stands still."""
    return StopFlag(Deadline(datetime.fromtimestamp(1_000_000 + left_s, UTC), "a test", 5.0, lambda: 1_000_000.0))


def test_a_deadline_ends_the_run_and_is_named() -> None:
    """5 s before it, so that the process is over by then; what takes longer ends it earlier."""
    flag = until(15)
    flag.check()
    flag.check_time(10)
    assert flag.has_time(10)
    assert not flag.has_time(10.5)
    moment = str(Deadline(datetime.fromtimestamp(1_000_015, UTC), "a test"))
    with pytest.raises(TimeLimitError, match=f"^stopped before the time limit, {moment}: run the same command again"):
        flag.check_time(10.5)
    with pytest.raises(TimeLimitError):
        until(4.5).check()


@pytest.mark.parametrize("number", SIGNALS)
def test_sigusr1_alone_means_a_time_limit(number: signal.Signals) -> None:
    """A job that was cancelled gets SIGTERM, and must not come back; the signal counts before the deadline."""
    flag = until(0)
    with flag.listening():
        os.kill(os.getpid(), number)
        with pytest.raises(InterruptedRunError, match="stopped by SIG") as caught:
            flag.check()
    assert isinstance(caught.value, TimeLimitError) == (number is signal.SIGUSR1)


def test_a_deadline_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    """One line at the beginning, and none where there is no limit."""
    with caplog.at_level("INFO", logger="batchzs"):
        StopFlag().announce()
        until(5400).announce()
    moment = datetime.fromtimestamp(1_005_400, UTC).astimezone()
    assert [record.getMessage() for record in caplog.records] == [
        f"time limit: {moment:%Y-%m-%d %H:%M:%S} (a test), in 1 h 30 min: stopping before it if need be"
    ]
