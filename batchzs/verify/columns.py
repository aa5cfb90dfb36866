"""One shard's columns held against each other: nulls where they belong, numbers in range, labels that follow.

Where logits are stored, everything that was decided from them is decided again by the very function that decided it,
and compared bit for bit. Without logits, the best label and score are held against the stored scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from batchzs.counted import counted
from batchzs.engine import ScoringCounts, TextLogits
from batchzs.inputs.rows import BAD_ENCODING, BAD_RECORD, BAD_TYPE, OK, ShardRows
from batchzs.output import EMPTY, NON_FINITE, label_shard
from batchzs.scoring import falls_to_other, rank_labels, reaches

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from batchzs.job import JobConfig
    from batchzs.models.classes import ClassIndices
    from batchzs.records import OtherLabel

#: Every status that a row can have.
STATUSES = (OK, EMPTY, BAD_RECORD, BAD_ENCODING, BAD_TYPE, NON_FINITE)
_NEVER_NULL = ("source_file", "source_row", "num_tokens", "truncated", "rescored", "status")
_NULL_UNLESS_OK = ("label", "score", "labels", "scores", "logits")
#: What `label_shard` decides from logits, statuses and tokens; the other added columns it takes as they are.
_DECIDED = ("label", "score", "labels", "scores", "logits", "status", "reason")
#: Rows turned into Python objects at a time, to find which one of a differing column differs.
_SLICE_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, and where."""

    file: str  # within the output, or an input file's path
    what: str
    row: int | None = None  # in the shard, from 0
    column: str | None = None

    def __str__(self) -> str:
        row = "" if self.row is None else f" row {self.row},"
        column = "" if self.column is None else f" column {self.column}:"
        place = f"{row}{column}".rstrip(",:")
        return f"{self.file}:{place}{':' if place else ''} {self.what}"


@dataclass(frozen=True, slots=True)
class ShardColumns:
    """A shard's added columns, each in one piece, under the names that they have without the prefix."""

    job: JobConfig
    classes: ClassIndices
    num_classes: int
    file: str
    arrays: dict[str, pa.Array]
    statuses: np.ndarray  # (rows,) object: strings
    other: OtherLabel | None = None  # where `batchzs decide` wrote the shard and gave rows such a label

    @property
    def ok(self) -> np.ndarray:
        """(rows,) bool: which rows are scored."""
        flags: np.ndarray = self.statuses == OK
        return flags

    def finding(self, column: str, rows: np.ndarray, what: str) -> Iterator[Finding]:
        """One finding for all rows at fault (ascending indices), naming the first; none where there is no such row."""
        if len(rows):
            more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
            yield Finding(self.file, what + more, int(rows[0]), self.job.output.prefix + column)


def columns_of(
    job: JobConfig, classes: ClassIndices, num_classes: int, file: str, table: pa.Table
) -> ShardColumns | Finding:
    """Take a shard's added columns, or say which one has a null where none may be.

    Args:
        job: what the columns follow from.
        classes: the checkpoint's class indices.
        num_classes: classes of its head.
        file: the shard, as findings call it.
        table: the shard, whose schema is the job's.
    """
    prefix = job.output.prefix
    arrays = {}
    for name in (*_NEVER_NULL, *_NULL_UNLESS_OK, "reason"):
        if prefix + name in table.column_names:
            column = table.column(prefix + name)
            # One array even of no chunk or of several.
            arrays[name] = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    for name in _NEVER_NULL:
        nulls = np.flatnonzero(arrays[name].is_null().to_numpy(zero_copy_only=False))
        if len(nulls):
            return Finding(
                file, f"is null in {counted(len(nulls), 'row')}, expected a value", int(nulls[0]), prefix + name
            )
    statuses = np.array(arrays["status"].to_pylist(), dtype=object)
    return ShardColumns(job, classes, num_classes, file, arrays, statuses)


def check_columns(columns: ShardColumns) -> Iterator[Finding]:
    """Find what is wrong with a shard's added columns, each kind of fault once."""
    faults = [*_null_faults(columns), *_range_faults(columns)]
    yield from faults
    if "logits" not in columns.arrays:
        if not faults:  # the rows of damaged columns cannot be put side by side
            yield from _best_score_faults(columns)
    elif not any(fault.column == columns.job.output.prefix + "logits" for fault in faults):
        yield from _decision_faults(columns)


def _null_faults(columns: ShardColumns) -> Iterator[Finding]:
    ok, arrays = columns.ok, columns.arrays
    unknown = np.flatnonzero(~np.isin(columns.statuses, STATUSES))
    for value in columns.statuses[unknown[:1]]:
        yield from columns.finding("status", unknown, f"is {value!r}, expected one of {', '.join(STATUSES)}")
    for name in _NULL_UNLESS_OK:
        if name not in arrays:
            continue
        is_null = arrays[name].is_null().to_numpy(zero_copy_only=False)
        yield from columns.finding(name, np.flatnonzero(~ok & ~is_null), "has a value, but the row is not ok")
        if name != "label" or columns.job.multi_label or columns.job.resolved_threshold is None:
            yield from columns.finding(name, np.flatnonzero(ok & is_null), "is null, but the row is ok")
    no_reason = arrays["reason"].is_null().to_numpy(zero_copy_only=False)
    yield from columns.finding("reason", np.flatnonzero(ok & ~no_reason), "gives a reason, but the row is ok")
    yield from columns.finding("reason", np.flatnonzero(~ok & no_reason), "is null, but the row is not ok")


def _range_faults(columns: ShardColumns) -> Iterator[Finding]:
    job, arrays = columns.job, columns.arrays
    num_tokens = arrays["num_tokens"].to_numpy(zero_copy_only=False)
    yield from columns.finding("num_tokens", np.flatnonzero(num_tokens < 0), "is below 0")
    names = {label.name for label in job.labels}
    labels = arrays["label"].to_pylist()
    allowed = names if columns.other is None else names | {columns.other.name}
    unknown = [row for row, label in enumerate(labels) if label is not None and label not in allowed]
    yield from columns.finding("label", np.array(unknown, dtype=np.int64), "is none of the job's labels")
    score = _floats(arrays["score"])
    is_score = ~arrays["score"].is_null().to_numpy(zero_copy_only=False)
    yield from columns.finding("score", np.flatnonzero(is_score & ~_is_share(score)), "is no number from 0 to 1")
    if "scores" in arrays:
        wanted = len(job.labels) if job.resolved_scores == "all" else int(job.resolved_scores)
        rows = yield from _rows_of_values(columns, "scores", wanted)
        flat = arrays["scores"].flatten()
        if job.resolved_scores != "all":
            entries = pc.struct_field(flat, "label").to_pylist()
            strange = [row for row, entry in zip(rows.tolist(), entries, strict=True) if entry not in names]
            yield from columns.finding("scores", np.unique(strange), "has a label that is none of the job's")
            flat = pc.struct_field(flat, "score")
        yield from columns.finding("scores", np.unique(rows[~_is_share(_floats(flat))]), "is no number from 0 to 1")
    if "logits" in arrays:
        rows = yield from _rows_of_values(columns, "logits", len(job.labels))
        flat = arrays["logits"].flatten()
        for part in ("entailment", "neutral", "contradiction"):
            if part != "neutral" or columns.classes.neutral is not None:
                broken = ~np.isfinite(_floats(pc.struct_field(flat, part)))
                yield from columns.finding("logits", np.unique(rows[broken]), f"has {part} that is no finite number")


def _rows_of_values(columns: ShardColumns, name: str, wanted: int) -> Generator[Finding, None, np.ndarray]:
    """Check a list column's lengths.

    Returns:
        For every value of the flattened column its row.
    """
    lengths = pc.fill_null(columns.arrays[name].value_lengths(), 0).to_numpy(zero_copy_only=False)
    is_list = ~columns.arrays[name].is_null().to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(is_list & (lengths != wanted))
    if len(wrong):
        yield from columns.finding(name, wrong, f"has {lengths[wrong[0]]} values, expected {wanted}")
    return np.repeat(np.arange(len(lengths)), lengths)


def _decision_faults(columns: ShardColumns) -> Iterator[Finding]:
    """Decide again from the stored logits, and compare."""
    job, arrays, ok = columns.job, columns.arrays, columns.ok
    flat = arrays["logits"].flatten()
    logits = np.full((len(ok), len(job.labels), columns.num_classes), np.nan, dtype=np.float32)
    classes = columns.classes
    indices = {"entailment": classes.entailment, "neutral": classes.neutral, "contradiction": classes.contradiction}
    for part, index in indices.items():
        if index is not None:
            logits[ok, :, index] = _floats(pc.struct_field(flat, part)).reshape(-1, len(job.labels))
    readable = np.isin(columns.statuses, (OK, EMPTY, NON_FINITE))
    rows = ShardRows(
        texts=[""] * len(ok),  # labels are decided without them
        statuses=[OK if as_read else status for as_read, status in zip(readable, columns.statuses, strict=True)],
        reasons=arrays["reason"].to_pylist(),
        carried=pl.DataFrame(),
        source_files=arrays["source_file"].to_pylist(),
        source_rows=arrays["source_row"].to_numpy(zero_copy_only=False),
    )
    scored = TextLogits(
        logits=logits,
        num_tokens=arrays["num_tokens"].to_numpy(zero_copy_only=False),
        truncated=np.zeros(len(ok), dtype=bool),
        non_finite=columns.statuses == NON_FINITE,
        rescored=np.zeros(len(ok), dtype=bool),
        counts=ScoringCounts(),
    )
    decided = label_shard(job, classes, rows, scored, columns.other).table
    for name in _DECIDED:
        if name in arrays:
            expected = decided.column(job.output.prefix + name).combine_chunks()
            differing = _differing_rows(arrays[name], expected)
            what = (
                "is not what follows from the row's logits"
                if name not in ("status", "reason")
                else ("does not fit the row's tokens and logits")
            )
            yield from columns.finding(name, differing, what)


def _best_score_faults(columns: ShardColumns) -> Iterator[Finding]:
    """Hold label and score against the stored scores, where there are no logits."""
    job, arrays = columns.job, columns.arrays
    if "scores" not in arrays:
        return
    flat = arrays["scores"].flatten()
    rows = np.flatnonzero(columns.ok)
    names = np.array([label.name for label in job.labels], dtype=object)
    if job.resolved_scores == "all":
        scores = _floats(flat).reshape(len(rows), len(names))
        best = rank_labels(scores)[:, 0]
        labels, best_scores = names[best], scores[np.arange(len(rows)), best]
    else:
        num_kept = int(job.resolved_scores)
        scores = _floats(pc.struct_field(flat, "score")).reshape(len(rows), num_kept)
        labels = np.array(pc.struct_field(flat, "label").to_pylist(), dtype=object).reshape(-1, num_kept)[:, 0]
        best_scores = scores[:, 0]
        yield from columns.finding("scores", rows[(np.diff(scores, axis=1) > 0).any(axis=1)], "is not best first")
    if job.resolved_threshold is not None and not job.multi_label:
        labels = np.where(reaches(best_scores, job.resolved_threshold), labels, None)
    if columns.other is not None:
        if columns.other.margin is not None and scores.shape[1] < min(2, len(names)):
            return  # the second best score is not stored, and it decided
        labels = np.where(falls_to_other(-np.sort(-scores, axis=1), columns.other), columns.other.name, labels)
    found_labels = np.array(arrays["label"].to_pylist(), dtype=object)[rows]
    found_scores = _floats(arrays["score"])[rows]
    yield from columns.finding("label", rows[found_labels != labels], "is not the best of the row's scores")
    yield from columns.finding("score", rows[found_scores != best_scores], "is not the best of the row's scores")


def _differing_rows(found: pa.Array, expected: pa.Array) -> np.ndarray:
    """Indices of the rows in which two columns differ."""
    if found.equals(expected):
        return np.empty(0, dtype=np.int64)
    rows: list[int] = []
    for start in range(0, len(found), _SLICE_ROWS):
        one, other = found.slice(start, _SLICE_ROWS), expected.slice(start, _SLICE_ROWS)
        if not one.equals(other):
            pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
            rows += [start + place for place, (left, right) in enumerate(pairs) if left != right]
    return np.array(rows, dtype=np.int64)


def _floats(array: pa.Array) -> np.ndarray:
    """An array's numbers; NaN where it is null."""
    values: np.ndarray = array.to_numpy(zero_copy_only=False)
    return values


def _is_share(values: np.ndarray) -> np.ndarray:
    """Whether numbers are finite and in 0..1; a negative zero, which no softmax gives, is not."""
    with np.errstate(invalid="ignore"):
        share: np.ndarray = np.isfinite(values) & ~np.signbit(values) & (values <= 1)
    return share
