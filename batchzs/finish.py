"""The closing step of a run in parts: see whether every shard is there, write the end, or say what is missing.

Also what of a run is unfinished, for who is about to send tasks. From the output alone: neither the input nor the model
is looked at, and nothing is scored.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from batchzs.durable import hold_lock, lock_holder, make_folders, refuse_links, remove, wait_for_lock
from batchzs.errors import DifferenceError
from batchzs.fingerprint import fingerprint_of, refuse_other_job
from batchzs.finished import is_there, open_run
from batchzs.inputs.discovery import find_files
from batchzs.logs import fields, log_to_file
from batchzs.prepare import read_spec
from batchzs.resources import precision_again
from batchzs.resume import complete_shards, describe_indices
from batchzs.run import summary_of, write_end
from batchzs.status import read_status
from batchzs.tasks import Task
from batchzs.test_hook import TestHook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from batchzs.finished import FinishedRun
    from batchzs.job import JobConfig
    from batchzs.paths import RunPaths
    from batchzs.plan import Selection
    from batchzs.records import ShardRecord, Summary

logger = logging.getLogger(__name__)

#: So many parts are described one by one; where more are missing, one reason is mostly everybody's.
_SHOWN_PARTS = 20


def refuse_changed_job(run: FinishedRun, job: JobConfig, selection: Selection) -> None:
    """Do nothing where a run was begun by this job, as far as that shows without its model.

    Raises:
        OtherJobError: naming every field that differs.
    """
    begun = run.record
    precision = precision_again(job, begun.resolved, TestHook(stand_in="stand_in" in begun.test_hook))
    now = fingerprint_of(job, begun.model, precision, selection, begun.test_hook)
    refuse_other_job(begun.fingerprint, now, run.paths.output)


def unfinished_parts(
    paths: RunPaths, job: JobConfig, selection: Selection, num_tasks: int, *, new_files: bool = False
) -> list[int]:
    """Find the parts that have shards to do, for this number of parts; before a run has begun that is each.

    Args:
        paths: the output.
        job: the job that is to go on.
        selection: which rows are scored.
        num_tasks: how many parts there are.
        new_files: whether tasks are to take in files that the output has not seen: then each may have some to do.

    Returns:
        Their numbers, from 1; none where every shard is there.

    Raises:
        OtherJobError: the output was begun by another job.
        DifferenceError: its state is damaged.
    """
    if not is_there(paths.run_record):
        return list(range(1, num_tasks + 1))
    run = open_run(paths.output)
    refuse_changed_job(run, job, selection)
    make_folders(*paths.folders)
    missing = _missing_shards(run, complete_shards(run, run.shards))
    if not missing and new_files and _has_new_files(run, job):
        return list(range(1, num_tasks + 1))
    return _parts_of(missing, num_tasks)


def finish_run(
    paths: RunPaths, job: JobConfig | None, num_tasks: int | None, check_stop: Callable[[], None]
) -> Summary:
    """Write the summary and `_SUCCESS` where every shard is there and no task did.

    Args:
        paths: the output.
        job: the job as it is now, which says how many rows may be quarantined; None: as it was when the run began.
        num_tasks: how many parts the run is done in; None: as many as it was begun with.
        check_stop: called while this takes long; what it raises ends it.

    Raises:
        UsageError: the folder holds no run.
        DifferenceError: shards are missing; or the state is damaged.
        LockedError: a whole run holds the output.
        OtherJobError: the output was begun by another job.
    """
    if num_tasks is not None and not is_there(paths.run_record) and is_there(paths.slurm):
        raise DifferenceError(
            f"{paths.output}: none of {num_tasks} parts has begun: {paths.slurm} holds what they printed; mend that, "
            f"and send them again with `batchzs slurm`"
        )
    run = replace(open_run(paths.output), check=check_stop)
    if job is not None:
        refuse_changed_job(run, job, run.selection)
        run = replace(run, job=job)
    refuse_links(paths.state, *paths.folders)
    make_folders(*paths.folders)
    with (
        hold_lock(paths.lock, lock_holder(), shared=True),
        wait_for_lock(paths.finish_lock, lock_holder(), check_stop),
    ):
        log_to_file(paths.log)
        done = complete_shards(run, run.shards)
        missing = _missing_shards(run, done)
        if missing:
            remove(paths.success)  # it says that every shard is there
            _refuse_incomplete(run, missing, num_tasks or run.record.num_tasks)
        if paths.success.exists() and paths.summary.exists():
            return summary_of(run, done)
        return write_end(run, done)


def _has_new_files(run: FinishedRun, job: JobConfig) -> bool:
    names = {file.found.name for file in run.inputs.files}
    return any(file.name not in names for file in find_files(read_spec(job), exclude=[run.paths.output]))


def _missing_shards(run: FinishedRun, done: dict[int, ShardRecord]) -> list[int]:
    return [shard.index for shard in run.shards if shard.index not in done]


def _parts_of(shards: Sequence[int], num_tasks: int) -> list[int]:
    """The parts that hold some shards.

    >>> _parts_of([1, 4, 5], 4)
    [1, 2]
    """
    return sorted({index % num_tasks + 1 for index in shards})


def _refuse_incomplete(run: FinishedRun, missing: Sequence[int], num_tasks: int | None) -> None:
    paths = run.paths
    found = f"{len(missing):,} of {len(run.shards):,} shards are not there ({describe_indices(missing)})"
    if num_tasks is None:
        raise DifferenceError(f"{paths.output}: is not complete: {found}: `batchzs run` on its job goes on")
    parts = _parts_of(missing, num_tasks)
    workers = {worker.name: worker for worker in read_status(paths).workers}
    for number in parts[:_SHOWN_PARTS]:
        task = Task(number, num_tasks)
        worker = workers.get(task.name)
        if worker is None:
            what = "has not begun"
        elif worker.holder is not None:
            what = f"is at work: {worker.holder}"
        else:
            what = (
                f"ended: {worker.trouble}"
                if worker.trouble
                else "is not at work, and its log ends without a reason, as after a kill"
            )
        logger.warning("part %s %s", task, what, extra=fields("part_missing", part=str(task)))
    named = "part" if len(parts) == 1 else "parts"
    raise DifferenceError(
        f"{paths.output}: is not complete: {found}, of {named} {describe_indices(parts)} of {num_tasks}: "
        f"`batchzs slurm` on its job with --tasks {num_tasks} sends these again, and `batchzs run` does them here"
    )
