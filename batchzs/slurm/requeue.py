"""A run that stopped before its time limit asks Slurm to run its job again, where BATCHZS_REQUEUE=1 says so.

Few clusters requeue a job for its exit code, so the run asks itself, last of all: Slurm ends the job at once. It does
not ask after SIGTERM or SIGINT, because a cancelled job stays cancelled and a preempted one is requeued anyway, and not
after an attempt that got nowhere, because so would the next one, for ever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from batchzs.logs import fields
from batchzs.slurm.job import SlurmJob

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from batchzs.paths import RunPaths
    from batchzs.tasks import Task

logger = logging.getLogger(__name__)

VARIABLE = "BATCHZS_REQUEUE"


def requeue(environ: Mapping[str, str], obstacle: str | None) -> None:
    """Have Slurm run this process's job again, if that is asked for; say so, or what is in the way.

    Args:
        environ: the process's environment.
        obstacle: why running it again would lead nowhere; None where it goes on.
    """
    if environ.get(VARIABLE) != "1":
        return
    job = SlurmJob.from_environment(environ)
    if job is None:
        logger.warning("not requeued: %s is set, and this is no Slurm job", VARIABLE)
        return
    if obstacle is not None:
        logger.warning("not requeued: %s", obstacle)
        return
    logger.info("asking Slurm to requeue job %s", job.job_id, extra=fields("requeue", job_id=job.job_id))
    refusal = job.requeue()
    if refusal is not None:
        logger.warning("not requeued: %s; submit the same job again to go on", refusal)


def durable_progress(paths: RunPaths, task: Task | None) -> frozenset[tuple[str, int]]:
    """What a run, or a task of it, has on disk that the next attempt goes on from: names, and sizes of what grows.

    Two of these differ where something was settled, kept or published in between.
    """
    found = {(paths.run_record.name, 0)} if paths.run_record.exists() else set()
    for folder in (paths.scores, paths.journals):
        for path in folder.glob("part-[0-9]*"):
            index = path.stem.removeprefix("part-")
            # What other tasks do says nothing of this one.
            if task is None or (index.isdecimal() and task.holds(int(index))):
                found.add((path.name, _size(path) if folder == paths.journals else 0))
    return frozenset(found)


def obstacle_of(before: Collection[object], after: Collection[object], *, restart: bool) -> str | None:
    """Say why running the same command again would lead nowhere; None where it goes on.

    Args:
        before: what `durable_progress` found when the attempt began.
        after: what it found at its end.
        restart: whether the command begins anew each time.

    >>> obstacle_of({"run.json"}, {"run.json", "part-00000.parquet"}, restart=False)
    """
    if restart:
        return "the same command would begin anew, because of --restart: submit it without"
    if before == after:
        return "this attempt got nowhere, and so would the next one: give the job more time"
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # gone meanwhile: its shard was published
        return 0
