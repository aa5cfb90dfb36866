"""A signal asks for an end between batches; a second one ends at once."""

import os
import signal
import subprocess
import sys

import pytest

from batchzs.errors import InterruptedRunError
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
