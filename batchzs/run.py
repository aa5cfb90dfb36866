"""A whole run: hold the output, prepare, score what is missing shard by shard, finish.

A shard is read, scored, written under a temporary name and renamed; its record follows. Nothing is marked done before
its rows are durable, so the process may die at any line here and the same command goes on.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from batchzs.durable import hold_lock, make_folders, publish_bytes, refuse_links, remove
from batchzs.errors import TooManyBadRowsError
from batchzs.logs import fields, log_to_file
from batchzs.prepare import prepare_run
from batchzs.records import ShardRecord, write_record
from batchzs.resources import adopt, load_pair_model, place
from batchzs.resume import complete_shards, describe_indices, sweep_temporary_files
from batchzs.space import compare_space, estimated_bytes
from batchzs.summary import count_quarantined, summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.job import JobConfig
    from batchzs.paths import RunPaths
    from batchzs.plan import Shard
    from batchzs.prepare import PreparedRun, RunContext
    from batchzs.records import Summary

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: the numbers, and how long this command scored; None where everything was done before."""

    summary: Summary
    wall_s: float | None


def run_job(context: RunContext) -> Outcome:
    """Score everything that the job asks for and that is not scored yet.

    Raises:
        BatchzsError: of any kind; what is published stays and the same command goes on from it.
    """
    paths, hook = context.paths, context.hook
    started_s = time.monotonic()
    refuse_links(paths.state, *paths.folders)  # before anything is made: not even a folder is, elsewhere
    make_folders(*paths.folders)
    holder = f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    with hold_lock(paths.lock, holder) as is_alone:
        log_to_file(paths.log)
        if hook.is_active:
            logger.warning("TEST HOOK in force: %s; these results are no real ones", hook.description)
        if is_alone:
            sweep_temporary_files(paths)
        _warn_of_one_label(context.job)
        run = prepare_run(context)
        done = complete_shards(run)
        for index in done:  # a kill between a shard's record and its journal's end leaves the journal
            remove(paths.journal(index))
        missing = [shard for shard in run.shards if shard.index not in done]
        _say_what_is_done(run, done, missing)
        if missing:
            for path in (paths.success, paths.summary):
                remove(path)
            done |= _score_missing(run, done, missing)
            if not is_alone:  # another run may have written the same shards since, and records with other times
                done = complete_shards(run)
        elif paths.success.exists() and paths.summary.exists():
            return Outcome(_summary(run, done), None)
        hook.reach("run-finished")
        summary = _summary(run, done)
        write_record(paths.summary, summary, paths.temporary)
        publish_bytes(paths.success, b"", paths.temporary)
        logger.info(
            "finished: %s rows in %s, %d quarantined",
            f"{summary.num_rows:,}",
            paths.scores,
            summary.num_quarantined,
            extra=fields("finished", rows=summary.num_rows, quarantined=summary.num_quarantined),
        )
        return Outcome(summary, time.monotonic() - started_s)


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


def _score_missing(run: PreparedRun, done: dict[int, ShardRecord], missing: Sequence[Shard]) -> dict[int, ShardRecord]:
    from batchzs.shards import Attempt, ShardPipeline  # Polars and pyarrow, which a finished job does without

    hook, progress = run.context.hook, run.context.progress
    run.context.stop.check()
    _compare_space(run, missing)
    placement = place(run.job, hook)
    resolved = adopt(run.job, run.record.resolved, placement)
    model = run.loaded or load_pair_model(run.opened, placement, resolved, hook).model
    attempt = Attempt(_next_attempt(run.paths), placement, resolved)
    logger.info(
        "attempt %d: scoring in %s on %s, workers: %d, batch tokens: %s, model %s",
        attempt.number,
        resolved.precision,
        placement.name,
        resolved.workers,
        f"{resolved.max_batch_tokens:,}",
        run.opened.checkpoint.directory,
        extra=fields("scoring_started", attempt=attempt.number, device=placement.device, **resolved.model_dump()),
    )
    num_rows = sum(shard.num_rows for shard in run.shards)
    progress.start(num_rows, num_rows - sum(shard.num_rows for shard in missing))
    progress.quarantine(sum(count_quarantined(record.statuses) for record in done.values()))
    try:
        return ShardPipeline(run, attempt, model).run(missing)
    finally:
        progress.close()


def _warn_of_one_label(job: JobConfig) -> None:
    """A list typed with full-width commas is one label to YAML, and would cost a night."""
    (*others, label) = job.labels
    if not others and any(mark in label.name for mark in "，、"):
        logger.warning("labels: found one label, %s: for several, write plain commas between them", label.name)


def _compare_space(run: PreparedRun, missing: Sequence[Shard]) -> None:
    num_rows = sum(shard.num_rows for shard in missing)
    input_bytes = sum(file.found.size_bytes for file in run.inputs.files)
    share = num_rows / max(run.inputs.num_rows, 1)
    compare_space(run.paths.output, estimated_bytes(run.job, num_rows, round(input_bytes * share)))


def _say_what_is_done(run: PreparedRun, done: dict[int, ShardRecord], missing: Sequence[Shard]) -> None:
    if not done:
        return
    extra = fields("resuming", shards_done=len(done), shards_missing=len(missing))
    if missing:
        logger.info(
            "going on: %d of %d shards are complete (%s), scoring the other %d (%s)",
            len(done),
            len(run.shards),
            describe_indices(sorted(done)),
            len(missing),
            describe_indices([shard.index for shard in missing]),
            extra=extra,
        )
    else:
        logger.info("all %d shards are complete: nothing to score", len(done), extra=extra)


def _next_attempt(paths: RunPaths) -> int:
    """Count the attempts that scored; one more than the last one that left its number."""
    try:
        number = int(paths.attempt.read_bytes()) + 1
    except (OSError, ValueError):
        number = 1
    publish_bytes(paths.attempt, b"%d\n" % number, paths.temporary)
    return number


def _summary(run: PreparedRun, done: dict[int, ShardRecord]) -> Summary:
    return summarise(run.job, run.paths, run.record, [done[index] for index in sorted(done)])
