"""A whole run: hold the output, prepare, score what is missing shard by shard, finish.

A shard is read, scored, written under a temporary name and renamed; its record follows. Nothing is marked done before
its rows are durable, so the process may die at any line here and the same command goes on.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from batchzs.durable import (
    hold_lock,
    lock_holder,
    make_folders,
    publish_bytes,
    refuse_links,
    remove,
    wait_for_lock,
)
from batchzs.errors import TooManyBadRowsError
from batchzs.input_now import remove_end
from batchzs.kept_settings import say_what_is_kept
from batchzs.logs import fields, log_to_file
from batchzs.metrics import recording_metrics
from batchzs.pace import pace_of
from batchzs.prepare import prepare_run
from batchzs.records import ShardRecord, count_quarantined, write_record
from batchzs.resources import adopt, load_pair_model, place, place_workers, release_device_memory
from batchzs.resume import complete_shards, describe_indices, num_later_shards, sweep_temporary_files
from batchzs.space import carried_bytes, compare_space, estimated_bytes
from batchzs.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from batchzs.dates import Day
    from batchzs.durable import HeldLock
    from batchzs.job import JobConfig
    from batchzs.models.device import Placement
    from batchzs.pace import Pace
    from batchzs.paths import RunPaths
    from batchzs.plan import Shard
    from batchzs.prepare import PreparedRun, RunContext
    from batchzs.records import Resolved, Summary
    from batchzs.resume import SettledRun

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: the numbers, and how long this command scored; None where everything was done before.

    `num_elsewhere` counts the shards of other tasks that are not there yet; the numbers are then those of this task's.
    """

    summary: Summary
    wall_s: float | None
    num_elsewhere: int = 0
    has_finished: bool = False  # it is this command that found every shard there and wrote the end


def run_job(context: RunContext) -> Outcome:
    """Score everything that the job asks for, or that this task takes of it, and that is not scored yet.

    Raises:
        BatchzsError: of any kind; what is published stays and the same command goes on from it.
    """
    paths, hook, task = context.paths, context.hook, context.options.task
    started_s = time.monotonic()
    refuse_links(paths.state, *paths.folders)  # before anything is made: not even a folder is, elsewhere
    make_folders(*paths.folders)
    with _locked(context) as locks, recording_metrics(context) as metrics:
        is_alone = all(lock.is_held for lock in locks)
        context = replace(context, progress=metrics)
        log_to_file(paths.log if task is None else paths.task_log(task))
        if context.options.day is not None:
            _begin_day(paths, context.options.day)
        context.stop.announce()
        if hook.is_active:
            logger.warning("TEST HOOK in force: %s; these results are no real ones", hook.description)
        if is_alone and task is None:
            sweep_temporary_files(paths)
        _warn_of_one_label(context.job)
        run = _prepare(context)
        shards = run.shards if task is None else task.part_of(run.shards)
        done = complete_shards(run, shards)
        for index in done:  # a kill between a shard's record and its journal's end leaves the journal
            remove(paths.journal(index))
        missing = [shard for shard in shards if shard.index not in done]
        _say_what_is_done(run, shards, done, missing)
        if missing:
            remove_end(paths)
            is_shared_out = context.job.engine.device == "all"
            if is_shared_out:
                run = replace(run, loaded=None)  # the workers load their own, and here its memory is free again
            done |= _score_missing(run, shards, done, missing, locks)
            if is_shared_out and is_alone and task is None:  # a worker that died may have left some
                sweep_temporary_files(paths)
            if not is_alone:  # another run may have written the same shards since, and records with other times
                done = complete_shards(run, shards)
        elif task is None and paths.success.exists() and paths.summary.exists():
            outcome = Outcome(summary_of(run, done), None)
            metrics.conclude(outcome.summary, _exit_code(outcome))
            return outcome
        hook.reach("run-finished")
        outcome = _finish(run, done)
        metrics.conclude(summary_of(run, done), _exit_code(outcome))
        wall_s = time.monotonic() - started_s if missing or task is None else None
        return replace(outcome, wall_s=wall_s)


@contextmanager
def _locked(context: RunContext) -> Iterator[tuple[HeldLock, ...]]:
    """Hold the whole output, or a task's part of it while no whole run holds the output.

    Yields:
        The locks; on a file system that has none they are not held.
    """
    paths, task, holder = context.paths, context.options.task, lock_holder()
    if task is None:
        with hold_lock(paths.lock, holder) as whole:
            yield (whole,)
        return
    with (
        hold_lock(paths.lock, holder, shared=True) as whole,
        hold_lock(paths.task_lock(task), holder, part=f"part {task}") as part,
    ):
        yield whole, part


def _begin_day(paths: RunPaths, day: Day) -> None:
    """Say which day it is, and write it down where this very job must go on with it."""
    logger.info("the date is %s", day, extra=fields("date", date=day.value.isoformat(), why=day.why))
    if day.claim is not None:
        day.claim.write(paths, day.value)


def _prepare(context: RunContext) -> PreparedRun:
    """Prepare the run; of several tasks that begin it at once one settles it, and the others take that over."""
    paths, task = context.paths, context.options.task
    if task is None:
        return prepare_run(context)
    logger.info(
        "this is part %s: every shard whose number, divided by %d, leaves %d", task, task.total, task.number - 1
    )
    if not paths.run_record.exists():
        with wait_for_lock(paths.plan_lock, lock_holder(), context.stop.check):
            if not paths.run_record.exists():
                return prepare_run(context)
    return prepare_run(context)


def _finish(run: PreparedRun, done: dict[int, ShardRecord]) -> Outcome:
    """Write the summary and `_SUCCESS` where every shard is there; whoever completes the last one does so, once."""
    paths = run.paths
    if run.context.options.task is None:
        return Outcome(write_end(run, done), None, has_finished=True)
    absent = [shard for shard in run.shards if shard.index not in done and not paths.shard(shard.index).exists()]
    if not absent and num_later_shards(run) is None:
        with wait_for_lock(paths.finish_lock, lock_holder(), run.context.stop.check):
            if paths.success.exists() and paths.summary.exists():
                return Outcome(summary_of(run, done), None)
            everything = complete_shards(run, run.shards)
            absent = [shard for shard in run.shards if shard.index not in everything]
            if not absent:
                return Outcome(write_end(run, everything), None, has_finished=True)
    # Another task may have taken in new files since this one began, and ends the run with their shards.
    num_later = num_later_shards(run) or 0
    logger.info(
        "part %s is complete; %d of %d shards are other parts' and not there yet",
        run.context.options.task,
        len(absent) + num_later,
        len(run.shards) + num_later,
        extra=fields("part_finished", shards_absent=len(absent) + num_later),
    )
    return Outcome(summary_of(run, done), None, len(absent) + num_later)


def write_end(run: SettledRun, done: dict[int, ShardRecord]) -> Summary:
    """Write the summary and `_SUCCESS`; every shard is there."""
    paths, summary = run.paths, summary_of(run, done)
    write_record(paths.summary, summary, paths.temporary)
    publish_bytes(paths.success, b"", paths.temporary)
    if num_later_shards(run) is not None:  # see where a generation is settled
        remove_end(paths)
    logger.info(
        "finished: %s rows in %s, %d quarantined",
        f"{summary.num_rows:,}",
        paths.scores,
        summary.num_quarantined,
        extra=fields("finished", rows=summary.num_rows, quarantined=summary.num_quarantined),
    )
    return summary


def _exit_code(outcome: Outcome) -> int:
    """The code that the command will end with: what share is quarantined is judged over everything, and afterwards."""
    try:
        if not outcome.num_elsewhere:
            refuse_too_many_bad_rows(outcome.summary)
    except TooManyBadRowsError as exc:
        return exc.exit_code
    return 0


def refuse_too_many_bad_rows(summary: Summary) -> None:
    """Do nothing where the quarantined share is allowed.

    Raises:
        TooManyBadRowsError: it is above `input.max_bad_share`.
    """
    if summary.quarantined_share > summary.max_bad_share:
        raise TooManyBadRowsError(
            f"{summary.num_quarantined:,} of {summary.num_rows:,} rows ({summary.quarantined_share:.2%}) are "
            f"quarantined, more than input.max_bad_share allows ({summary.max_bad_share:.2%}). Every row is in the "
            "output: `batchzs bad` lists the damaged ones; mend them, or raise input.max_bad_share and run again, "
            "which scores nothing anew"
        )


def _score_missing(
    run: PreparedRun,
    shards: Sequence[Shard],
    done: dict[int, ShardRecord],
    missing: Sequence[Shard],
    locks: Sequence[HeldLock],
) -> dict[int, ShardRecord]:
    progress = run.context.progress
    run.context.stop.check()
    _compare_space(run, missing)
    placement = place(run.job, run.context.hook)
    resolved = adopt(run.job, run.record.resolved, placement)
    say_what_is_kept(run.job, run.record, resolved)
    if run.job.engine.device == "all":
        score = _scoring_everywhere(run, placement, resolved, locks)
    else:
        score = _scoring_here(run, placement, resolved, pace_of(done.values()))
    num_rows = sum(shard.num_rows for shard in shards)
    progress.start(num_rows, num_rows - sum(shard.num_rows for shard in missing))
    before = done.values()
    progress.publish(sum(record.num_pairs for record in before), sum(record.num_tokens for record in before))
    progress.quarantine(sum(count_quarantined(record.statuses) for record in before))
    try:
        return score(missing)
    finally:
        progress.close()


def _scoring_here(
    run: PreparedRun, placement: Placement, resolved: Resolved, pace: Pace
) -> Callable[[Sequence[Shard]], dict[int, ShardRecord]]:
    """Make ready to score shards in this process."""
    from batchzs.shards import Attempt, ListedShards, ShardPipeline  # Polars and pyarrow, which a finished job spares

    context = run.context
    model = run.loaded or load_pair_model(run.opened, placement, resolved, context.hook, context.stop.check).model
    attempt = Attempt(_next_attempt(run.paths), placement, resolved, pace)
    _say_what_scores(run, attempt.number, [placement], resolved)
    return lambda shards: ShardPipeline(run, attempt, model).run(ListedShards(shards))


def _scoring_everywhere(
    run: PreparedRun, placement: Placement, resolved: Resolved, locks: Sequence[HeldLock]
) -> Callable[[Sequence[Shard]], dict[int, ShardRecord]]:
    """Make ready to score shards in a process a device."""
    from batchzs.workers.pool import Fleet, WorkerPool

    release_device_memory(placement.kind)  # the preparing may have loaded a model, which is gone by now
    placements = place_workers(run.job, placement)
    fleet = Fleet(placements, _next_attempt(run.paths, len(placements)), resolved, [lock.descriptor for lock in locks])
    _say_what_scores(run, fleet.attempt, placements, resolved)
    return WorkerPool(run, fleet).run


def _say_what_scores(run: PreparedRun, attempt: int, placements: Sequence[Placement], resolved: Resolved) -> None:
    counts = Counter(placement.name for placement in placements)
    names = [f"{count} x {name}" if count > 1 else name for name, count in counts.items()]
    if placements[0].kind == "cpu" and len(placements) > 1:
        names = [f"{placements[0].name} in {len(placements)} processes"]
    logger.info(
        "attempt %d: scoring in %s on %s, workers: %d, batch tokens: %s, model %s",
        attempt,
        resolved.precision,
        ", ".join(names),
        resolved.workers,
        f"{resolved.max_batch_tokens:,}",
        run.opened.checkpoint.directory,
        extra=fields(
            "scoring_started",
            attempt=attempt,
            device=", ".join(dict.fromkeys(placement.device for placement in placements)),
            **resolved.model_dump(),
        ),
    )


def _warn_of_one_label(job: JobConfig) -> None:
    """A list typed with full-width commas is one label to YAML, and would cost a night."""
    (*others, label) = job.labels
    if not others and any(mark in label.name for mark in "，、"):
        logger.warning("labels: found one label, %s: for several, write plain commas between them", label.name)


def _compare_space(run: PreparedRun, missing: Sequence[Shard]) -> None:
    num_rows = sum(shard.num_rows for shard in missing)
    carried = carried_bytes(run.job, run.inputs.files) * num_rows / max(run.inputs.num_rows, 1)
    compare_space(run.paths.output, estimated_bytes(run.job, num_rows, round(carried)))


def _say_what_is_done(
    run: PreparedRun, shards: Sequence[Shard], done: dict[int, ShardRecord], missing: Sequence[Shard]
) -> None:
    if not done:
        return
    extra = fields("resuming", shards_done=len(done), shards_missing=len(missing))
    if missing:
        logger.info(
            "going on: %d of %d shards are complete (%s), scoring the other %d (%s)",
            len(done),
            len(shards),
            describe_indices(sorted(done)),
            len(missing),
            describe_indices([shard.index for shard in missing]),
            extra=extra,
        )
    else:
        logger.info("all %d shards are complete: nothing to score", len(done), extra=extra)
        say_what_is_kept(run.job, run.record, run.record.resolved)


def _next_attempt(paths: RunPaths, num_processes: int = 1) -> int:
    """Count the attempts that scored; one more than the last one that left its number.

    How many processes score goes behind it, for `batchzs status`.
    """
    try:
        number = int(paths.attempt.read_bytes().partition(b" ")[0]) + 1
    except (OSError, ValueError):
        number = 1
    processes = b" %d" % num_processes if num_processes > 1 else b""
    publish_bytes(paths.attempt, b"%d%b\n" % (number, processes), paths.temporary)
    return number


def summary_of(run: SettledRun, done: dict[int, ShardRecord]) -> Summary:
    """Add up what is done."""
    return summarise(run.job, run.paths, run.record, [done[index] for index in sorted(done)])
