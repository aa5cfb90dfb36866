"""Scores of new labels, their priors, and which decisions an error could turn: by hand, and for any scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from batchzs.decide.closeness import CloseDecisions
from batchzs.decide.decisions import NewLabels
from batchzs.decide.priors import PriorMean, correct_odds, correct_shares, uncorrected
from batchzs.models.classes import ClassIndices
from batchzs.records import OtherLabel
from batchzs.scoring import CloseCalls, falls_to_other, reaches, scores_from_logits
from tests.builders import PATIENT

CLASSES = ClassIndices(0, 2, 1)
#: Four labels, some left out, some merged, with and without priors.
NEW_LABELS = (
    NewLabels(((0,), (1,), (2,), (3,)), as_multi_label=False),
    NewLabels(((2,), (0,)), as_multi_label=False),
    NewLabels(((0, 3), (1,)), as_multi_label=False),
    NewLabels(((0, 3), (1,), (2,)), as_multi_label=False, priors=(0.4, 0.1, 0.3, 0.2)),
    NewLabels(((0,), (1,), (2,), (3,)), as_multi_label=True),
    NewLabels(((1, 2), (0,)), as_multi_label=True),
    NewLabels(((1, 2), (0,)), as_multi_label=True, priors=(0.3, 0.6, 0.8)),
)


def logits_of(scores: np.ndarray, *, as_multi_label: bool) -> np.ndarray:
    """(rows, labels, 3) float32 logits that give these scores."""
    logits = np.zeros((*scores.shape, 3), dtype=np.float32)
    with np.errstate(divide="ignore"):
        logits[:, :, 0] = np.log(scores) - (np.log1p(-scores) if as_multi_label else 0)
    return np.clip(logits, -80, 80)


def test_a_subset_is_what_scoring_it_alone_gives() -> None:
    """The same bits: a pair's logits hang on no other label."""
    logits = np.random.default_rng(0).normal(size=(50, 4, 3)).astype(np.float32) * 3
    for as_multi_label in (False, True):
        alone = scores_from_logits(logits[:, [3, 1]], CLASSES, as_multi_label=as_multi_label)
        subset = NewLabels(((3,), (1,)), as_multi_label).scores(logits, CLASSES)
        assert subset.tobytes() == alone.tobytes()


def test_merges_by_hand() -> None:
    """Shares of 5, 3 and 2 in ten: merged the last two have a half; by themselves the larger counts."""
    scores = np.array([[0.5, 0.3, 0.2]])
    merged = NewLabels(((0,), (1, 2)), as_multi_label=False)
    found = merged.scores(logits_of(scores, as_multi_label=False), CLASSES)
    assert found.tolist() == [pytest.approx([0.5, 0.5], abs=1e-6)]
    merged = NewLabels(((1, 2), (0,)), as_multi_label=True)
    found = merged.scores(logits_of(scores, as_multi_label=True), CLASSES)
    assert found.tolist() == [pytest.approx([0.3, 0.5], abs=1e-6)]


def test_priors_by_hand() -> None:
    """0.6/0.75 and 0.4/0.25 are 0.8 and 1.6; odds of 4 over odds of 1.5 are 8/3."""
    logits = logits_of(np.array([[0.6, 0.4]]), as_multi_label=False)
    found = NewLabels(((0,), (1,)), as_multi_label=False, priors=(0.75, 0.25)).scores(logits, CLASSES)
    assert found.tolist() == [pytest.approx([1 / 3, 2 / 3], abs=1e-6)]
    logits = logits_of(np.array([[0.8]]), as_multi_label=True)
    found = NewLabels(((0,),), as_multi_label=True, priors=(0.6,)).scores(logits, CLASSES)
    assert found.tolist() == [pytest.approx([8 / 11], abs=1e-6)]


def test_a_mean_that_is_nothing_divides_by_no_nothing() -> None:
    """A label that no text ever came near stays finite; the mean of no row is no number."""
    mean = PriorMean(2)
    assert np.isnan(mean.values()).all()
    mean.add(np.array([[0.0, 1.0]], dtype=np.float32))
    assert np.isfinite(correct_shares(np.array([[0.5, 0.5]]), mean.values())).all()
    assert np.isfinite(correct_odds(np.array([[0.0, 1.0]]), mean.values())).all()


SHARES = arrays.arrays(np.float64, (5, 4), elements=st.floats(0.001, 1))
PRIORS = st.lists(st.floats(0.01, 0.99), min_size=4, max_size=4)


@PATIENT
@given(SHARES, PRIORS)
def test_priors_keep_shares_shares_and_a_neutral_row_neutral(scores: np.ndarray, priors: list[float]) -> None:
    """Rows add up to 1; equal priors change nothing; a row that is the prior gets equal shares, or one half."""
    shares = scores / scores.sum(axis=1, keepdims=True)
    mean = np.array(priors) / sum(priors)
    corrected = correct_shares(shares, mean)
    assert corrected.sum(axis=1) == pytest.approx(1)
    assert correct_shares(shares, [0.25] * 4) == pytest.approx(shares)
    assert correct_shares(mean[None, :], mean) == pytest.approx(0.25)
    assert correct_odds(np.array([priors]), priors) == pytest.approx(0.5)
    assert correct_odds(uncorrected(0.7, priors)[None, :], priors) == pytest.approx(0.7)


def decisions(scores: np.ndarray, threshold: float | None, other: OtherLabel | None, *, sets: bool) -> list[object]:
    """What is decided of each row: its label, and in multi-label which labels count."""
    decided = scores.argmax(axis=1).astype(object)
    if other is not None:
        decided[falls_to_other(-np.sort(-scores, axis=1), other)] = "other"
    if threshold is None:
        return list(decided)
    reached = reaches(scores, threshold)
    if sets:
        return list(zip(decided.tolist(), map(tuple, reached.tolist()), strict=True))
    decided[(decided != "other") & ~reached.any(axis=1)] = None
    return list(decided)


#: A threshold, and a label for rows that none fits.
RULES: tuple[tuple[float | None, OtherLabel | None], ...] = (
    (None, None),
    (0.3, None),
    (0.5, OtherLabel(name="x", below=0.4, margin=None)),
    (None, OtherLabel(name="x", below=None, margin=0.1)),
)


@PATIENT
@given(
    scores=arrays.arrays(np.float64, (8, 4), elements=st.floats(0.01, 0.99)),
    noise=arrays.arrays(np.float64, (8, 4), elements=st.floats(-1, 1)),
    error=st.sampled_from([0.001, 0.01, 0.05]),
    labels=st.sampled_from(NEW_LABELS),
    rule=st.sampled_from(RULES),
)
def test_what_is_not_marked_decides_the_same_within_the_error(
    scores: np.ndarray,
    noise: np.ndarray,
    error: float,
    labels: NewLabels,
    rule: tuple[float | None, OtherLabel | None],
) -> None:
    """For any true scores within the error of the known ones, rows that are not marked have the true decision."""
    threshold, other = rule
    if labels.as_multi_label and other is not None and other.margin is not None:
        other = None  # refused
    if labels.as_multi_label:
        known, true = scores, np.clip(scores + noise * error, 0.001, 0.999)
    else:
        known = scores / scores.sum(axis=1, keepdims=True)
        moves = noise - noise.mean(axis=1, keepdims=True)
        moves *= error / np.maximum(np.abs(moves).max(axis=1, keepdims=True), 1)
        true = np.where((known + moves > 0).all(axis=1, keepdims=True), known + moves, known)
    # A hair more than the error: these scores went through float32.
    close = CloseDecisions(labels, 4, 2 * error + 1e-5, threshold, other)
    marked = close(known.astype(np.float32))
    old, new = (
        decisions(
            labels.scores(logits_of(one, as_multi_label=labels.as_multi_label), CLASSES),
            threshold,
            other,
            sets=labels.as_multi_label,
        )
        for one in (known, true)
    )
    assert [one for one, is_close in zip(old, marked, strict=True) if not is_close] == [
        one for one, is_close in zip(new, marked, strict=True) if not is_close
    ]


@PATIENT
@given(
    scores=arrays.arrays(np.float64, (20, 4), elements=st.floats(0.01, 0.99)),
    as_multi_label=st.booleans(),
    threshold=st.sampled_from([None, 0.3, 0.5]),
)
def test_with_the_runs_own_labels_it_is_the_runs_own_rule(
    scores: np.ndarray, threshold: float | None, *, as_multi_label: bool
) -> None:
    """The rows that the run would score again are those that are marked."""
    if not as_multi_label:
        scores = scores / scores.sum(axis=1, keepdims=True)
    logits = logits_of(scores, as_multi_label=as_multi_label)
    own = NewLabels(((0,), (1,), (2,), (3,)), as_multi_label)
    marked = CloseDecisions(own, 4, 0.04, threshold, None)(
        scores_from_logits(logits, CLASSES, as_multi_label=as_multi_label)
    )

    def rule(margin: float) -> np.ndarray:
        return CloseCalls(CLASSES, as_multi_label=as_multi_label, threshold=threshold, margin=margin)(logits)

    edge = rule(0.04 + 1e-5) & ~rule(0.04 - 1e-5)  # where float32 decides
    assert (marked == rule(0.04))[~edge].all()
