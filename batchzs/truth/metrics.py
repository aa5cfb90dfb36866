"""Labels held against the truth: accuracy, a calibration curve, the threshold for a wanted precision.

From columns alone: the true label of each row (null where it is not known), the label that was given (null where none
was), and the score of the best one. Pure NumPy and Polars; where the truth lies is `column`'s matter.

The expected calibration error is the one of ten bins of equal width, after Guo, Pleiss, Sun and Weinberger, "On
Calibration of Modern Neural Networks", ICML 2017: sum over bins of (rows in it / rows) * |accuracy - mean score|.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

NUM_BINS = 10


@dataclass(frozen=True, slots=True)
class LabelMetrics:
    """How one label fared; a share of nothing is None."""

    name: str
    num_true: int
    num_given: int
    num_correct: int

    @property
    def precision(self) -> float | None:
        """The share of the rows given this label that are of it."""
        return self.num_correct / self.num_given if self.num_given else None

    @property
    def recall(self) -> float | None:
        """The share of the rows of this label that were given it."""
        return self.num_correct / self.num_true if self.num_true else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall."""
        both = self.num_true + self.num_given
        return 2 * self.num_correct / both if both else None


@dataclass(frozen=True, slots=True)
class Confusion:
    """How many rows of one true label were given which."""

    truth: str
    given: str | None
    num_rows: int


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """The rows whose best score lies from `start` to below `stop`; 1 is in the last bin."""

    start: float
    stop: float
    num_rows: int
    mean_score: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class PrecisionThreshold:
    """The lowest threshold from which on the best label is right as often as was asked for."""

    wanted: float
    threshold: float
    precision: float
    num_rows: int  # at or above it
    coverage: float  # their share of the rows with a truth


@dataclass(frozen=True, slots=True)
class TruthReport:
    """Labels held against the truth."""

    num_rows: int  # whose truth is known
    num_unknown: int  # whose truth is not
    num_given: int  # with a truth and a label
    num_correct: int
    labels: tuple[LabelMetrics, ...]  # true or given, by their number of true rows
    confusions: tuple[Confusion, ...]  # right ones too; most rows first
    calibration: tuple[CalibrationBin, ...]  # of the best label, given or below the threshold
    calibration_error: float | None

    @property
    def accuracy(self) -> float | None:
        """The share of the rows with a truth whose given label is it; no label is a wrong one."""
        return self.num_correct / self.num_rows if self.num_rows else None

    @property
    def coverage(self) -> float | None:
        """The share of the rows with a truth that have a label."""
        return self.num_given / self.num_rows if self.num_rows else None

    @property
    def precision(self) -> float | None:
        """The share of the given labels that are right."""
        return self.num_correct / self.num_given if self.num_given else None


def hold_against_truth(
    truth: pl.Series, given: pl.Series, scores: np.ndarray, best: pl.Series | None = None
) -> TruthReport:
    """Hold labels against the truth.

    Args:
        truth: (rows,) strings, null where the truth is not known; such rows count for nothing but `num_unknown`.
        given: (rows,) strings, null where there is no label: below the threshold, or not scored.
        scores: (rows,) the best label's score; NaN where the row is not scored.
        best: (rows,) strings, the best label whatever the threshold; `given` where absent.

    >>> report = hold_against_truth(pl.Series(["a", "a", "b", None]), pl.Series(["a", "b", None, "a"]),
    ...                             np.array([0.95, 0.65, 0.31, 0.9]), pl.Series(["a", "b", "b", "a"]))
    >>> report.num_correct, report.num_given, report.num_rows, report.num_unknown
    (1, 2, 3, 1)
    >>> round(report.calibration_error, 4)  # (|1 - 0.95| + |0 - 0.65| + |1 - 0.31|) / 3
    0.4633
    """
    is_known = truth.is_not_null()
    frame = pl.DataFrame({"truth": truth, "given": given.cast(pl.String)}).filter(is_known)
    counts = frame.group_by("truth", "given").len().sort(["len", "truth", "given"], descending=[True, False, False])
    confusions = tuple(Confusion(*row) for row in counts.iter_rows())
    known = is_known.to_numpy()
    best_known = (given if best is None else best).filter(is_known)
    is_best = (frame["truth"] == best_known.cast(pl.String)).fill_null(value=False).to_numpy()
    bins, error = _calibration(np.asarray(scores, dtype=np.float64)[known], is_best)
    return TruthReport(
        num_rows=frame.height,
        num_unknown=len(truth) - frame.height,
        num_given=sum(one.num_rows for one in confusions if one.given is not None),
        num_correct=sum(one.num_rows for one in confusions if one.given == one.truth),
        labels=_label_metrics(confusions),
        confusions=confusions,
        calibration=bins,
        calibration_error=error,
    )


def hold_rows(rows: pl.DataFrame, wanted: float | None) -> tuple[TruthReport, PrecisionThreshold | None]:
    """Hold rows whose truth is known against it, and find the threshold for a precision where one is wanted.

    Args:
        rows: the columns truth, given, best (strings) and score (NaN where not scored).
        wanted: the precision, in 0..1; None: no threshold is looked for.
    """
    scores = rows["score"].to_numpy()
    report = hold_against_truth(rows["truth"], rows["given"], scores, rows["best"])
    if wanted is None:
        return report, None
    is_right = (rows["best"] == rows["truth"]).fill_null(value=False).to_numpy()
    return report, threshold_for(wanted, is_right, scores, report.num_rows)


def threshold_for(wanted: float, is_right: np.ndarray, scores: np.ndarray, num_rows: int) -> PrecisionThreshold | None:
    """Find the lowest threshold at which the labels at or above it are right as often as wanted.

    The lowest, and not the first that is met from above: precision may rise and fall along the scores, and the lowest
    one keeps the most rows. It is as good as the rows it was found on; hold it against others before relying on it.

    Args:
        wanted: the precision, in 0..1.
        is_right: (rows,) bool, whether the best label is the truth; rows with a truth alone.
        scores: (rows,) float32, the best label's score; rows with NaN count for nothing.
        num_rows: rows with a truth, for the coverage.

    Returns:
        None where no threshold reaches it.

    >>> scores = np.array([0.9, 0.8, 0.8, 0.4], dtype=np.float32)
    >>> found = threshold_for(0.75, np.array([True, True, False, True]), scores, 4)
    >>> found.threshold, found.precision, found.num_rows, found.coverage  # at 0.8: 2 of 3; at 0.4: 3 of 4
    (0.4, 0.75, 4, 1.0)
    """
    scored = np.isfinite(scores)
    order = np.argsort(-scores[scored], kind="stable")
    ranked, right = scores[scored][order].astype(np.float32), np.cumsum(is_right[scored][order])
    # A threshold takes all rows of a score or none of them: only the last row of each counts.
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True)) if len(ranked) else np.empty(0, dtype=np.int64)
    reached = ends[right[ends] >= wanted * (ends + 1)]
    if not len(reached):
        return None
    last = int(reached[-1])
    # The shortest decimal that float32 reads as this score: what `--threshold` then compares with is the same number.
    threshold = float(str(ranked[last]))
    return PrecisionThreshold(wanted, threshold, float(right[last]) / (last + 1), last + 1, (last + 1) / num_rows)


def _label_metrics(confusions: tuple[Confusion, ...]) -> tuple[LabelMetrics, ...]:
    true: dict[str, int] = {}
    given: dict[str, int] = {}
    correct: dict[str, int] = {}
    for one in confusions:
        true[one.truth] = true.get(one.truth, 0) + one.num_rows
        if one.given is not None:
            given[one.given] = given.get(one.given, 0) + one.num_rows
        if one.given == one.truth:
            correct[one.truth] = one.num_rows
    names = sorted(true.keys() | given.keys(), key=lambda name: (-true.get(name, 0), name))
    return tuple(LabelMetrics(name, true.get(name, 0), given.get(name, 0), correct.get(name, 0)) for name in names)


def _calibration(scores: np.ndarray, is_right: np.ndarray) -> tuple[tuple[CalibrationBin, ...], float | None]:
    scored = np.isfinite(scores)
    scores, is_right = scores[scored], is_right[scored]
    # Rounded first: 0.3 in float32 is a little above, and belongs where it is read to belong.
    index = np.clip(np.floor(np.round(scores * NUM_BINS, 5)).astype(np.int64), 0, NUM_BINS - 1)
    counts = np.bincount(index, minlength=NUM_BINS)
    sums = np.bincount(index, weights=scores, minlength=NUM_BINS)
    right = np.bincount(index, weights=is_right, minlength=NUM_BINS)
    bins = tuple(
        CalibrationBin(
            number / NUM_BINS,
            (number + 1) / NUM_BINS,
            int(counts[number]),
            float(sums[number] / counts[number]) if counts[number] else None,
            float(right[number] / counts[number]) if counts[number] else None,
        )
        for number in range(NUM_BINS)
    )
    error = float(np.abs(right - sums).sum() / len(scores)) if len(scores) else None
    return bins, error
