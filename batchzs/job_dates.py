"""The dates in a job's paths: filled in while the job is still raw values with their places.

Which day it is comes from `--date`, or from the Slurm job that this process belongs to; `dates` does the arithmetic.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from batchzs.dates import (
    AskedDate,
    Day,
    checked_time_zone,
    date_fault,
    day_with_the_same_output,
    fill_date,
    has_date,
    resolve_day,
)
from batchzs.job_checks import value_at
from batchzs.located import KeyPath, Located, Place, Problem
from batchzs.slurm.day import LATEST_DAYS, SlurmClaim, SlurmOrigin, refuse_several_days

if TYPE_CHECKING:
    from collections.abc import Callable

_INPUT: KeyPath = ("input", "path")
_OUTPUT: KeyPath = ("output", "path")


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class DateRequest:
    """What is known of the day before the job is read."""

    asked: AskedDate | None = None  # what --date says
    slurm: SlurmOrigin | None = None
    now: Callable[[], datetime] = _now


def fill_dates(job: Located, request: DateRequest) -> Day | None:
    """Put the day into `input.path` and `output.path`, and report what is wrong with dates there.

    Args:
        job: the job, its paths as they are written.
        request: what is known of the day.

    Returns:
        The day; None where no path has a date, or one cannot be filled.

    Raises:
        UsageError: tasks of this Slurm job began with different days.
    """
    texts = _texts(job)
    dated = {path: text for path, text in texts.items() if has_date(text)}
    faults = {path: fault for path, text in dated.items() if (fault := date_fault(text)) is not None}
    for path, fault in faults.items():
        job.report(path, fault)
    if not dated and request.asked is not None:
        message = (
            "no path of this job has a date in it; write {date} where the day belongs in input.path and output.path"
        )
        job.problems.append(Problem(Place("--date", Path()), (), message))
    if not dated or faults:
        return None
    day = _day(job, request, texts.get(_OUTPUT))
    _report_one_output_for_many_days(job, texts, day.value)
    for path, text in dated.items():
        parent = value_at(job, path[:-1])[1]
        parent[path[-1]] = fill_date(text, day.value)
    return day


def _texts(job: Located) -> dict[KeyPath, str]:
    """The paths that may have dates, by their keys."""
    _, inputs = value_at(job, _INPUT)
    values = {_INPUT: inputs, _OUTPUT: value_at(job, _OUTPUT)[1]}
    if isinstance(inputs, list):
        values |= {(*_INPUT, index): each for index, each in enumerate(inputs)}
    return {path: value for path, value in values.items() if isinstance(value, str)}


def _day(job: Located, request: DateRequest, output: str | None) -> Day:
    zone = _zone(job)
    day = resolve_day(request.asked, request.now(), zone)
    if day.is_fixed or request.slurm is None or output is None:
        return day
    # One day more than the clock says: the clock of the machine that began may have been ahead.
    days = [day.value + timedelta(days=1 - back) for back in range(LATEST_DAYS + 2)]
    base = job.place(_OUTPUT).base
    outputs = dict.fromkeys(Path(os.path.abspath(base / fill_date(output, each))) for each in days)  # noqa: PTH100 - as job_checks has it
    claim = SlurmClaim(f"{request.slurm.name}-{request.asked or 'today'}", tuple(outputs))
    if request.slurm.may_have_begun:
        begun = claim.days()
        refuse_several_days(begun)
        if begun:
            day = replace(day, value=begun[0], why=f"which Slurm job {request.slurm.name} began with")
    return replace(day, claim=claim)


def _zone(job: Located) -> str | None:
    """The job's time zone; where it is none, the schema says so, and any other does until then."""
    _, zone = value_at(job, ("input", "time_zone"))
    try:
        return checked_time_zone(zone) if isinstance(zone, str) else None
    except ValueError:
        return None


def _report_one_output_for_many_days(job: Located, texts: dict[KeyPath, str], day: date) -> None:
    """Two days with different input and one output: the second day would be refused as another input of the first."""
    inputs = [text for path, text in texts.items() if path != _OUTPUT]
    if _OUTPUT not in texts:
        return
    other = day_with_the_same_output(inputs, texts[_OUTPUT], day)
    if other is None:
        return
    message = (
        "input.path has a date in it, and this path has none: every day would meet the first day's output; "
        "write {date} here too"
    )
    if has_date(texts[_OUTPUT]):
        message = (
            f"is the same for {day.isoformat()} and {other.isoformat()}, and input.path is not: one day would meet "
            "the other's output; write {date} here"
        )
    job.report(_OUTPUT, message)
