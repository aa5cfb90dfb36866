"""An output's labels held against its true ones, as the report's section has it.

Where the truth lies is `truth.column`'s matter, and every number is `truth.metrics`'s; here rows are put together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from batchzs.report.truth_section import CalibrationBin, LabelTruth, TruthSection, WantedPrecision
from batchzs.truth.metrics import TruthReport, hold_rows

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
    found = None
    if wanted is not None:
        found = WantedPrecision(
            wanted,
            threshold=None if threshold is None else threshold.threshold,
            precision=None if threshold is None else threshold.precision,
            coverage=None if threshold is None else threshold.coverage,
        )
    return _section(report, column.name, rows.height - known.height, found)


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


def _section(report: TruthReport, column: str, num_unknown: int, wanted: WantedPrecision | None) -> TruthSection:
    places = {label.name: place for place, label in enumerate(report.labels)}
    confusion = np.zeros((len(places), len(places) + 1), dtype=np.int64)  # the last column: no label
    for one in report.confusions:
        confusion[places[one.truth], len(places) if one.given is None else places[one.given]] = one.num_rows
    return TruthSection(
        column=column,
        num_rows=report.num_rows,
        num_unknown=num_unknown,
        accuracy=report.accuracy,
        labels=tuple(LabelTruth(one.name, one.num_true, one.num_given, one.num_correct) for one in report.labels),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        calibration=tuple(
            CalibrationBin(one.num_rows, one.mean_score, one.accuracy)
            for one in report.calibration
            if one.mean_score is not None and one.accuracy is not None
        ),
        wanted=wanted,
    )
