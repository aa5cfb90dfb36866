"""From a job to a run that is ready to score: everything that can be wrong is found here, before any work is done.

The first attempt reads the input once, settles what `auto` means, and writes both down; later attempts take them over
and see that job, model and input are still the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from batchzs import __version__
from batchzs.durable import publish_new, remove
from batchzs.errors import InputError, OtherJobError, UsageError
from batchzs.fingerprint import digest_of, fingerprint_of, refuse_other_job
from batchzs.input_now import InputNow
from batchzs.inputs.discovery import find_files
from batchzs.inputs.spec import ReadSpec
from batchzs.job import added_column_names
from batchzs.known_input import place_first, stage_first
from batchzs.logs import fields
from batchzs.margin import MarginMeasurer, num_sample_texts
from batchzs.models.opening import OpenedModel, open_model
from batchzs.plan import Selection, Shard, plan_generations, spread_rows
from batchzs.records import FORMAT_VERSION, MAX_SHARDS, RunRecord, read_json, read_record, record_content, write_record
from batchzs.resources import (
    engine_settings,
    load_pair_model,
    place,
    precision_again,
    resolve,
    settle_batch_tokens,
)
from batchzs.resume import refuse_foreign_shards, remove_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.dates import Day
    from batchzs.engine import PairModel
    from batchzs.inputs.rows import FoundFile, InputSet
    from batchzs.job import JobConfig
    from batchzs.known_input import KnownInput
    from batchzs.paths import RunPaths
    from batchzs.progress import Progress
    from batchzs.records import Resolved
    from batchzs.stopping import StopFlag
    from batchzs.tasks import Task
    from batchzs.test_hook import TestHook

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line adds to a job."""

    selection: Selection
    restart: bool = False
    offline: bool = False
    new_files: bool = False  # take in files that the run was not begun with
    task: Task | None = None  # None: the whole run
    day: Day | None = None  # None: no path of the job has a date


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run is given, and whom it tells."""

    job: JobConfig
    paths: RunPaths
    options: RunOptions
    hook: TestHook
    stop: StopFlag
    progress: Progress


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run of which everything is settled but the scores."""

    context: RunContext
    spec: ReadSpec
    known: KnownInput
    shards: list[Shard]
    record: RunRecord
    opened: OpenedModel
    loaded: PairModel | None  # at a run's first attempt, which needs the weights to settle the classes

    @property
    def job(self) -> JobConfig:
        """The job."""
        return self.context.job

    @property
    def paths(self) -> RunPaths:
        """The output's names."""
        return self.context.paths

    @property
    def inputs(self) -> InputSet:
        """All input files, in the order of their rows."""
        return self.known.inputs

    @property
    def fingerprint_digest(self) -> str:
        """What each shard carries to say which run it is of."""
        return digest_of(self.record.fingerprint)

    def check_stop(self) -> None:
        """Do nothing, or end the run if a stop was asked for."""
        self.context.stop.check()


def read_spec(job: JobConfig) -> ReadSpec:
    """The part of a job that readers need."""
    settings = job.input
    is_default_delimiter = settings.csv.delimiter == type(settings.csv)().delimiter
    return ReadSpec(
        path=settings.path,
        format=settings.format,
        text=settings.text,
        separator=settings.separator,
        keep=settings.keep,
        partitions=settings.partitions,
        encoding=settings.encoding,
        delimiter=None if is_default_delimiter else settings.csv.delimiter,
        quote=settings.csv.quote_character,
        header=settings.csv.header,
        null_values=settings.csv.null_values,
        on_bad_rows=settings.on_bad_rows,
    )


def prepare_run(context: RunContext) -> PreparedRun:
    """Check everything and settle everything; the output's folders are there and its lock is held.

    Raises:
        InputError: the input is missing, unreadable, or has changed.
        ModelError: the model is missing or unfit.
        MachineError: the device cannot be used.
        UsageError: the job does not fit the model.
        OtherJobError: another job began this output.
    """
    job, paths = context.job, context.paths
    refuse_output_over_input(job, paths)
    spec = read_spec(job)
    found = _find_files(context, spec)
    refuse_meaningless_settings(job, found)
    begun = None if context.options.restart else _read_run_record(paths)
    opened = open_model(
        job, begun.model if begun else None, offline=context.options.offline, on_chunk=context.stop.check
    )
    context.stop.check()
    now = InputNow(context, spec, found)
    return _begin(now, opened) if begun is None else _go_on(now, opened, begun)


def _go_on(now: InputNow, opened: OpenedModel, begun: RunRecord) -> PreparedRun:
    """Take over what was settled, and see that job, model and input are still the same."""
    context = now.context
    model = opened.record(begun.model.num_classes)
    precision = precision_again(context.job, begun.resolved, context.hook)
    fingerprint = fingerprint_of(context.job, model, precision, context.options.selection, context.hook.description)
    refuse_other_job(begun.fingerprint, fingerprint, context.paths.output)

    def plan(known: KnownInput) -> list[Shard]:
        return _plan(context, known, begun.resolved)

    known = now.known_again(begun)
    if context.options.new_files:
        known = now.take_in(known, plan)
    return PreparedRun(context, now.spec, known, plan(known), begun, opened, loaded=None)


def _begin(now: InputNow, opened: OpenedModel) -> PreparedRun:
    """Settle a new run and write it down; its record comes last, so that what it names is there."""
    context, job, paths, hook = now.context, now.context.job, now.context.paths, now.context.hook
    from batchzs.inputs.read import read_rows

    placement = place(job, hook)
    resolved = resolve(job, placement, hook)
    known = now.known_with(now.freeze_first())
    refuse_taken_names(job, known.first)
    loaded = load_pair_model(opened, placement, resolved, hook, context.stop.check)
    context.stop.check()
    resolved = settle_batch_tokens(job, resolved, loaded)
    model = opened.record(loaded.model.num_classes)
    shards = _plan(context, known, resolved)
    fingerprint = fingerprint_of(job, model, resolved.precision, context.options.selection, hook.description)
    begun = None if context.options.restart else read_record(paths.run_record, RunRecord)
    if begun is not None:  # where there are no locks: another task was faster
        return _go_on(now, opened, begun)
    digests = {known.first.digest, *(one.input_digest for one in known.generations)}
    if not context.options.restart:
        refuse_foreign_shards(paths, digest_of(fingerprint), digests)
    if job.rescores_close(resolved.precision):
        spans = spread_rows(shards, num_sample_texts(len(job.labels)))
        texts = read_rows(now.spec, known.inputs, spans, context.stop.check).texts
        resolved = _with_margin(context, texts, opened, loaded.model, resolved)
    record = RunRecord(
        format_version=FORMAT_VERSION,
        batchzs_version=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        job=job.model_dump(mode="json"),
        fingerprint=fingerprint,
        resolved=resolved,
        model=model,
        input_digest=known.first.digest,
        num_rows=known.first.num_rows,
        num_shards=sum(shard.generation == 1 for shard in shards),
        num_tasks=context.options.task.total if context.options.task else None,
        first_task_id=context.options.task.first_id if context.options.task else None,
        day=context.options.day.value.isoformat() if context.options.day else None,
        text_rooms=opened.text_rooms(job),
        test_hook=hook.description,
    )
    if context.options.restart:  # as late as this: a job that cannot run costs nobody the results that are there
        remove_run(paths)
        refuse_foreign_shards(paths, digest_of(fingerprint), digests)
    hook.reach("inputs-frozen")
    stage_first(paths, known.first)
    hook.reach("inputs-stored")
    begun = _record_run(paths, record)
    hook.reach("run-recorded")
    if begun != record:
        logger.info("another process has settled this run meanwhile: taking over what it settled")
        if begun.input_digest != record.input_digest:
            remove(paths.staged_inputs(record.input_digest))
        return _go_on(now, opened, begun)
    place_first(paths, record.input_digest)
    return PreparedRun(context, now.spec, known, shards, record, opened, loaded.model)


def _record_run(paths: RunPaths, record: RunRecord) -> RunRecord:
    """Write a run's record unless one is there by now: where locks do not work, the first of several tasks decides.

    Returns:
        The record that holds.
    """
    if publish_new(paths.run_record, record_content(record), paths.temporary):
        return record
    begun = read_record(paths.run_record, RunRecord)
    if begun is None:  # damaged, which was said before
        write_record(paths.run_record, record, paths.temporary)
        return record
    return begun


def _with_margin(
    context: RunContext, texts: Sequence[str], opened: OpenedModel, model: PairModel, resolved: Resolved
) -> Resolved:
    """Measure on some of the job's rows how far a score may be off, and settle which rows are too close to call."""
    job = context.job
    classes = opened.classes(model.num_classes)
    measurer = MarginMeasurer(
        model,
        opened.tokenizer,
        [label.hypothesis for label in job.labels],
        engine_settings(job, resolved, classes),
        classes,
        as_multi_label=job.scored_as_multi_label,
        on_batch=lambda *_: context.stop.check(),
    )
    margin = measurer.measure(texts)
    logger.info(
        "%d sample rows: scores in %s differ from fp32's by %.2g at most: rows that hang on %.2g or less will be "
        "scored again in fp32",
        len(texts),
        resolved.precision,
        margin / 2,
        margin,
        extra=fields("margin_measured", rows=len(texts), margin=margin),
    )
    return resolved.model_copy(update={"rescore_margin": margin})


def _plan(context: RunContext, known: KnownInput, resolved: Resolved) -> list[Shard]:
    shards = plan_generations(known.row_counts, resolved.shard_rows, context.options.selection)
    if len(shards) > MAX_SHARDS:
        raise UsageError(
            f"output.shard_rows: {resolved.shard_rows:,} makes {len(shards):,} shards, expected at most "
            f"{MAX_SHARDS:,}, so that their names sort in order; raise it, with --restart if a run has begun"
        )
    return shards


def _find_files(context: RunContext, spec: ReadSpec) -> Sequence[FoundFile]:
    try:
        return find_files(spec, exclude=[context.paths.output])
    except InputError as exc:
        if context.options.day is None:
            raise
        raise InputError(f"{exc} (the date is {context.options.day})", key=exc.key) from exc


def refuse_output_over_input(job: JobConfig, paths: RunPaths) -> None:
    """Refuse an output in which the input lies."""
    for path in job.input.path:
        if paths.output == Path(path) or paths.output in Path(path).parents:
            raise UsageError(
                f"output.path: {paths.output} holds the input {path}, and what lies in an output is never read as "
                "input; choose another folder, one inside the input's, say",
                key="output.path",
            )


def refuse_meaningless_settings(job: JobConfig, found: Sequence[FoundFile]) -> None:
    """A setting that the input's format has no use for was meant for something: it is not passed over."""
    kind = found[0].format
    for key, is_set, formats in (
        ("input.encoding", job.input.encoding != "utf-8", ("csv", "tsv", "jsonl")),
        ("input.csv", job.input.csv != type(job.input.csv)(), ("csv", "tsv")),
    ):
        if is_set and kind not in formats:
            raise UsageError(
                f"{key}: means nothing for {kind} ({found[0].name}), only for {', '.join(formats)}; remove it",
                key=key,
            )


def refuse_taken_names(job: JobConfig, inputs: InputSet) -> None:
    """With `keep: all` and partition columns the carried names are known only now."""
    taken = sorted({column.name for column in inputs.carried} & set(added_column_names(job)))
    if taken:
        raise UsageError(
            f"output.prefix: the input has columns that batchzs adds too ({', '.join(taken)}); set a prefix, such as "
            "zs_"
        )


def recorded_tasks(paths: RunPaths) -> tuple[int, int] | None:
    """How many tasks a run was begun with, and what the scheduler called the first one; None where none is recorded."""
    record = read_record(paths.run_record, RunRecord)
    if record is None or record.num_tasks is None:
        return None
    return record.num_tasks, record.first_task_id or 0


def _read_run_record(paths: RunPaths) -> RunRecord | None:
    raw = read_json(paths.run_record)
    if isinstance(raw, dict) and raw.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise OtherJobError(
            f"{paths.run_record}: was written by batchzs {raw.get('batchzs_version')} in format "
            f"{raw['format_version']}, this one reads {FORMAT_VERSION}: go on with that version, or use --restart"
        )
    record = read_record(paths.run_record, RunRecord)
    if record is None and paths.run_record.exists():
        logger.warning("%s: is damaged: settling the run again; finished shards stay if they fit", paths.run_record)
    return record
