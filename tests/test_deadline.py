"""When a run has to be over: what can be written, and what leaves enough time."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.deadline import RESERVE_S, SLURM_RESERVE_S, Deadline, find_deadline, parse_deadline
from batchzs.errors import UsageError
from tests.builders import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 30, 22, 15, 30, tzinfo=timezone(timedelta(hours=8)))


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local clock with summer time."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("3h", 10800), ("7h30m", 27000), ("1d2h3m4s", 93784), ("45s", 45), ("5400", 5400), ("1d", 86400)],
)
def test_a_span_counts_from_now(text: str, seconds: int) -> None:
    """Days, hours, minutes and seconds in this order, or a bare number of seconds."""
    assert parse_deadline(text, NOW) == NOW + timedelta(seconds=seconds)


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("22:00", "2026-11-30T22:00:00+01:00"),  # 15:15:30 now, there
        ("15:15", "2026-12-01T15:15:00+01:00"),
        ("15:15:31", "2026-11-30T15:15:31+01:00"),
        ("00:00", "2026-12-01T00:00:00+01:00"),
        ("2026-12-01T06:00", "2026-12-01T06:00:00+01:00"),
        ("2026-12-01 06:00:30", "2026-12-01T06:00:30+01:00"),
        ("2027-07-01T06:00", "2027-07-01T06:00:00+02:00"),
        ("2026-12-01T06:00Z", "2026-12-01T06:00:00+00:00"),
        ("2026-12-01T06:00+08:00", "2026-12-01T06:00:00+08:00"),
    ],
)
def test_a_time_is_local_unless_it_names_its_zone(text: str, moment: str) -> None:
    """A time of day is the next one; a date's offset is that of its own day."""
    assert parse_deadline(text, NOW) == datetime.fromisoformat(moment)


@pytest.mark.usefixtures("in_berlin")
def test_a_time_of_day_across_the_change_of_clocks() -> None:
    """06:00 is 06:00 on the clock of the next day, though that night has 25 hours."""
    evening = datetime.fromisoformat("2026-10-24T22:00:00+02:00")
    assert parse_deadline("06:00", evening) == datetime.fromisoformat("2026-10-25T06:00:00+01:00")


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "soon", "7h30", "30m7h", "1.5h", "-5", "５", "h", "25:00", "6:00", "06:60", "2026-12-01"),
        *("2026-13-01T06:00", "2026-02-30T06:00", "2026-12-01T06:00 Europe/Berlin", "999999999d", "3h\n"),
    ],
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    """`7h30` too: half of those who write it mean minutes."""
    with pytest.raises(UsageError, match="expected a span such as 90m, 7h30m or 5400") as caught:
        parse_deadline(text, NOW)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["2026-11-30T22:15:30+08:00", "2020-01-01T00:00", "0", "0h"])
def test_a_time_that_is_over_is_a_mistake(text: str) -> None:
    """Ending with 75 instead would have whoever runs the same command again until it is done do so for ever."""
    with pytest.raises(UsageError, match=r"is over, it is 2026-11-30 22:15:30 \+0800 now: give a later one"):
        parse_deadline(text, NOW)


@PATIENT
@given(st.text("0123456789dhms:T-+Z ", max_size=20))
def test_whatever_is_written_is_later_than_now_or_refused(text: str) -> None:
    """No text ends in another error, and no deadline is over when it is taken."""
    with contextlib.suppress(UsageError):
        assert parse_deadline(text, NOW) > NOW


def test_a_deadline_leaves_what_remains_but_the_reserve() -> None:
    """100 s before it there is time for 95 s and not for more; afterwards for nothing."""
    clock = [NOW.timestamp() - 100]
    deadline = Deadline(NOW, "a test", clock=lambda: clock[0])
    assert deadline.left_s == 100
    assert deadline.leaves(100 - RESERVE_S)
    assert not deadline.leaves(100 - RESERVE_S + 0.01)
    clock[0] += 100 - RESERVE_S
    assert deadline.leaves(0)
    clock[0] += 0.01
    assert not deadline.leaves(0)


def slurm_environ(seconds: float) -> dict[str, str]:
    """What a job sees whose time is up in so many seconds."""
    return {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time() + seconds))}


def test_the_earlier_one_counts() -> None:
    """Of `--deadline` and the job's limit, each with its own reserve."""
    assert find_deadline(None, {}) is None
    one = find_deadline("1h", slurm_environ(1800))
    other = find_deadline("1h", slurm_environ(7200))
    assert one is not None
    assert (one.source, one.reserve_s) == ("the Slurm job's", SLURM_RESERVE_S)
    assert 1795 < one.left_s <= 1800
    assert other is not None
    assert (other.source, other.reserve_s) == ("--deadline", RESERVE_S)
    assert 3595 < other.left_s <= 3600


@pytest.mark.parametrize("seconds", [-3600, -1, 365 * 86400])
def test_a_job_that_is_over_or_has_no_limit_sets_none(seconds: float) -> None:
    """A shell that outlived its allocation still has its variables: they stop no run."""
    assert find_deadline(None, slurm_environ(seconds)) is None


def test_it_is_written_in_local_time() -> None:
    """What a person compares with a clock on the wall."""
    moment = datetime(2026, 12, 1, 6, tzinfo=UTC)
    assert str(Deadline(moment, "a test")) == moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
