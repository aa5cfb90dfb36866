"""What a report says where the true labels are known: types only, filled by what joins them from the input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabelTruth:
    """One label held against the truth."""

    name: str
    num_true: int  # rows whose true label it is
    num_named: int  # rows that got it
    num_right: int  # both

    @property
    def precision(self) -> float | None:
        """Of the rows that got the label, the share that is right."""
        return self.num_right / self.num_named if self.num_named else None

    @property
    def recall(self) -> float | None:
        """Of the rows whose label it is, the share that got it."""
        return self.num_right / self.num_true if self.num_true else None


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Rows whose scores are alike: how sure the scores are, and how right."""

    num_rows: int
    mean_score: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class WantedPrecision:
    """The lowest threshold at which the rows that keep a label are right often enough."""

    wanted: float
    threshold: float | None  # None: no threshold reaches it
    precision: float | None  # what is reached
    coverage: float | None  # the share of rows that keep a label


@dataclass(frozen=True, slots=True)
class TruthSection:
    """An output held against a column of true labels."""

    column: str
    num_rows: int  # scored rows whose true label is known
    num_unknown: int  # scored rows without one
    accuracy: float | None
    labels: tuple[LabelTruth, ...]  # true or given, by their number of true rows
    confusion: tuple[tuple[int, ...], ...]  # [true label][label it got], both in the order of `labels`, then: none
    calibration: tuple[CalibrationBin, ...]
    wanted: WantedPrecision | None
