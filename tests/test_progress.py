"""How far a run is: lines by the clock where there is no terminal, a bar where there is one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from batchzs.progress import LineProgress, NoProgress, TerminalProgress, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Seconds that a test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Always."""
        return True


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged, progress lines included."""
    with caplog.at_level("INFO", logger="batchzs"):
        yield caplog


def test_a_line_worked_by_hand(log: pytest.LogCaptureFixture) -> None:
    """1000 rows, 200 done before; 100 rows and 5000 tokens in 50 s: 2 rows/s, 100 tokens/s, 700 rows to go, 350 s."""
    clock = Clock()
    progress = LineProgress(interval_s=30, clock=clock)
    progress.start(1000, 200)
    clock.now_s += 50
    progress.quarantine(2)
    progress.quarantine(1)
    progress.advance(100, 5000)
    record: Any
    (record,) = log.records
    assert record.getMessage() == "300 of 1,000 rows (30.0 %), 100 tokens/s, 5 min 50 s to go, 3 quarantined"
    assert record.batchzs_event == "progress"
    assert record.batchzs_fields == {
        "rows_done": 300,
        "rows": 1000,
        "tokens_per_s": 100,
        "eta_s": 350,
        "quarantined": 3,
        "max_batch_tokens": 0,
        "backoffs": 0,
    }
    progress.budget(2048, 2)
    clock.now_s += 50
    progress.advance(100, 5000)
    assert log.records[1].getMessage().endswith("3 quarantined, 2,048 tokens a batch after 2 backoffs")


def test_a_line_comes_while_nothing_moves(log: pytest.LogCaptureFixture) -> None:
    """A batch that hangs shows in the log: lines go on, with the same number of rows (case Z11)."""
    clock = Clock()
    progress = LineProgress(interval_s=30, clock=clock)
    progress.start(1000, 0)
    progress.advance(10, 100)
    for _ in range(130):  # the run looks up about twice a second while it waits
        clock.now_s += 0.5
        progress.advance(0.0, 0)
    assert [record.getMessage().partition(" rows")[0] for record in log.records] == ["10 of 1,000"] * 2


def test_lines_come_by_the_clock_and_not_by_the_batch(log: pytest.LogCaptureFixture) -> None:
    """A thousand batches in 95 seconds are three lines, at 30, 60 and 90."""
    clock = Clock()
    progress = LineProgress(interval_s=30, clock=clock)
    progress.start(1000, 0)
    for _ in range(950):
        clock.now_s += 0.1
        progress.advance(1, 10)
    assert len(log.records) == 3


def test_no_rows_done_is_an_unknown_time(log: pytest.LogCaptureFixture) -> None:
    """Neither a division by zero nor a number made up."""
    clock = Clock()
    progress = LineProgress(interval_s=1, clock=clock)
    progress.start(0, 0)
    clock.now_s += 2
    progress.advance(0, 0)
    record: Any = log.records[0]
    assert len(log.records) == 1
    assert record.getMessage() == "0 of 0 rows (0.0 %), 0 tokens/s, unknown time to go, 0 quarantined"
    assert record.batchzs_fields["eta_s"] is None


def test_a_clock_that_stands_still_divides_by_nothing(log: pytest.LogCaptureFixture) -> None:
    """An interval of 0 asks for a line at once."""
    progress = LineProgress(interval_s=0, clock=Clock())
    progress.start(10, 0)
    progress.advance(1, 1)
    assert len(log.records) == 1


def test_the_bar_shows_rows_and_tokens_and_stays() -> None:
    """On a terminal: drawn at once, with what earlier attempts did, and left as it stands."""
    stream = Terminal()
    progress = TerminalProgress(stream)
    progress.start(1000, 250)
    assert "250/1,000 rows" in stream.getvalue()
    progress.quarantine(4)
    progress.budget(4096, 0)
    progress.advance(750.0, 10_000)
    progress.close()
    assert " tokens/s, 4,096 a batch, 4 quarantined]" in stream.getvalue()
    assert "100%" in stream.getvalue()
    assert "1,000/1,000 rows" in stream.getvalue()
    assert "tokens/s" in stream.getvalue()


def test_a_bar_that_was_never_started_does_nothing() -> None:
    """A run may end before it scores."""
    stream = Terminal()
    progress = TerminalProgress(stream)
    progress.advance(1, 1)
    progress.close()
    assert not stream.getvalue()


def test_no_progress_shows_nothing(log: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """For callers of the library."""
    progress = NoProgress()
    progress.start(10, 0)
    progress.advance(5, 5)
    progress.budget(64, 1)
    progress.quarantine(5)
    progress.close()
    assert not log.records
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (60, "1 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (100_000, "27 h 46 min"),
    ],
)
def test_durations_round_up_into_the_next_unit(seconds: float, text: str) -> None:
    """Never "60.0 s" or "60 min"."""
    assert format_duration(seconds) == text
