"""An output's shards as one lazy frame of the columns that a report needs, whatever the job calls and keeps.

Nothing is read here: `aggregate` says what of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from batchzs.report.binning import NUM_SCORE_BINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.finished import FinishedRun
    from batchzs.job import JobConfig
    from batchzs.plan import Shard

#: What a row's certainty is: the distance between the two best scores; the distance from the threshold to the nearest
#: score, where each label is decided by itself; or the best score, where an output has no other.
CertaintyKind = Literal["margin", "threshold", "score"]

_LABELLED_SCORES = pl.List(pl.Struct({"label": pl.String, "score": pl.Float32}))


def certainty_kind(job: JobConfig) -> CertaintyKind:
    """What tells this job's sure rows from its unsure ones."""
    if job.scored_as_multi_label:
        return "threshold"
    return "score" if job.resolved_scores in {"none", 1} else "margin"


def deciding_threshold(job: JobConfig) -> float:
    """Where a label that is decided by itself counts; one label alone without a threshold is a matter of more or less.

    Only of interest where `certainty_kind` is the threshold.
    """
    return 0.5 if job.resolved_threshold is None else job.resolved_threshold


def scan_rows(run: FinishedRun, shards: Sequence[Shard]) -> pl.LazyFrame:
    """Scan shards.

    Args:
        run: the output.
        shards: those that are there, in their order; none gives a frame without rows.

    Returns:
        The added columns that the job has, without logits, under their names without prefix; with `position`, by which
        rows are in the output's order, and `certainty`, null where the row has no score.
    """
    job = run.job
    types = _types(job)
    if not shards:
        rows = pl.LazyFrame(schema=types)
    else:
        paths = [run.paths.shard(shard.index) for shard in shards]
        rows = pl.scan_parquet(paths, glob=False, hive_partitioning=False).select(
            pl.col(run.column(name)).alias(name) for name in types
        )
    # 32 bits: Polars numbers rows so, and no more rows than they count are scanned at once.
    first_row = shards[0].first_row if shards else 0
    numbered = rows.with_row_index("position").with_columns(pl.col("position").cast(pl.Int64) + first_row)
    return numbered.with_columns(_certainty(job).alias("certainty"))


def binned(column: str) -> pl.Expr:
    """A column of numbers from 0 to 1 as the indices of their bins; see `binning.score_bin`."""
    # In float64 the product of a float32 and the number of bins is exact, so that no value changes its bin.
    return (pl.col(column).cast(pl.Float64) * NUM_SCORE_BINS).floor().clip(0, NUM_SCORE_BINS - 1).cast(pl.Int64)


def _types(job: JobConfig) -> dict[str, pl.DataType | type[pl.DataType]]:
    types: dict[str, pl.DataType | type[pl.DataType]] = {
        "source_file": pl.String,
        "source_row": pl.Int64,
        "label": pl.String,
        "score": pl.Float32,
        "num_tokens": pl.Int32,
        "truncated": pl.Boolean,
        "rescored": pl.Boolean,
        "status": pl.String,
        "reason": pl.String,
    }
    if job.multi_label:
        types["labels"] = pl.List(pl.String)
    if job.resolved_scores != "none":
        types["scores"] = pl.List(pl.Float32) if job.resolved_scores == "all" else _LABELLED_SCORES
    return types


def _certainty(job: JobConfig) -> pl.Expr:
    kind = certainty_kind(job)
    threshold = deciding_threshold(job)
    if kind == "score":
        return pl.col("score")
    if job.resolved_scores == "none":
        return (pl.col("score") - threshold).abs()

    def measure(scores: pl.Series) -> pl.Series:
        # In NumPy: sorting ten million lists takes Polars three times as long.
        valid = scores.is_not_null().to_numpy()
        values = kept_scores(scores, job)
        distances = np.full(len(valid), np.nan, dtype=np.float32)
        if kind == "threshold":
            distances[valid] = np.abs(values - np.float32(threshold)).min(axis=1)
        else:
            best_two = np.partition(values, values.shape[1] - 2, axis=1)[:, -2:]
            distances[valid] = best_two[:, 1] - best_two[:, 0]
        return pl.Series(distances, dtype=pl.Float32).fill_nan(None)

    return pl.col("scores").map_batches(measure, return_dtype=pl.Float32, is_elementwise=True)


def kept_scores(scores: pl.Series, job: JobConfig) -> np.ndarray:
    """The scores that rows keep.

    Args:
        scores: the column `scores`.
        job: the job; it says how many a row keeps.

    Returns:
        (rows that are not null, kept scores) float32.
    """
    width = len(job.labels) if job.resolved_scores == "all" else int(job.resolved_scores)
    kept = scores.drop_nulls()
    if not len(kept):
        return np.zeros((0, width), dtype=np.float32)
    values = kept.explode()
    if job.resolved_scores != "all":
        values = values.struct.field("score")
    return values.to_numpy().reshape(len(kept), width)
