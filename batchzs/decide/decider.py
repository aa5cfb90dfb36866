"""Labels made again from an output's stored logits, without a model: `batchzs decide`.

Goes through the shards of a finished output one after the other and writes each again, with the new columns in place
of the old ones, into a folder of the same shape. What a run decides is decided by the run's own code, so for another
threshold, multi-label and a subset of labels the columns are those of an fp32 run with those settings, bit for bit
(docs/decide.md says where that run's logits may have other last bits). Carried columns and statuses stay as they are,
and of what was counted of the texts all but `truncated`, which is said of the longest hypothesis that is left.

A shard is absent or complete here too: whoever is interrupted runs the same command again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from batchzs import __version__
from batchzs.decide.closeness import CloseDecisions
from batchzs.decide.output import hold_output
from batchzs.decide.source import (
    close_column,
    measure_priors,
    read_source_shard,
    score_margin,
    shards_digest,
    source_record,
)
from batchzs.decide.stored_logits import stored_logits
from batchzs.durable import publish
from batchzs.fingerprint import fingerprint_of
from batchzs.finished import FinishedRun, is_there
from batchzs.output import decide_columns, logit_structs, write_shard
from batchzs.paths import RunPaths
from batchzs.progress import LINE_INTERVAL_S
from batchzs.records import (
    FORMAT_VERSION,
    DecidedRecord,
    RunRecord,
    ShardRecord,
    read_record,
    write_record,
)
from batchzs.resume import shard_problem, shard_provenance
from batchzs.scoring import scores_from_logits

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.decide.decisions import NewLabels
    from batchzs.decide.settings import DecideOptions, Settings
    from batchzs.output import DecidedColumns
    from batchzs.plan import Shard
    from batchzs.truth.column import TruthColumn

logger = logging.getLogger(__name__)

#: Source columns that a new shard takes as they are, after what is decided.
_KEPT_BEHIND = ("num_tokens", "truncated", "rescored", "status", "reason")


@dataclass(slots=True)
class Decided:
    """What was decided, counted."""

    num_rows: int = 0
    num_ok: int = 0
    num_changed: int = 0  # rows whose label is another one than in the source
    num_close: int = 0
    labels: Counter[str | None] = field(default_factory=Counter)  # of the scored rows
    labels_before: Counter[str | None] = field(default_factory=Counter)
    #: Rows whose truth is known, and what holding them against it needs: truth, given, best, score.
    against_truth: list[pl.DataFrame] = field(default_factory=list)
    num_unknown: int = 0  # rows whose truth is not known
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """What is to be decided, from what, into what."""

    source: FinishedRun
    settings: Settings
    options: DecideOptions
    output: Path | None  # None: nothing is written
    truth: TruthColumn | None = None


@dataclass(frozen=True, slots=True)
class Decider:
    """Makes new shards of old ones."""

    source: FinishedRun
    run: FinishedRun
    decided: DecidedRecord
    labels: NewLabels
    close: CloseDecisions | None
    truth: TruthColumn | None

    def decide(self, shard: Shard, result: Decided) -> tuple[pa.Table, Counter[str | None]]:
        """Decide a shard's rows.

        Args:
            shard: the shard, in both outputs.
            result: counted into.

        Returns:
            The new shard's table, and how many scored rows have which label.

        Raises:
            DifferenceError: the old shard is damaged.
        """
        table = read_source_shard(self.source, shard)
        ok = np.asarray(pc.equal(table.column(self.source.column("status")), "ok"))
        logits = stored_logits(self.source, shard, table, int(ok.sum()))
        scores = np.full((len(ok), len(self.labels.members)), np.nan, dtype=np.float32)
        scores[ok] = self.labels.scores(logits, self.source.classes)
        columns = decide_columns(self.run.job, scores, ok, self.decided.other)
        arrays = dict(columns.arrays)
        if self.run.job.resolved_logits:
            arrays["logits"] = self._logits(table, logits, ok)
        arrays |= {name: table.column(self.source.column(name)) for name in _KEPT_BEHIND}
        if self.run.record.text_rooms != self.source.record.text_rooms:
            arrays["truncated"] = pc.greater(arrays["num_tokens"], min(self.run.record.text_rooms))
        if self.close is not None and self.decided.close_column is not None:
            close = self._close(self.close, table, logits, ok)
            arrays[self.decided.close_column] = pa.array(close)
            result.num_close += int(close.sum())
        arrays = {name: table.column(self.source.column(name)) for name in ("source_file", "source_row")} | arrays
        carried = {column.name: table.column(column.name) for column in self.source.inputs.carried}
        new = pa.table(carried | {self.run.column(name): column for name, column in arrays.items()})
        return new, self._count(result, shard, table, new, (ok, scores, columns))

    def _logits(self, table: pa.Table, logits: np.ndarray, ok: np.ndarray) -> pa.Array:
        if self.labels.kept == list(range(logits.shape[1])):
            return table.column(self.source.column("logits"))
        kept = np.full((len(ok), len(self.labels.kept), logits.shape[2]), np.nan, dtype=np.float32)
        kept[ok] = logits[:, self.labels.kept]
        return logit_structs(kept, self.source.classes, ok)

    def _close(self, is_close: CloseDecisions, table: pa.Table, logits: np.ndarray, ok: np.ndarray) -> np.ndarray:
        old = scores_from_logits(logits, self.source.classes, as_multi_label=self.labels.as_multi_label)
        close = np.zeros(len(ok), dtype=bool)
        close[ok] = is_close(old)
        close &= ~np.asarray(table.column(self.source.column("rescored")))  # those are in fp32
        return close

    def _count(
        self,
        result: Decided,
        shard: Shard,
        table: pa.Table,
        new: pa.Table,
        rows: tuple[np.ndarray, np.ndarray, DecidedColumns],
    ) -> Counter[str | None]:
        ok, scores, columns = rows
        before = pl.Series(table.column(self.source.column("label")))
        after = pl.Series("given", new.column(self.run.column("label")))
        counts = count_labels(after.filter(pl.Series(ok)))
        result.num_rows += len(ok)
        result.num_ok += int(ok.sum())
        result.num_changed += int(before.ne_missing(after).sum())
        result.labels.update(counts)
        result.labels_before.update(count_labels(before.filter(pl.Series(ok))))
        if self.truth is not None:
            names = pl.Series([label.name for label in self.run.job.labels], dtype=pl.String)
            best = pl.Series(np.where(ok, scores.argmax(axis=1), 0))
            frame = pl.DataFrame(
                {
                    "truth": self._merged_truth(self.truth.of(shard)),
                    "given": after,
                    "best": names.gather(best).set(~pl.Series(ok), None),
                    "score": pl.Series(columns.arrays["score"]).fill_null(float("nan")),
                }
            )
            known = frame.filter(pl.col("truth").is_not_null())
            result.against_truth.append(known)
            result.num_unknown += frame.height - known.height
        return counts

    def _merged_truth(self, truth: pl.Series) -> pl.Series:
        """A truth that was merged into another label is that one now."""
        into = {member: name for name, members in self.decided.merge.items() for member in members}
        return truth.replace(into) if into else truth


def prepare_decision(request: DecideRequest) -> Decider:
    """Settle everything that is decided, priors included, and open nothing for writing yet.

    Raises:
        UsageError: the output that priors are taken from asked another model or other questions.
        DifferenceError: a shard or its record is damaged.
    """
    source, settings, options = request.source, request.settings, request.options
    labels, priors = settings.labels, None
    if options.priors is not None:
        priors = measure_priors(source, labels, options.priors_from)
        names = [label.name for label in source.job.labels]
        labels = replace(labels, priors=tuple(priors.values[names[index]] for index in labels.kept))
    margin = score_margin(source, labels)
    decided = DecidedRecord(
        source=str(source.paths.output),
        source_fingerprint=source.fingerprint_digest,
        source_shards=shards_digest(source),
        merge=settings.merge,
        other=settings.other,
        priors=priors,
        margin=margin,
        close_column=None if margin is None else close_column(source),
    )
    run = _new_run(source, settings, decided, request.output)
    close = None
    if margin is not None:
        threshold = run.job.resolved_threshold
        close = CloseDecisions(labels, len(source.job.labels), margin, threshold, settings.other)
    return Decider(source, run, decided, labels, close, request.truth)


def decide_shards(decider: Decider, *, writes: bool, restart: bool = False) -> Decided:
    """Decide all shards, and write those that are not there yet.

    Args:
        decider: from `prepare_decision`.
        writes: write the new output; else only count.
        restart: remove what another `decide` wrote there before.

    Raises:
        OtherJobError: the folder holds something else.
        LockedError: another process writes there.
        MachineError: the disk is in the way.
    """
    result = Decided()
    started_s = last_line_s = time.monotonic()
    with hold_output(decider.run, restart=restart) if writes else nullcontext() as finish:
        records = []
        for shard in decider.source.shards:
            table, labels = decider.decide(shard, result)
            if writes:
                records.append(_write(decider, shard, table, labels))
            if time.monotonic() - last_line_s >= LINE_INTERVAL_S:
                last_line_s = time.monotonic()
                logger.info("%s rows decided", f"{result.num_rows:,}")
        if finish is not None:
            finish(records)
    result.seconds = time.monotonic() - started_s
    return result


def count_labels(labels: pl.Series) -> Counter[str | None]:
    """Count labels, null among them."""
    counts = labels.rename("label").value_counts(name="rows")
    return Counter(dict(zip(counts["label"].to_list(), counts["rows"].to_list(), strict=True)))


def _write(decider: Decider, shard: Shard, table: pa.Table, labels: Counter[str | None]) -> ShardRecord:
    """Write a shard unless it is there already."""
    run, paths = decider.run, decider.run.paths
    path = paths.shard(shard.index)
    record = read_record(paths.shard_record(shard.index), ShardRecord)
    is_done = record is not None and is_there(path) and shard_problem(path, run, shard) is None
    if record is not None and is_done and record.size_bytes == path.stat().st_size:
        return record
    with publish(path, paths.temporary) as file:
        provenance = shard_provenance(run, shard)
        size_bytes, sha256 = write_shard(file, table, provenance, run.job.output.compression)
        counts = {name: count for name, count in labels.items() if name is not None}
        num_truncated = int(pc.sum(table.column(run.column("truncated"))).as_py())
        changes = {"labels": counts, "num_truncated": num_truncated, "size_bytes": size_bytes, "sha256": sha256}
        record = source_record(decider.source, shard).model_copy(update=changes)
        # The record first, as a run does: no shard is ever without it.
        write_record(paths.shard_record(shard.index), record, paths.temporary)
    return record


def _new_run(source: FinishedRun, settings: Settings, decided: DecidedRecord, output: Path | None) -> FinishedRun:
    """The new output as it will be opened; `decision` in its fingerprint makes it no job's but a decision's."""
    record, job = source.record, settings.job
    fingerprint = fingerprint_of(job, record.model, record.resolved.precision, source.selection, record.test_hook)
    told = decided.model_dump(mode="json", exclude={"source"})
    fingerprint = fingerprint.model_copy(update={"decision": {**fingerprint.decision, "batchzs decide": told}})
    new = RunRecord(
        format_version=FORMAT_VERSION,
        batchzs_version=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        job=job.model_dump(mode="json"),
        fingerprint=fingerprint,
        resolved=record.resolved,
        model=record.model,
        input_digest=record.input_digest,
        num_rows=record.num_rows,
        num_shards=record.num_shards,
        text_rooms=tuple(min(record.text_rooms[index] for index in group) for group in settings.labels.members)
        if record.text_rooms
        else (),
        test_hook=record.test_hook,
        decided=decided,
    )
    paths = RunPaths((output or source.paths.output).absolute())
    return FinishedRun(paths, new, job, source.selection, source.known, source.shards)
