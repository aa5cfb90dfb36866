"""Hooks: what they get, what they may do, and how little they can harm."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from batchzs.hooks import Hook, call_hook

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How soon a hook is over that is ended or needs no waiting for; far above what it takes.
SOON_S = 30


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged."""
    with caplog.at_level("INFO", logger="batchzs"):
        yield caplog


def called(command: str, message: str = "{}", timeout_s: float = SOON_S * 4) -> bool:
    """Call a hook, in time."""
    started_s = time.monotonic()
    ended_well = call_hook(Hook("--on-finish", command, timeout_s), message)
    assert time.monotonic() - started_s < SOON_S
    return ended_well


def test_it_gets_the_message_and_its_output_is_logged(log: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """One line on standard input; what it prints, on either stream, becomes messages."""
    path = tmp_path / "得 '1'.json"
    assert called(f'cat > "{path}"; echo 好; echo trouble >&2; printf last', '{"a": "甲"}')
    assert path.read_text(encoding="utf-8") == '{"a": "甲"}\n'
    assert log.messages == ["calling --on-finish", *(f"--on-finish: {word}" for word in ("好", "trouble", "last"))]


def test_what_it_does_wrong_is_a_warning(log: pytest.LogCaptureFixture) -> None:
    """Its code, or a command that is not there."""
    assert not called("exit 3")
    assert not called("/no/such/command")
    assert not called("kill -9 $$")
    warnings = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    ending = "; the run's own end stays as it is"
    assert warnings == [f"--on-finish: ended with code {code}{ending}" for code in (3, 127, -9)]


def test_a_long_message_that_nobody_reads() -> None:
    """More than a pipe holds: neither side waits for the other."""
    assert called("true", "x" * 1_000_000)
    assert called('test "$(wc -c)" -eq 1000001', "x" * 1_000_000)


def test_one_that_hangs_is_ended_with_all_that_it_started(log: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Cron does not wait for ever, even where the hook's shell is deaf."""
    assert not called(f'trap "" TERM; sleep 600 & echo $! > "{tmp_path}/child"; sleep 600; sleep 600', timeout_s=0.5)
    assert "took longer than 0.5 s and was ended" in log.text
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    deadline_s = time.monotonic() + SOON_S
    while is_alive(child):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def is_alive(process_id: int) -> bool:
    """Whether a process is there that has not ended; where nobody collects orphans, one that has ended stays listed."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_stays_in_the_background_is_not_waited_for() -> None:
    """It may keep the output open."""
    assert called("sleep 40 & true")


def test_a_signal_ends_it(log: pytest.LogCaptureFixture) -> None:
    """Slurm and Ctrl-C mean all of this process."""
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    assert not called("sleep 600")
    timer.join()
    assert "--on-finish: stopped by SIGTERM; the run's own end stays as it is" in log.text


def test_endless_output_fills_no_log(log: pytest.LogCaptureFixture) -> None:
    """A thousand lines are enough to see what it does."""
    assert called("yes 吗 | head -n 5000; head -c 100000 /dev/zero")
    assert len(log.messages) == 1002
    assert "more lines" in log.messages[-1]
