"""What a report says where the true labels are known: the numbers of `truth.metrics`, and of which column they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchzs.truth.text import truth_to_json

if TYPE_CHECKING:
    from batchzs.truth.metrics import CalibrationBin, PrecisionThreshold, TruthReport


@dataclass(frozen=True, slots=True)
class TruthSection:
    """An output held against a column of true labels."""

    column: str
    report: TruthReport  # over scored rows
    wanted: float | None  # the precision that a threshold is looked for; None: none is
    threshold: PrecisionThreshold | None  # None: no threshold reaches it, or none is wanted

    @property
    def filled_bins(self) -> list[CalibrationBin]:
        """The bins of scores that have rows."""
        return [one for one in self.report.calibration if one.num_rows]

    def confusion(self) -> list[list[int]]:
        """Rows by true label and label they got, both in the order of the report's labels, then: none."""
        places = {label.name: place for place, label in enumerate(self.report.labels)}
        counts = np.zeros((len(places), len(places) + 1), dtype=np.int64)
        for one in self.report.confusions:
            counts[places[one.truth], len(places) if one.given is None else places[one.given]] = one.num_rows
        return [[int(count) for count in row] for row in counts]


def section_to_json(section: TruthSection) -> dict[str, Any]:
    """Write a section as `decide --json` writes the truth, with its column."""
    return {"column": section.column, **truth_to_json(section.report, section.threshold)}
