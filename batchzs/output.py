"""One shard's rows and logits to a Parquet file, published whole.

The file's bytes are a function of rows, logits and job alone: no time, host or device goes into it, so that a shard
scored twice is the same file. What made it stands in its Parquet metadata, under the key `batchzs`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchzs.scoring import falls_to_other, rank_labels, reaches, scores_from_logits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import JsonValue

    from batchzs.engine import TextLogits
    from batchzs.inputs.rows import ShardRows
    from batchzs.job import JobConfig
    from batchzs.models.classes import ClassIndices
    from batchzs.records import OtherLabel

METADATA_KEY = b"batchzs"
EMPTY = "empty"
NON_FINITE = "non_finite"


@dataclass(frozen=True, slots=True)
class LabelledShard:
    """One shard as it goes to disk, with what its record counts."""

    table: pa.Table
    statuses: np.ndarray  # (rows,) str
    best: np.ndarray  # (rows,) int64, the label's index; -1 where the label is null


@dataclass(frozen=True, slots=True)
class DecidedColumns:
    """What is decided of rows' scores."""

    arrays: dict[str, pa.Array]  # label, score, and what the job asks for of labels and scores, in this order
    best: np.ndarray  # (rows,) int64, the label's index; -1 where it is null, the number of labels where it is `other`


def decide_columns(
    job: JobConfig, scores: np.ndarray, ok: np.ndarray, other: OtherLabel | None = None
) -> DecidedColumns:
    """Decide labels from scores.

    Args:
        job: labels, thresholds and which columns there are.
        scores: (rows, labels) float32.
        ok: (rows,) bool, which rows are scored; the others get nulls.
        other: a label for rows that none fits.
    """
    ranked = rank_labels(scores)
    best = ranked[:, 0].copy()
    best_scores = scores[np.arange(len(scores)), best]
    threshold = job.resolved_threshold
    best[~ok] = -1
    if threshold is not None and not job.multi_label:
        best[~reaches(best_scores, threshold)] = -1
    names = [label.name for label in job.labels]
    is_other = np.zeros(len(scores), dtype=bool)
    if other is not None:
        is_other = ok & falls_to_other(np.take_along_axis(scores, ranked, axis=1), other)
        best[is_other] = len(names)
        names.append(other.name)
    arrays: dict[str, pa.Array] = {
        "label": _take_names(names, best),
        "score": pa.array(best_scores, pa.float32(), mask=~ok),
    }
    if job.multi_label and threshold is not None:
        arrays["labels"] = _labels_reaching(names, scores, ranked, (ok, is_other), threshold)
    if job.resolved_scores == "all":
        arrays["scores"] = _list_array(pa.array(scores[ok].ravel()), np.where(ok, scores.shape[1], 0), ok)
    elif job.resolved_scores != "none":
        arrays["scores"] = _top_scores(names, scores, ranked[:, : job.resolved_scores], ok)
    return DecidedColumns(arrays, best)


def label_shard(
    job: JobConfig, classes: ClassIndices, rows: ShardRows, scored: TextLogits, other: OtherLabel | None = None
) -> LabelledShard:
    """Decide scores and labels, and lay out the columns that docs/output.md describes.

    Args:
        job: labels, thresholds and which columns there are.
        classes: the checkpoint's class indices.
        rows: the shard's rows as read.
        scored: the engine's logits for `rows.texts`.
        other: a label for rows that none fits.
    """
    statuses = _statuses(rows, scored)
    ok = statuses == "ok"
    scores = scores_from_logits(scored.logits, classes, as_multi_label=job.scored_as_multi_label)
    decided = decide_columns(job, scores, ok, other)
    added: dict[str, pa.Array] = {
        "source_file": pa.array(rows.source_files, pa.string()),
        "source_row": pa.array(rows.source_rows, pa.int64()),
        **decided.arrays,
    }
    if job.resolved_logits:
        added["logits"] = logit_structs(scored.logits, classes, ok)
    added |= {
        "num_tokens": pa.array(scored.num_tokens, pa.int32()),
        "truncated": pa.array(scored.truncated, pa.bool_()),
        "rescored": pa.array(scored.rescored, pa.bool_()),
        "status": pa.array(statuses.tolist(), pa.string()),
        "reason": pa.array(_reasons(rows, statuses), pa.string()),
    }
    table = rows.carried.to_arrow()
    columns = {name: table.column(name) for name in table.column_names}
    columns |= {job.output.prefix + name: column for name, column in added.items()}
    return LabelledShard(pa.table(columns), statuses, decided.best)


def write_shard(
    file: IO[bytes], table: pa.Table, provenance: Mapping[str, JsonValue], compression: str
) -> tuple[int, str]:
    """Write a shard as Parquet.

    Args:
        file: open for writing, and readable again at its start.
        table: the shard.
        provenance: what made it, put into the metadata as JSON.
        compression: zstd, snappy or none.

    Returns:
        The file's size in bytes and its SHA-256.
    """
    metadata = {METADATA_KEY: json.dumps(provenance, ensure_ascii=False, sort_keys=True).encode()}
    digesting = _DigestingFile(file)
    pq.write_table(table.replace_schema_metadata(metadata), pa.PythonFile(digesting, "w"), compression=compression)
    return digesting.num_bytes, digesting.digest.hexdigest()


def read_provenance(metadata: pq.FileMetaData) -> dict[str, JsonValue] | None:
    """What made a shard, from its Parquet footer; None where the file is not batchzs's."""
    content = (metadata.metadata or {}).get(METADATA_KEY)
    try:
        provenance = None if content is None else json.loads(content)
    except ValueError:
        return None
    return provenance if isinstance(provenance, dict) else None


class _DigestingFile:
    """A file to write to that keeps the digest and the size of what went through."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.num_bytes = 0
        self.closed = False

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        self.num_bytes += len(content)
        self._file.write(content)
        return len(content)

    def tell(self) -> int:
        return self.num_bytes

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        # The caller syncs and closes the file itself.
        self.closed = True


def _statuses(rows: ShardRows, scored: TextLogits) -> np.ndarray:
    statuses = np.array(rows.statuses, dtype=object)
    readable = statuses == "ok"
    statuses[readable & (scored.num_tokens == 0)] = EMPTY
    statuses[readable & scored.non_finite] = NON_FINITE
    return statuses


def _reasons(rows: ShardRows, statuses: np.ndarray) -> list[str | None]:
    own = {
        EMPTY: "the text is null or has no token of its own",
        NON_FINITE: "the model gave no finite number, in fp32 neither",
    }
    return [own.get(status, reason) for status, reason in zip(statuses, rows.reasons, strict=True)]


def _take_names(names: Sequence[str], indices: np.ndarray) -> pa.Array:
    """Label names by index; null where it is negative."""
    # Arrow's own `take` loads all of pyarrow.compute, a twentieth of a short run.
    choices = np.array([*names, None], dtype=object)
    return pa.array(choices[np.maximum(indices, -1)], pa.string())


def _list_array(values: pa.Array, lengths: np.ndarray, valid: np.ndarray) -> pa.Array:
    """A list a row, of the given lengths, null where not valid (there the length is 0)."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    # A null offset is a null list; `from_arrays` takes a mask too, but loads all of pyarrow.compute for it.
    return pa.ListArray.from_arrays(pa.array(offsets, mask=np.append(~valid, False)), values)


def _labels_reaching(
    names: Sequence[str], scores: np.ndarray, ranked: np.ndarray, rows: tuple[np.ndarray, np.ndarray], threshold: float
) -> pa.Array:
    """All labels at or above the threshold; `rows`: which are scored, and which of them have the last name alone."""
    ok, is_other = rows
    ranked_scores = np.take_along_axis(scores, ranked, axis=1)
    chosen = reaches(ranked_scores, threshold) & ok[:, None]
    if is_other.any():
        ranked = ranked.copy()
        chosen[is_other] = False
        chosen[is_other, 0] = True
        ranked[is_other, 0] = len(names) - 1
    return _list_array(_take_names(names, ranked[chosen]), chosen.sum(axis=1), ok)


def _top_scores(names: Sequence[str], scores: np.ndarray, top: np.ndarray, ok: np.ndarray) -> pa.Array:
    label = _take_names(names, top[ok].ravel())
    score = pa.array(np.take_along_axis(scores, top, axis=1)[ok].ravel(), pa.float32())
    values = pa.StructArray.from_arrays([label, score], names=["label", "score"])
    return _list_array(values, np.where(ok, top.shape[1], 0), ok)


def logit_structs(logits: np.ndarray, classes: ClassIndices, ok: np.ndarray) -> pa.Array:
    """Lay out the column of logits.

    Args:
        logits: (rows, labels, classes) float32 in the checkpoint's class order.
        classes: which class is which.
        ok: (rows,) bool, which rows are scored; the others get nulls.
    """
    kept = logits[ok].reshape(-1, logits.shape[2])
    neutral = (
        pa.nulls(len(kept), pa.float32())
        if classes.neutral is None
        else pa.array(kept[:, classes.neutral], pa.float32())
    )
    values = pa.StructArray.from_arrays(
        [pa.array(kept[:, classes.entailment]), neutral, pa.array(kept[:, classes.contradiction])],
        names=["entailment", "neutral", "contradiction"],
    )
    return _list_array(values, np.where(ok, logits.shape[1], 0), ok)
