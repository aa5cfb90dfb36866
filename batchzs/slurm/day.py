"""The day that a Slurm job began with: a job that is sent again after midnight, and every task of an array, takes it.

Slurm keeps no time of a job's first start that outlasts a requeue. So a run that was given no day in full leaves a note
in its output, under the Slurm job's number; one that is sent again, or is a task of an array, looks for that note in
the outputs of the latest days before it takes a day of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from batchzs.durable import publish_bytes
from batchzs.errors import UsageError
from batchzs.paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: So many days back a note is looked for. A job that waits longer in the queue than this begins with a day of its own.
LATEST_DAYS = 60


@dataclass(frozen=True, slots=True)
class SlurmOrigin:
    """The Slurm job that a process belongs to; all tasks of an array have one name."""

    name: str
    #: Whether it may have begun before: it was sent again, or other tasks of its array may have begun.
    may_have_begun: bool


@dataclass(frozen=True, slots=True)
class SlurmClaim:
    """Where the note of one Slurm job may lie: one name, in the outputs of the latest days."""

    name: str
    outputs: tuple[Path, ...]

    def days(self) -> list[date]:
        """The days that this Slurm job began with, as far as there are notes: none, one, or by mistake several."""
        found = {_read(RunPaths(output).slurm_day(self.name)) for output in self.outputs}
        return sorted(day for day in found if day is not None)

    def write(self, paths: RunPaths, day: date) -> None:
        """Leave the note; the output's folders are there.

        Raises:
            UsageError: another task of the array has begun with another day in the same moment.
            MachineError: it cannot be written.
        """
        path = paths.slurm_day(self.name)
        if _read(path) != day:
            publish_bytes(path, f"{day.isoformat()}\n".encode(), paths.temporary)
        refuse_several_days(self.days())


def slurm_origin(environ: Mapping[str, str]) -> SlurmOrigin | None:
    """Find the Slurm job of a process; None outside Slurm.

    >>> slurm_origin({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1", "SLURM_CLUSTER_NAME": "c 1"})
    SlurmOrigin(name='c-1-12', may_have_begun=True)
    >>> slurm_origin({"SLURM_JOB_ID": "13", "SLURM_ARRAY_JOB_ID": "12"}).name
    'slurm-12'
    """
    array_id = environ.get("SLURM_ARRAY_JOB_ID", "")
    job_id = array_id or environ.get("SLURM_JOB_ID", "")
    if not job_id.isdecimal():
        return None
    restarts = environ.get("SLURM_RESTART_COUNT", "")
    cluster = re.sub(r"[^A-Za-z0-9._]+", "-", environ.get("SLURM_CLUSTER_NAME", "")) or "slurm"
    return SlurmOrigin(f"{cluster}-{job_id}", bool(array_id) or (restarts.isdecimal() and int(restarts) > 0))


def refuse_several_days(days: list[date]) -> None:
    """Do nothing where a Slurm job has at most one day.

    Raises:
        UsageError: its tasks began with several.
    """
    if len(days) > 1:
        raise UsageError(
            f"tasks of this Slurm job began with different days ({', '.join(day.isoformat() for day in days)}), around "
            "midnight: submit it again with --date in full, such as --date " + days[0].isoformat()
        )


def _read(path: Path) -> date | None:
    try:
        return date.fromisoformat(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None
