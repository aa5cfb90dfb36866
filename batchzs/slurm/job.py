"""What a run inside a Slurm job asks of Slurm: how much time is left, and to run the job again.

A question has a short time-out and no answer is none: Slurm's client may be missing (in a container), hang, or be a
site's own script, and none of that stops or delays a run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

TIME_LEFT_TIMEOUT_S = 5.0
#: A busy controller takes its time, and behind this question nothing waits any more.
REQUEUE_TIMEOUT_S = 60.0
_TIME_LEFT = re.compile(r"(?:(?:([0-9]+)-)?([0-9]+):)?([0-9]+):([0-9]+)")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """The job that this process runs in.

    Its id is an array task's own: by its number alone, the first task's is the whole array's.
    """

    job_id: str
    end_time_s: float | None = None  # since 1970; newer versions of Slurm say it in the environment

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> SlurmJob | None:
        """Find the job; None outside of one.

        >>> array = {"SLURM_JOB_ID": "18", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}
        >>> SlurmJob.from_environment(array)
        SlurmJob(job_id='17_3', end_time_s=None)
        >>> SlurmJob.from_environment({"SLURM_JOB_ID": "18", "SLURM_JOB_END_TIME": "1764540000"})
        SlurmJob(job_id='18', end_time_s=1764540000.0)
        """
        job_id = environ.get("SLURM_JOB_ID", "")
        parts = [environ.get(f"SLURM_ARRAY_{name}_ID", "") for name in ("JOB", "TASK")]
        if all(map(_is_number, parts)):
            job_id = "_".join(parts)
        elif not _is_number(job_id):
            return None
        end_time = environ.get("SLURM_JOB_END_TIME", "")
        return SlurmJob(job_id, float(end_time) if _is_number(end_time) else None)

    def time_left_s(self) -> float | None:
        """Seconds until the job's time limit; None where there is none or nobody says so."""
        if self.end_time_s is not None:
            return self.end_time_s - time.time()
        squeue = shutil.which("squeue")
        if squeue is None:
            return None
        # The time that is left, and no clock time: Slurm's clock may be another one, and so may a container's zone.
        question = (squeue, "--noheader", "--states=all", f"--jobs={self.job_id}", "--format=%L")
        answer = ask(question, TIME_LEFT_TIMEOUT_S)
        if answer.code != 0:
            logger.info("Slurm does not say when this job's time is up: %s", answer.complaint)
            return None
        found = [seconds for line in answer.stdout.splitlines() if (seconds := parse_time_left(line)) is not None]
        return min(found, default=None)

    def requeue(self) -> str | None:
        """Have Slurm run this job again, which ends its processes at once.

        Returns:
            What is in the way; None where Slurm has agreed.
        """
        scontrol = shutil.which("scontrol")
        if scontrol is None:
            return "there is no scontrol here"
        answer = ask((scontrol, "requeue", self.job_id), REQUEUE_TIMEOUT_S)
        return None if answer.code == 0 else answer.complaint


def parse_time_left(text: str) -> float | None:
    """Read what squeue prints as time left: [days-][hours:]minutes:seconds; None for a word, such as UNLIMITED.

    >>> parse_time_left("1-02:00:30"), parse_time_left("4:59"), parse_time_left("UNLIMITED")
    (93630.0, 299.0, None)
    """
    found = _TIME_LEFT.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client of Slurm's answered; without a code where it did not end in time or could not be started."""

    code: int | None
    stdout: str
    complaint: str  # one line


def ask(command: tuple[str, ...], timeout_s: float) -> Answer:
    """Run a client of Slurm's, for no longer than so many seconds."""
    name = os.path.basename(command[0])  # noqa: PTH119 - a name for a message
    try:
        process = subprocess.Popen(  # noqa: S603 - found on PATH, with a job's number
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env={key: value for key, value in os.environ.items() if not key.startswith("SQUEUE_")},  # users' own views
            start_new_session=True,  # a script's own children are ended with it: they hold the pipes open
        )
    except OSError as exc:
        return Answer(None, "", f"{name}: {exc.strerror}")
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            return Answer(None, "", f"{name}: no answer within {timeout_s:.0f} s")
    lines = stderr.split("\n") + stdout.split("\n")
    said = next((line.strip() for line in lines if line.strip()), "without a word")
    return Answer(process.returncode, stdout, f"{name} ended with {process.returncode}: {said[:200]}")


def _is_number(text: str) -> bool:
    """Whether a text is a plain number, as Slurm writes its own."""
    return re.fullmatch("[0-9]{1,12}", text) is not None
