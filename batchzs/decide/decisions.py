"""From stored logits to the scores of other labels: a subset, labels merged, label bias taken out.

Where labels are only left out, this is the run's own scoring of the labels that stay, bit for bit: a pair's logits
depend on no other label. A merged label's score is

    single label    the sum of its members': they exclude each other, so the chance that the text is of one of them is
                    the sum of the chances
    multi-label     the largest of its members': each answers a question of its own, and how far the answers hang
                    together is not known; the largest is the least that "one of them at least" can be

Pure NumPy, in float64 between the run's scores and the new ones. Which label is best, and whether it is enough, is
decided in `output` as for a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from batchzs.decide.priors import correct_odds, correct_shares
from batchzs.scoring import scores_from_logits

if TYPE_CHECKING:
    from batchzs.models.classes import ClassIndices


@dataclass(frozen=True, slots=True)
class NewLabels:
    """How new labels' scores come from the old ones'.

    Attributes:
        members: for each new label the old labels' indices; no index twice.
        as_multi_label: score every label by itself.
        priors: mean scores of the old labels, in the order of `kept`; None: nothing is corrected.
    """

    members: tuple[tuple[int, ...], ...]
    as_multi_label: bool
    priors: tuple[float, ...] | None = None

    @property
    def kept(self) -> list[int]:
        """The old labels that take part, new label after new label."""
        return [index for group in self.members for index in group]

    @property
    def starts(self) -> list[int]:
        """Where in `kept` each new label's members begin."""
        return list(accumulate((len(group) for group in self.members[:-1]), initial=0))

    @property
    def are_old_ones(self) -> bool:
        """Whether every new label is an old one with the run's own score."""
        return self.priors is None and all(len(group) == 1 for group in self.members)

    def scores(self, logits: np.ndarray, classes: ClassIndices) -> np.ndarray:
        """Score the new labels.

        Args:
            logits: (rows, old labels, classes) float32.
            classes: which class is which.

        Returns:
            (rows, new labels) float32.

        >>> from batchzs.models.classes import ClassIndices
        >>> logits = np.log(np.array([[[5, 1], [3, 1], [2, 1]]], dtype=np.float32))
        >>> NewLabels(((0,), (1, 2)), False).scores(logits, ClassIndices(0, 1, None)).round(4).tolist()  # 5 and 3 + 2
        [[0.5, 0.5]]
        >>> NewLabels(((0,), (1, 2)), True).scores(logits, ClassIndices(0, 1, None)).round(4).tolist()  # 5/6, 3/4
        [[0.833299994468689, 0.75]]
        """
        scores = scores_from_logits(logits[:, self.kept], classes, as_multi_label=self.as_multi_label)
        if self.are_old_ones:
            return scores
        exact = scores.astype(np.float64)
        if self.priors is not None:
            exact = (correct_odds if self.as_multi_label else correct_shares)(exact, self.priors)
        merged = merge_scores(exact, self.starts, as_multi_label=self.as_multi_label)
        # Sums of rounded shares may come out a last bit above 1.
        merged[merged > 1] = 1.0
        return merged.astype(np.float32)


def merge_scores(scores: np.ndarray, starts: list[int], *, as_multi_label: bool) -> np.ndarray:
    """Put neighbouring labels' scores together.

    Args:
        scores: (rows, labels) float64.
        starts: where each merged label's members begin.
        as_multi_label: take the largest and not the sum.

    >>> merge_scores(np.array([[0.5, 0.2, 0.3]]), [0, 1], as_multi_label=False).tolist()
    [[0.5, 0.5]]
    """
    add_up = np.maximum.reduceat if as_multi_label else np.add.reduceat
    merged: np.ndarray = add_up(scores, starts, axis=1)
    return merged
