"""Which new decisions an error of low-precision scores could turn round.

Scores of a bf16 or fp16 run are known up to an error: half of the margin that the run measured, which is twice the
largest difference between two scores of one text and label (`batchzs.margin`). The new scores are made of the old ones,
so the old ones' error is carried through what is decided; a row that is not marked here decides the same for every set
of scores within the error. With the run's own labels this is the rule by which the run itself scores rows again.

Pure NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchzs.decide.decisions import merge_scores
from batchzs.decide.priors import correct_odds, uncorrected, weights_of

if TYPE_CHECKING:
    from batchzs.decide.decisions import NewLabels
    from batchzs.records import OtherLabel


@dataclass(frozen=True, slots=True)
class CloseDecisions:
    """Tells rows whose decision lies within the scores' error.

    Attributes:
        labels: how the new labels come from the old ones.
        num_old: the old labels' number.
        margin: twice the largest error of an old label's score.
        threshold: that scores are held against; None: none.
        other: a label for rows that none fits.
    """

    labels: NewLabels
    num_old: int
    margin: float
    threshold: float | None
    other: OtherLabel | None

    def __call__(self, old_scores: np.ndarray) -> np.ndarray:
        """Tell close rows.

        Args:
            old_scores: (rows, old labels) float32: one softmax over all of them, or each by itself, as the new labels
                are scored.

        Returns:
            (rows,) bool.
        """
        kept = old_scores[:, self.labels.kept].astype(np.float64)
        return self._among_odds(kept) if self.labels.as_multi_label else self._among_shares(kept)

    def _among_shares(self, kept: np.ndarray) -> np.ndarray:
        """Single label: everything decided is the sign of a weighted sum of the old scores.

        With w the weights, P_g the weighted sum of the scores of label g's members and Z that of all kept ones, a new
        score is P_g / Z. An error of at most e in each old score moves P_g - P_h by e (W_g + W_h) at most, W being sums
        of weights, and P_g - t Z by e (W_g + t S): since the errors of all old labels together cancel, S is how far the
        weights, left-out labels' 0 included, are from being one and the same.
        """
        weights = np.ones(kept.shape[1]) if self.labels.priors is None else weights_of(self.labels.priors)
        parts = merge_scores(kept * weights, self.labels.starts, as_multi_label=False)
        reach = merge_scores(weights[None, :], self.labels.starts, as_multi_label=False)[0]
        total = parts.sum(axis=1)
        spread = np.concatenate([weights, np.zeros(self.num_old - len(weights))])
        unequal = float(np.abs(spread - np.median(spread)).sum())
        rows, best = np.arange(len(parts)), parts.argmax(axis=1)
        top, error = parts[rows, best], self.margin / 2
        gaps = top[:, None] - parts
        slack = error * (reach[best][:, None] + reach[None, :])
        is_rival = np.ones(parts.shape, dtype=bool)
        is_rival[rows, best] = False
        close: np.ndarray = (is_rival & (gaps <= slack)).any(axis=1)
        for limit in self._limits():
            # As a run does, a score is held against a threshold within the whole margin.
            close |= np.abs(top - limit * total) <= self.margin * (reach[best] + limit * unequal)
        if self.other is not None and self.other.margin is not None:
            wanted = self.other.margin
            away = np.abs(gaps - wanted * total[:, None])
            close |= (is_rival & (away <= slack + error * wanted * unequal)).any(axis=1)
        return close

    def _among_odds(self, kept: np.ndarray) -> np.ndarray:
        """Multi-label: each new score grows with each member's, so its bounds are those of its members' bounds."""
        least, most = (self._moved(kept, by) for by in (-self.margin / 2, self.margin / 2))
        rows, best = np.arange(len(kept)), self._moved(kept, 0.0).argmax(axis=1)
        rivals = most.copy()
        rivals[rows, best] = -np.inf
        close: np.ndarray = least[rows, best] <= rivals.max(axis=1)
        if self.threshold is not None:
            priors = self.labels.priors
            limits = self.threshold if priors is None else uncorrected(self.threshold, priors)
            close |= (np.abs(kept - limits) <= self.margin).any(axis=1)
        if self.other is not None and self.other.below is not None:
            least, most = (self._moved(kept, by).max(axis=1) for by in (-self.margin, self.margin))
            close |= (least <= self.other.below) & (self.other.below <= most)
        return close

    def _moved(self, kept: np.ndarray, by: float) -> np.ndarray:
        """(rows, new labels): the new scores where every old one is so much higher."""
        moved = np.clip(kept + by, 0.0, 1.0)
        if self.labels.priors is not None:
            moved = correct_odds(moved, self.labels.priors)
        return merge_scores(moved, self.labels.starts, as_multi_label=True)

    def _limits(self) -> list[float]:
        below = None if self.other is None else self.other.below
        return [limit for limit in (self.threshold, below) if limit is not None]
