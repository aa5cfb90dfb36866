"""An output's labels held against its true ones, as the report's section has it.

Where the truth lies is `truth.column`'s matter, and every number is `truth.metrics`'s; here rows are put together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from batchzs.report.truth_section import TruthSection
from batchzs.truth.metrics import hold_rows

if TYPE_CHECKING:
    from batchzs.finished import FinishedRun
    from batchzs.truth.column import TruthColumn


def hold_run_against_truth(run: FinishedRun, column: TruthColumn, wanted: float | None) -> TruthSection:
    """Hold the labels of the shards that are there against the truth.

    Args:
        run: the output.
        column: where the true labels are.
        wanted: a precision, in 0..1, to find a threshold for; None: none is looked for.

    Raises:
        InputError: the input is not what it was.
        DifferenceError: a shard is damaged.
    """
    rows = pl.concat([_known_rows(run, column, index) for index in range(len(run.shards)) if _is_there(run, index)])
    known = rows.filter(pl.col("truth").is_not_null())
    report, threshold = hold_rows(known, wanted)
    report = replace(report, num_unknown=rows.height - known.height)
    return TruthSection(column.name, report, wanted, threshold)


def _is_there(run: FinishedRun, index: int) -> bool:
    return run.paths.shard(index).exists()


def _known_rows(run: FinishedRun, column: TruthColumn, index: int) -> pl.DataFrame:
    """A shard's scored rows: truth, given, best, score; the best one below the threshold where all scores are kept."""
    truth = column.of(run.shards[index])
    names = {name: run.column(name) for name in ("status", "label", "score")}
    keeps_all = run.job.resolved_scores == "all"
    wanted = [*names.values(), *([run.column("scores")] if keeps_all else [])]
    frame = pl.read_parquet(run.paths.shard(index), columns=wanted, hive_partitioning=False, glob=False)
    given = frame[names["label"]]
    best = given
    if keeps_all:
        labels = pl.Series([label.name for label in run.job.labels], dtype=pl.String)
        places = frame[run.column("scores")].list.arg_max()
        best = given.fill_null(labels.gather(places.fill_null(0)).set(places.is_null(), None))
    rows = pl.DataFrame({"truth": truth, "given": given, "best": best, "score": frame[names["score"]]})
    return rows.with_columns(pl.col("score").fill_null(float("nan"))).filter(frame[names["status"]] == "ok")
