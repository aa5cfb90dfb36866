"""From logits to scores, labels and what stands in the output.

Pure NumPy, in float64 inside and float32 outside, so that a score is the same whatever the batch and the device that
made the logits. The formulas are ModelScope's zero-shot pipeline's: one label, or several at once, are each a softmax
over (contradiction, entailment); otherwise one softmax runs over all labels' entailment logits.

Ties go to the label that comes first in the job (ModelScope's argsort breaks them from the end).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from batchzs.models.classes import ClassIndices
    from batchzs.records import OtherLabel


def scores_from_logits(logits: np.ndarray, classes: ClassIndices, *, as_multi_label: bool) -> np.ndarray:
    """Turn logits into one score a label.

    Args:
        logits: (rows, labels, classes) float32, in the checkpoint's class order. All labels at once: the softmax over
            labels is taken here and nowhere else.
        classes: which class is entailment and which contradiction.
        as_multi_label: score every label by itself. One label alone must be scored so: a softmax over one is always 1.

    Returns:
        (rows, labels) float32 in 0..1; rows whose logits are not finite give NaN.

    >>> from batchzs.models.classes import ClassIndices
    >>> logits = np.array([[[2.0, 0.0, 1.0], [0.0, 0.0, 1.0]]], dtype=np.float32)
    >>> scores_from_logits(logits, ClassIndices(0, 2, 1), as_multi_label=False).round(4).tolist()  # e^2 / (e^2 + e^0)
    [[0.8808000087738037, 0.11919999867677689]]
    >>> scores_from_logits(logits, ClassIndices(0, 2, 1), as_multi_label=True).round(4).tolist()  # 1 / (1 + e^-(2-1))
    [[0.7311000227928162, 0.2689000070095062]]
    """
    with np.errstate(invalid="ignore"):
        entailment = logits[:, :, classes.entailment].astype(np.float64)
        if as_multi_label:
            margin = entailment - logits[:, :, classes.contradiction].astype(np.float64)
            # Written through exp(-|x|), which cannot overflow.
            small = np.exp(-np.abs(margin))
            scores = np.where(margin >= 0, 1.0, small) / (1.0 + small)
        else:
            shifted = np.exp(entailment - entailment.max(axis=1, keepdims=True))
            scores = shifted / shifted.sum(axis=1, keepdims=True)
    return scores.astype(np.float32)


def rank_labels(scores: np.ndarray) -> np.ndarray:
    """Order each row's labels by score, best first; equal scores keep the job's order.

    Args:
        scores: (rows, labels) float32.

    Returns:
        (rows, labels) int64 label indices.

    >>> rank_labels(np.array([[0.2, 0.4, 0.4]], dtype=np.float32)).tolist()
    [[1, 2, 0]]
    """
    return np.argsort(-scores, axis=1, kind="stable")


def reaches(scores: np.ndarray, threshold: float) -> np.ndarray:
    """Tell which scores are at or above a threshold.

    The threshold is rounded to float32 as the scores are: a job that says 0.3 means the number that the output shows
    as 0.3.

    Args:
        scores: float32, any shape.
        threshold: in 0..1.

    Returns:
        bool, the same shape.

    >>> reaches(np.array([0.3, 0.29999], dtype=np.float32), 0.3).tolist()
    [True, False]
    """
    return scores >= np.float32(threshold)


def falls_to_other(ranked_scores: np.ndarray, other: OtherLabel) -> np.ndarray:
    """Tell which rows get the label that stands for none of the others.

    Args:
        ranked_scores: (rows, labels) float32, each row's scores, best first.
        other: below which score, and with which margin between the two best scores, a row is nobody's.

    Returns:
        (rows,) bool.

    >>> from batchzs.records import OtherLabel
    >>> ranked = np.array([[0.7, 0.3], [0.52, 0.48], [0.3, 0.2]], dtype=np.float32)
    >>> falls_to_other(ranked, OtherLabel(name="其他", below=0.4, margin=0.1)).tolist()
    [False, True, True]
    """
    is_other = np.zeros(len(ranked_scores), dtype=bool)
    if other.below is not None:
        is_other |= ~reaches(ranked_scores[:, 0], other.below)
    if other.margin is not None and ranked_scores.shape[1] > 1:
        is_other |= ranked_scores[:, 0] - ranked_scores[:, 1] < np.float32(other.margin)
    return is_other


@dataclass(frozen=True, slots=True)
class CloseCalls:
    """Which rows a small error of their scores could decide otherwise.

    A row is close where its two best scores, or a score and the threshold that it is held against, lie no more than
    `margin` apart. With `margin` twice the largest error of a score, every other row's label is what exact scores give.

    >>> from batchzs.models.classes import ClassIndices
    >>> is_close = CloseCalls(ClassIndices(0, 2, 1), as_multi_label=False, threshold=None, margin=0.1)
    >>> is_close(np.array([[[2.0, 0.0, 1.0], [0.0, 0.0, 1.0]], [[1.0, 0.0, 1.0], [0.9, 0.0, 1.0]]])).tolist()
    [False, True]
    """

    classes: ClassIndices
    as_multi_label: bool
    threshold: float | None
    margin: float

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Tell close rows.

        Args:
            logits: (rows, labels, classes) float32, finite.

        Returns:
            (rows,) bool.
        """
        scores = scores_from_logits(logits, self.classes, as_multi_label=self.as_multi_label).astype(np.float64)
        ranked = np.sort(scores, axis=1)[:, ::-1]
        close = np.zeros(len(scores), dtype=bool)
        if scores.shape[1] > 1:
            close |= ranked[:, 0] - ranked[:, 1] <= self.margin
        if self.threshold is not None:
            held = scores if self.as_multi_label else ranked[:, :1]
            close |= (np.abs(held - self.threshold) <= self.margin).any(axis=1)
        return close
