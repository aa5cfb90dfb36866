"""When a run has to be over: what `--deadline` says, or the time limit of the Slurm job that it runs in.

Says when, and whether that leaves enough time for something; how long things take is `pace`'s, and ending the run is
`stopping`'s. Slurm is asked by `slurm.job`.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from batchzs.errors import UsageError
from batchzs.slurm.job import SlurmJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What is never planned with: ending the process, releasing a GPU, a slow file system.
RESERVE_S = 5.0
#: In a Slurm job: a busy controller may take its time to requeue it, and the limit is the last moment to ask.
SLURM_RESERVE_S = 20.0
#: From here on a time limit is none: some versions of Slurm say no limit as a year.
_ENDLESS_S = 300 * 24 * 3600.0
_SPAN = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?|([0-9]{1,9})")
_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which the process has to be over.

    The wall clock counts, and not the time that has passed: a machine that slept meanwhile has lost that time.
    """

    at: datetime  # with its zone
    source: str  # who says so, for people
    reserve_s: float = RESERVE_S
    clock: Callable[[], float] = field(default=time.time, repr=False)  # seconds since 1970

    @property
    def left_s(self) -> float:
        """Seconds until then; negative afterwards."""
        return self.at.timestamp() - self.clock()

    def leaves(self, needed_s: float) -> bool:
        """Whether something that takes so long can still be done, and the process ended after it."""
        return self.left_s >= needed_s + self.reserve_s

    def __str__(self) -> str:
        return f"{self.at.astimezone():%Y-%m-%d %H:%M:%S}"


def find_deadline(text: str | None, environ: Mapping[str, str]) -> Deadline | None:
    """The earlier one of `--deadline` and the time limit of the Slurm job around this process; None without either.

    Args:
        text: what `--deadline` says, if it was given.
        environ: the process's environment.

    Raises:
        UsageError: `--deadline` is no time, or over already.
    """
    now = datetime.now(UTC).astimezone()
    found = [] if text is None else [Deadline(parse_deadline(text, now), "--deadline")]
    job = SlurmJob.from_environment(environ)
    left_s = None if job is None else job.time_left_s()
    # A limit that is over is not this process's: a shell that outlived its job still has that one's environment.
    if left_s is not None and 0 < left_s < _ENDLESS_S:
        found.append(Deadline(now + timedelta(seconds=left_s), "the Slurm job's", SLURM_RESERVE_S))
    return min(found, key=lambda one: one.at - timedelta(seconds=one.reserve_s), default=None)


def parse_deadline(text: str, now: datetime) -> datetime:
    """Read `--deadline`: a span from now, a time of day, or a date with a time.

    Args:
        text: 90m, 3h, 7h30m, 1d12h, or a number of seconds; 06:00, the next one by the local clock; or
            2026-12-01T06:00, local unless a zone follows (Z or +08:00).
        now: the time at which it is said, with its zone.

    Returns:
        The moment, with its zone.

    Raises:
        UsageError: it is none of these, or over already.

    >>> now = datetime(2026, 11, 30, 22, 15, tzinfo=UTC)
    >>> print(parse_deadline("7h30m", now), parse_deadline("2026-12-01T07:00+08:00", now))
    2026-12-01 05:45:00+00:00 2026-12-01 07:00:00+08:00
    """
    try:
        moment = _span(text, now) or _time_of_day(text, now) or _moment(text)
    except (ValueError, OverflowError) as exc:  # no such day, or beyond the year 9999
        raise _bad(text) from exc
    if moment is None:
        raise _bad(text)
    if moment <= now:
        raise UsageError(f"--deadline: {text} is over, it is {now:%Y-%m-%d %H:%M:%S %z} now: give a later one")
    return moment


def _bad(text: str) -> UsageError:
    return UsageError(
        f"--deadline: found {text!r}, expected a span such as 90m, 7h30m or 5400 (seconds), a time of day such as "
        "06:00, or a date and time such as 2026-12-01T06:00 or 2026-12-01T06:00+08:00"
    )


def _span(text: str, now: datetime) -> datetime | None:
    found = _SPAN.fullmatch(text)
    if found is None or not text:
        return None
    days, hours, minutes, seconds, only_seconds = (int(group or 0) for group in found.groups())
    return now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds + only_seconds)


def _time_of_day(text: str, now: datetime) -> datetime | None:
    found = _TIME_OF_DAY.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = (int(group or 0) for group in found.groups())
    today = now.astimezone().replace(hour=hour, minute=minute, second=second, microsecond=0, tzinfo=None)
    # Each day's own offset counts: summer time may begin or end in between.
    return next(moment for day in (0, 1, 2) if (moment := (today + timedelta(days=day)).astimezone()) > now)


def _moment(text: str) -> datetime | None:
    if _MOMENT.fullmatch(text) is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.astimezone()
