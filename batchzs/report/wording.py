"""Numbers, shares and times in words."""

from __future__ import annotations

from datetime import UTC, datetime


def number(value: float | None) -> str:
    """Write a whole number.

    >>> number(1234567), number(None)
    ('1,234,567', 'unknown')
    """
    return "unknown" if value is None else f"{value:,.0f}"


def share(part: float, whole: float) -> str:
    """Write a part of a whole in percent: a part that is there is never 0 %, one that lacks something never 100 %.

    >>> share(1, 3), share(1, 100_000), share(99_999, 100_000), share(0, 5), share(5, 5), share(0, 0)
    ('33.3 %', '<0.1 %', '>99.9 %', '0 %', '100 %', '0 %')
    """
    if not part:
        return "0 %"
    percent = 100 * part / whole
    if part == whole:
        return "100 %"
    if percent < 0.05:
        return "<0.1 %"
    return ">99.9 %" if percent >= 99.95 else f"{percent:.1f} %"


def moment(time: str | float) -> str:
    """Write a time in UTC.

    >>> moment("2026-11-30T03:01:00+00:00"), moment(0.0), moment("long ago")
    ('2026-11-30 03:01 UTC', '1970-01-01 00:00 UTC', 'long ago')
    """
    try:
        found = datetime.fromisoformat(time) if isinstance(time, str) else datetime.fromtimestamp(time, UTC)
    except ValueError:
        return str(time)
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def moment_of_day(time_s: float) -> str:
    """Write a time in UTC to the second.

    >>> moment_of_day(61.0)
    '1970-01-01 00:01:01'
    """
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
