"""The day that a job is about: `--date` read, and `{date:%Y-%m-%d}` in paths filled with it.

Pure: what time it is comes from the caller, and of the disk only the time zone database is read. Which keys hold paths,
and what a Slurm job began with, is settled in `job_dates` and `slurm.day`.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from batchzs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.slurm.day import SlurmClaim

#: A day given in full, or one that depends on when it is asked for.
AskedDate: TypeAlias = date | Literal["today", "yesterday"]

#: Of strftime's directives those that say something about a day, and nothing in any language.
DIRECTIVES = "YymdjFGgVuUWw"
_DEFAULT_FORMAT = "%Y-%m-%d"
_PLACE = re.compile(r"\{date(?::([^{}]*))?\}")
_OPEN_PLACE = re.compile(r"\{date:(?![^{}]*\})")
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
#: Days that paths are compared over: whoever has a year and a day after the same path has it again for good.
_COMPARED_DAYS = 366


@dataclass(frozen=True, slots=True)
class Day:
    """The day that a run is about, and how it came by it."""

    value: date
    why: str
    #: Whether the same command means this day whenever it is given.
    is_fixed: bool = True
    #: What a Slurm job writes down, so that it goes on with the same day when it is sent again.
    claim: SlurmClaim | None = None

    def __str__(self) -> str:
        return f"{self.value.isoformat()}, {self.why}"


def parse_date(text: str) -> AskedDate:
    """Read `--date`.

    Raises:
        UsageError: it is no day.

    >>> parse_date("yesterday"), parse_date("2026-11-29")
    ('yesterday', datetime.date(2026, 11, 29))
    """
    if text in ("today", "yesterday"):
        return "today" if text == "today" else "yesterday"
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text, re.ASCII):
            return date.fromisoformat(text)
    except ValueError as exc:
        raise UsageError(f"--date: {text} is no day of the calendar") from exc
    raise UsageError(f"--date: found {text!r}, expected today, yesterday, or a day such as 2026-11-29")


def resolve_day(asked: AskedDate | None, now: datetime, zone: str | None) -> Day:
    """Settle which day is meant.

    Args:
        asked: what `--date` says; None: today.
        now: the moment, in any zone.
        zone: the time zone in which days begin and end; None: the machine's.

    >>> from datetime import UTC
    >>> print(resolve_day("yesterday", datetime(2026, 11, 29, 17, tzinfo=UTC), "Asia/Shanghai"))
    2026-11-29, yesterday in Asia/Shanghai, where it is 2026-11-30 01:00
    """
    if isinstance(asked, date):
        return Day(asked, "as --date says")
    local = now.astimezone(None if zone is None else zoneinfo.ZoneInfo(zone))
    word = asked or "today"
    where = f"in {zone}, where it is" if zone is not None else "by this machine's clock, which says"
    value = local.date() - timedelta(days=1 if word == "yesterday" else 0)
    return Day(value, f"{word} {where} {local:%Y-%m-%d %H:%M}{'' if zone else f' {local:%Z}'}", is_fixed=False)


def checked_time_zone(name: str) -> str:
    """See that a time zone is known.

    Raises:
        ValueError: it is not, with what to write instead.
    """
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:  # OSError: a folder, such as Asia
        known = sorted(zoneinfo.available_timezones())
        if not known:
            raise ValueError(
                f'found "{name}", and this machine has no time zone database; install tzdata (the system\'s package, '
                "or pip install tzdata), or leave the key out to go by the machine's clock"
            ) from exc
        city = name.rpartition("/")[2].replace(" ", "_").casefold()
        near = [zone for zone in known if zone.rpartition("/")[2].casefold() == city]
        near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else "expected an IANA name, such as Asia/Shanghai"
        raise ValueError(f'found "{name}", which is no time zone that this machine knows; {hint}') from exc
    return name


def has_date(text: str) -> bool:
    """Whether a path asks for a date.

    >>> has_date("news-{date}.csv"), has_date("news-{date:%Y}.csv"), has_date("{a}/{}/{dates}.csv")
    (True, True, False)
    """
    return _PLACE.search(text) is not None or _OPEN_PLACE.search(text) is not None


def date_fault(text: str) -> str | None:
    """Say what is wrong with the dates in a path; None where nothing is.

    >>> date_fault("news-{date:%H}.csv")
    'found %H in {date:%H}, expected what makes a day: %Y %y %m %d %j %F %G %g %V %u %U %W %w, such as {date:%Y-%m-%d}'
    """
    if _OPEN_PLACE.search(text) is not None:
        return "{date: is not closed, expected {date} or one with a format, such as {date:%Y-%m-%d}"
    expected = f"expected what makes a day: {' '.join(f'%{letter}' for letter in DIRECTIVES)}"
    for place in _PLACE.finditer(text):
        written = _DEFAULT_FORMAT if place[1] is None else place[1]
        letters = [found[1] for found in _DIRECTIVE.finditer(written)]
        unknown = [letter for letter in letters if not letter or letter not in f"{DIRECTIVES}%"]
        if unknown:
            return f"found %{unknown[0]} in {place[0]}, {expected}, such as {{date:%Y-%m-%d}}"
        if not any(letter != "%" for letter in letters):
            return f"found nothing of a day in {place[0]}, {expected}, such as {{date:%Y-%m-%d}}"
    return None


def fill_date(text: str, day: date) -> str:
    """Put a day into a path without faults; what stands outside `{date...}` stays as it is.

    >>> fill_date("100%/{}/{date}/{date:%Y/%m/%d}.csv", date(2026, 11, 9))
    '100%/{}/2026-11-09/2026/11/09.csv'
    """
    return _PLACE.sub(lambda place: _format(_DEFAULT_FORMAT if place[1] is None else place[1], day), text)


def _format(written: str, day: date) -> str:
    def one(found: re.Match[str]) -> str:
        if found[1] == "%":
            return "%"
        if found[1] == "F":  # strftime leaves out the zeros of early years here, and in %Y and %G
            return day.isoformat()
        return day.strftime(f"%{found[1]}").zfill(4 if found[1] in "YG" else 0)

    return _DIRECTIVE.sub(one, written)


def day_with_the_same_output(inputs: Sequence[str], output: str, day: date) -> date | None:
    """Find another day that would read other input into the same output.

    Args:
        inputs: the input's paths, dates not filled in.
        output: the output's, likewise.
        day: the day that is asked for.

    Returns:
        The nearest such day within a year; None where there is none.

    >>> day_with_the_same_output(["in/{date}.csv"], "out/{date:%Y-%m}", date(2026, 11, 29))
    datetime.date(2026, 11, 28)
    >>> day_with_the_same_output(["in/{date:%Y-%m}.csv"], "out/{date}", date(2026, 11, 29)) is None
    True
    """
    own_output, own_inputs = fill_date(output, day), [fill_date(path, day) for path in inputs]
    for distance in range(1, _COMPARED_DAYS + 1):
        for step in (-distance, distance):
            try:
                other = day + timedelta(days=step)
            except OverflowError:  # the calendar's ends
                continue
            if fill_date(output, other) == own_output and [fill_date(path, other) for path in inputs] != own_inputs:
                return other
    return None
