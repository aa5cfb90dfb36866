"""Label bias taken out of scores: each score divided by the mean score that its label gets anyway.

A zero-shot classifier leans towards some labels whatever the text says, because of the label's words and the template.
How far is seen on texts that say nothing (an empty headline, "N/A"): contextual calibration, after Zhao, Wallace, Feng,
Klein and Singh, "Calibrate Before Use: Improving Few-Shot Performance of Language Models", ICML 2021
(arXiv:2102.09690), whose matrix is diag(p_cf)^-1. Or on the batch itself: batch calibration, after Zhou, Wan, Proleev,
Mincu, Chen, Heller and Roy, "Batch Calibration: Rethinking Calibration for In-Context Learning and Prompt Engineering",
ICLR 2024 (arXiv:2309.17249), which divides by the mean over the batch.

With p_j a row's score of label j and m_j the mean score of label j over the content-free texts or over the batch:

    single label    p'_j = (p_j / m_j) / sum over k of (p_k / m_k)
    multi-label     p'_j / (1 - p'_j) = (p_j / (1 - p_j)) / (m_j / (1 - m_j))

The papers take the largest of p_j / m_j; dividing by the sum keeps that order and makes scores of it again. In
multi-label each label is a question with two answers of its own, and the same division of both answers' scores gives
the quotient of odds: a label that says nothing of a text, p_j = m_j, gets one half.

Pure NumPy. What the means are taken over is for the caller to choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A mean score counts as no nearer to 0 (in multi-label, to 1) than this: dividing by less says nothing of a label but
#: how float32 rounds.
SMALLEST_PRIOR = 1e-6


class PriorMean:
    """Adds up scores over any number of batches.

    >>> mean = PriorMean(2)
    >>> mean.add(np.array([[0.9, 0.1], [0.5, 0.5]], dtype=np.float32))
    >>> mean.num_rows, mean.values().round(3).tolist()
    (2, [0.7, 0.3])
    """

    def __init__(self, num_labels: int) -> None:
        self.num_rows = 0
        self._sums = np.zeros(num_labels)

    def add(self, scores: np.ndarray) -> None:
        """Count rows.

        Args:
            scores: (rows, labels), finite.
        """
        self.num_rows += len(scores)
        self._sums += scores.sum(axis=0, dtype=np.float64)

    def values(self) -> np.ndarray:
        """(labels,) float64, kept away from 0 and 1 by `SMALLEST_PRIOR`; of no row at all, NaN."""
        if not self.num_rows:
            return np.full(len(self._sums), np.nan)
        return np.clip(self._sums / self.num_rows, SMALLEST_PRIOR, 1 - SMALLEST_PRIOR)


def weights_of(priors: Iterable[float]) -> np.ndarray:
    """(labels,) float64: what single-label scores are multiplied by before they are divided by their sum.

    Scaled so that their mean is 1: one scale for all changes no score, and equal priors then give weights of 1.

    >>> weights_of([0.5, 0.25]).round(4).tolist()
    [0.6667, 1.3333]
    """
    inverse = 1.0 / np.array(list(priors), dtype=np.float64)
    weights: np.ndarray = inverse / inverse.mean()
    return weights


def correct_shares(scores: np.ndarray, priors: Iterable[float]) -> np.ndarray:
    """Correct single-label scores.

    Args:
        scores: (rows, labels) float64.
        priors: (labels,) mean scores.

    Returns:
        (rows, labels) float64; each row adds up to 1.

    >>> correct_shares(np.array([[0.6, 0.4]]), [0.75, 0.25]).round(4).tolist()  # 0.8 and 1.6, over 2.4
    [[0.3333, 0.6667]]
    """
    weighted = scores * weights_of(priors)
    shares: np.ndarray = weighted / weighted.sum(axis=1, keepdims=True)
    return shares


def correct_odds(scores: np.ndarray, priors: Iterable[float]) -> np.ndarray:
    """Correct multi-label scores.

    Args:
        scores: (rows, labels) float64 in 0..1.
        priors: (labels,) mean scores.

    Returns:
        (rows, labels) float64.

    >>> correct_odds(np.array([[0.8, 0.8]]), [0.8, 0.5]).round(4).tolist()  # odds 4 / 4, and 4 / 1
    [[0.5, 0.8]]
    """
    prior = np.array(list(priors), dtype=np.float64)
    yes, no = scores * (1 - prior), (1 - scores) * prior
    return yes / (yes + no)


def uncorrected(threshold: float, priors: Iterable[float]) -> np.ndarray:
    """(labels,) float64: the score that `correct_odds` makes this threshold of, for each label.

    >>> uncorrected(0.5, [0.8, 0.5]).round(4).tolist()
    [0.8, 0.5]
    """
    prior = np.array(list(priors), dtype=np.float64)
    yes, no = threshold * prior, (1 - threshold) * (1 - prior)
    return yes / (yes + no)
