"""Days: `--date` read, paths filled, and two days told apart."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.dates import (
    checked_time_zone,
    date_fault,
    day_with_the_same_output,
    fill_date,
    has_date,
    parse_date,
    resolve_day,
)
from batchzs.errors import UsageError
from tests.builders import PATIENT

NIGHT = datetime(2026, 11, 29, 16, 30, tzinfo=UTC)  # half past midnight on the 30th in Shanghai


@pytest.mark.parametrize(
    ("asked", "zone", "expected"),
    [
        ("today", "Asia/Shanghai", date(2026, 11, 30)),
        (None, "Asia/Shanghai", date(2026, 11, 30)),
        ("yesterday", "Asia/Shanghai", date(2026, 11, 29)),
        ("today", "America/New_York", date(2026, 11, 29)),
        ("yesterday", "America/New_York", date(2026, 11, 28)),
        ("2026-03-01", "Asia/Shanghai", date(2026, 3, 1)),
    ],
)
def test_days_begin_and_end_in_the_zone(asked: str | None, zone: str, expected: date) -> None:
    """Worked by hand: 16:30 UTC is past midnight in Shanghai and before noon in New York."""
    day = resolve_day(None if asked is None else parse_date(asked), NIGHT, zone)
    assert day.value == expected
    assert day.is_fixed == (asked == "2026-03-01")
    assert day.is_fixed or zone in day.why


def test_yesterday_on_a_day_of_23_hours() -> None:
    """The day before one on which clocks change is the day before, not 24 hours ago."""
    after = datetime(2026, 3, 29, 22, 30, tzinfo=UTC)  # 0:30 on the 30th in Berlin, where the 29th had 23 hours
    assert resolve_day("yesterday", after, "Europe/Berlin").value == date(2026, 3, 29)


def test_the_machines_own_zone() -> None:
    """Without a zone the machine's clock decides, and the message says what it showed."""
    now = NIGHT.astimezone()
    day = resolve_day("today", NIGHT, None)
    assert day.value == now.date()
    assert f"{now:%Y-%m-%d %H:%M}" in str(day)


@pytest.mark.parametrize(
    "text",
    ["tomorrow", "Today", "", "29.11.2026", "20261129", "2026-W48-7", "2026-11-31", "2026-1-1", "２０２６-11-29"],
)
def test_what_is_no_day_is_refused(text: str) -> None:
    """One way to write a day, so that a typing error is none of the others."""
    with pytest.raises(UsageError, match=r"^--date: "):
        parse_date(text)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("news-{date}.csv", "news-2026-01-05.csv"),
        ("{date:%Y}/{date:%m}/{date:%d}/*.csv", "2026/01/05/*.csv"),
        ("{date:%Y%m%d}-{date:%j}", "20260105-005"),
        ("{date:%G-W%V-%u}", "2026-W02-1"),
        ("{date:100%%-%F}", "100%-2026-01-05"),
        ("{}/{a}/{dates}/{ date }/100%/%Y", "{}/{a}/{dates}/{ date }/100%/%Y"),
        ("{{date}}", "{2026-01-05}"),
    ],
)
def test_paths_filled_by_hand(text: str, filled: str) -> None:
    """What is no date stays: other braces, and percent signs outside."""
    assert date_fault(text) is None
    assert fill_date(text, date(2026, 1, 5)) == filled
    assert has_date(text) == (text != filled)


@pytest.mark.parametrize(
    "text", ["{date:%H}", "{date:%Y-%M}", "{date:%B}", "{date:%-d}", "{date:%}", "{date:%日}", "{date:}", "{date:Y}"]
)
def test_what_makes_no_day_is_refused(text: str) -> None:
    """Hours, minutes and names of months are no day: refused with what may stand there."""
    fault = date_fault(f"in/{text}.csv")
    assert fault is not None
    assert text in fault
    assert "{date:%Y-%m-%d}" in fault


def test_a_date_that_is_not_closed() -> None:
    """A forgotten brace is no literal name."""
    fault = date_fault("in/{date:%Y.csv")
    assert fault is not None
    assert "is not closed" in fault


@PATIENT
@given(st.dates(min_value=date(1, 1, 1)), st.text(alphabet="aé甲 {}%[]*/.d", max_size=20))
def test_only_the_date_changes(day: date, around: str) -> None:
    """Whatever stands around it stays, and the default form reads back as the day."""
    filled = fill_date(f"{around}|{{date}}|{around}", day)
    before, middle, after = filled.split("|")
    assert (before, after) == (around, around)
    assert date.fromisoformat(middle) == day
    assert fill_date("{date:%Y-%m-%d}", day) == middle


@pytest.mark.parametrize(
    ("inputs", "output", "other"),
    [
        (["in/{date}.csv"], "out", -1),
        (["in/all.csv", "in/{date}.csv"], "out/{date:%Y-%m}", -1),
        (["in/{date}.csv"], "out/{date:%d}", 30),
        (["in/{date}.csv"], "out/{date:%m-%d}", -365),
        (["in/{date}.csv"], "out/{date:%Y%j}", None),
        (["in/{date:%Y-%m}.csv"], "out/{date:%Y-%m}", None),
        (["in/all.csv"], "out/{date}", None),
        (["in/all.csv"], "out", None),
    ],
)
def test_days_that_would_share_an_output(inputs: list[str], output: str, other: int | None) -> None:
    """A coarser date in the output than in the input makes two days meet; an output a day is always fine."""
    day = date(2026, 11, 29)
    expected = None if other is None else day + timedelta(days=other)
    assert day_with_the_same_output(inputs, output, day) == expected


def test_the_calendars_ends() -> None:
    """No day before the first."""
    assert day_with_the_same_output(["{date}"], "{date}", date.min) is None
    assert day_with_the_same_output(["{date}"], "out", date.max) == date.max - timedelta(days=1)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Shanghai", "did you mean Asia/Shanghai?"),
        ("asia/shangai", "did you mean Asia/Shanghai?"),
        ("Asia", "expected an IANA name"),
        ("../etc/passwd", "expected an IANA name"),
        ("CST6", "no time zone that this machine knows"),
    ],
)
def test_an_unknown_time_zone(name: str, hint: str) -> None:
    """A near name is offered."""
    with pytest.raises(ValueError, match=r"^found ") as caught:
        checked_time_zone(name)
    assert hint in str(caught.value)


def test_a_machine_without_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slim containers have no database: the message says what to install, and not that the name is wrong."""
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    monkeypatch.setattr(zoneinfo, "ZoneInfo", lambda _: (_ for _ in ()).throw(zoneinfo.ZoneInfoNotFoundError))
    with pytest.raises(ValueError, match="install tzdata"):
        checked_time_zone("Asia/Shanghai")
