"""Logits to scores: ModelScope's formulas, ties in the job's order, and thresholds as people read them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from batchzs.models.classes import ClassIndices
from batchzs.scoring import CloseCalls, rank_labels, reaches, scores_from_logits
from tests.builders import PATIENT

STRUCTBERT = ClassIndices(entailment=0, contradiction=2, neutral=1)
FINITE = st.floats(min_value=-30, max_value=30, width=32)
LOGITS = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.integers(1, 8), st.just(3)), elements=FINITE, fill=st.nothing()
)


def naive_scores(logits: np.ndarray, *, as_multi_label: bool) -> np.ndarray:
    """The formulas with Python's own numbers, one row and one label after the other."""
    rows = []
    for row in logits.astype(np.float64).tolist():
        if as_multi_label:
            rows.append([math.exp(e) / (math.exp(e) + math.exp(c)) for e, _, c in row])
        else:
            total = math.fsum(math.exp(e) for e, _, _ in row)
            rows.append([math.exp(e) / total for e, _, _ in row])
    return np.array(rows, dtype=np.float32)


def pipeline_scores(logits: np.ndarray, *, as_multi_label: bool) -> np.ndarray:
    """The lines of transformers' ZeroShotClassificationPipeline.postprocess, with its class indices ours."""
    if as_multi_label:
        entail_contr_logits = logits[..., [2, 0]]
        scores = np.exp(entail_contr_logits) / np.exp(entail_contr_logits).sum(-1, keepdims=True)
        return np.asarray(scores[..., 1])
    entail_logits = logits[..., 0]
    return np.asarray(np.exp(entail_logits) / np.exp(entail_logits).sum(-1, keepdims=True))


def test_single_label_worked_by_hand() -> None:
    """The softmax runs over the labels' entailment logits, and no other class has a say.

    Entailment ln 1, ln 2, ln 5: e^x are 1, 2, 5 and their sum is 8.
    """
    logits = np.array([[[0.0, 9, -9], [math.log(2), -9, 9], [math.log(5), 0, 0]]], dtype=np.float32)
    scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=False)
    np.testing.assert_allclose(scores, [[1 / 8, 2 / 8, 5 / 8]], rtol=1e-6)
    assert scores.dtype == np.float32


def test_multi_label_worked_by_hand() -> None:
    """Each label for itself: softmax over (contradiction, entailment).

    ln 3 against 0: 3 / (3 + 1) = 0.75; 0 against ln 4: 1 / (1 + 4) = 0.2. The neutral logit has no say.
    """
    logits = np.array([[[math.log(3), 50, 0.0], [0.0, -50, math.log(4)]]], dtype=np.float32)
    scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=True)
    np.testing.assert_allclose(scores, [[0.75, 0.2]], rtol=1e-6)


def test_two_class_head_uses_its_other_class() -> None:
    """Entailment at 1, contradiction at 0: ln 3 against 0 is 0.75 here too."""
    logits = np.array([[[0.0, math.log(3)]]], dtype=np.float32)
    scores = scores_from_logits(logits, ClassIndices(1, 0, None), as_multi_label=True)
    np.testing.assert_allclose(scores, [[0.75]], rtol=1e-6)


def test_one_label_alone_tells_texts_apart() -> None:
    """Case Z5: entailment against contradiction; the softmax over one label would be 1.0 for every text."""
    logits = np.array([[[-2.0, 0, 3]], [[4.0, 0, -1]]], dtype=np.float32)
    scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=True)
    assert scores[0, 0] < 0.01
    assert scores[1, 0] > 0.99
    assert scores_from_logits(logits, STRUCTBERT, as_multi_label=False).tolist() == [[1.0], [1.0]]


def test_softmax_runs_over_all_labels_and_not_over_chunks() -> None:
    """Case Z7: for [2, 0, -1, 1.9, 0.1, -2] the best score is 0.443; chunks of three would give .844 and .843."""
    entailment = np.array([2, 0, -1, 1.9, 0.1, -2], dtype=np.float32)
    logits = np.zeros((1, 6, 3), dtype=np.float32)
    logits[0, :, 0] = entailment
    scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=False)
    assert scores.max().round(3) == np.float32(0.443)
    chunks = [scores_from_logits(logits[:, part], STRUCTBERT, as_multi_label=False) for part in (slice(3), slice(3, 6))]
    assert [float(chunk.max().round(3)) for chunk in chunks] == pytest.approx([0.844, 0.843])


@pytest.mark.parametrize("as_multi_label", [False, True])
@PATIENT
@given(logits=LOGITS)
def test_equals_the_naive_formula(logits: np.ndarray, as_multi_label: bool) -> None:  # noqa: FBT001 - parametrised
    """Every score is the formula's own float64 value, rounded once."""
    scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=as_multi_label)
    np.testing.assert_allclose(scores, naive_scores(logits, as_multi_label=as_multi_label), rtol=2e-7, atol=1e-37)


@pytest.mark.parametrize("as_multi_label", [False, True])
@PATIENT
@given(logits=LOGITS)
def test_equals_the_formula_of_transformers_pipeline(
    logits: np.ndarray,
    as_multi_label: bool,  # noqa: FBT001 - parametrised
) -> None:
    """The zero-shot pipeline computes the same in float32, so within 1e-6."""
    scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=as_multi_label)
    np.testing.assert_allclose(scores, pipeline_scores(logits, as_multi_label=as_multi_label), atol=1e-6)


@pytest.mark.parametrize("as_multi_label", [False, True])
@PATIENT
@given(logits=LOGITS, data=st.data())
def test_the_order_of_labels_changes_no_score(
    logits: np.ndarray,
    as_multi_label: bool,  # noqa: FBT001 - parametrised
    data: st.DataObject,
) -> None:
    """Labels in another order have the same scores in that order, to the rounding of a sum taken in another order."""
    order = data.draw(st.permutations(range(logits.shape[1])))
    scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=as_multi_label)
    permuted = scores_from_logits(logits[:, order], STRUCTBERT, as_multi_label=as_multi_label)
    np.testing.assert_allclose(permuted, scores[:, order], rtol=2e-7, atol=1e-37)


@PATIENT
@given(logits=LOGITS)
def test_scores_lie_between_0_and_1_and_single_label_ones_sum_to_1(logits: np.ndarray) -> None:
    """What a score promises."""
    single = scores_from_logits(logits, STRUCTBERT, as_multi_label=False)
    multi = scores_from_logits(logits, STRUCTBERT, as_multi_label=True)
    np.testing.assert_allclose(single.sum(axis=1), 1, rtol=1e-5)
    for scores in (single, multi):
        assert ((scores >= 0) & (scores <= 1)).all()


def test_extreme_logits_neither_overflow_nor_warn() -> None:
    """exp(1e4) is no float64: the scores are 1 and 0, and a warning would be an error here."""
    logits = np.array([[[1e4, 0, -1e4], [-1e4, 0, 1e4]]], dtype=np.float32)
    for as_multi_label in (False, True):
        assert scores_from_logits(logits, STRUCTBERT, as_multi_label=as_multi_label).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_is_nan_without_a_warning_and_alone(bad: float) -> None:
    """Case Z9: the neighbour's scores stay; the row's own are seen to be none."""
    logits = np.zeros((2, 2, 3), dtype=np.float32)
    logits[0, :, [0, 2]] = bad
    for as_multi_label in (False, True):
        scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=as_multi_label)
        assert np.isnan(scores[0]).all()
        assert scores[1].tolist() == [0.5, 0.5]


def test_no_rows_no_scores() -> None:
    """An empty shard still has its columns."""
    logits = np.zeros((0, 4, 3), dtype=np.float32)
    for as_multi_label in (False, True):
        assert scores_from_logits(logits, STRUCTBERT, as_multi_label=as_multi_label).shape == (0, 4)
    assert rank_labels(np.zeros((0, 4), dtype=np.float32)).shape == (0, 4)


def test_ties_go_to_the_label_that_comes_first_in_the_job() -> None:
    """Two runs agree on a tie, and a user can tell who wins it."""
    assert rank_labels(np.array([[0.25, 0.5, 0.25, 0.5]], dtype=np.float32)).tolist() == [[1, 3, 0, 2]]


@PATIENT
@given(
    scores=hnp.arrays(
        np.float32, st.tuples(st.integers(0, 5), st.integers(1, 6)), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])
    )
)
def test_ranking_equals_pythons_stable_sort(scores: np.ndarray) -> None:
    """Best first, and the job's order among equals."""
    expected = [[label for _, label in sorted((-score, label) for label, score in enumerate(row))] for row in scores]
    assert rank_labels(scores).tolist() == expected


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.7, 0.9, 1 / 3, 1.0, 0.0])
def test_a_score_at_the_threshold_reaches_it(threshold: float) -> None:
    """At it counts as above, though float32 holds 0.3 as 0.30000001192 and 0.7 as 0.69999998808."""
    at = np.float32(threshold)
    scores = np.array([at, np.nextafter(at, np.float32(-1)), np.nextafter(at, np.float32(2))], dtype=np.float32)
    assert reaches(scores, threshold).tolist() == [True, False, True]


def test_nan_reaches_no_threshold() -> None:
    """A filter by threshold never keeps a row without a score."""
    assert reaches(np.array([np.nan], dtype=np.float32), 0.0).tolist() == [False]


def test_close_calls_worked_by_hand() -> None:
    """Scores 1/8, 2/8, 5/8: the best two are 3/8 apart. With a threshold of 0.5 the best one is 1/8 from it."""
    logits = np.array([[[math.log(1), 0, 0], [math.log(2), 0, 0], [math.log(5), 0, 0]]], dtype=np.float32)

    def is_close(margin: float, threshold: float | None = None) -> bool:
        return bool(CloseCalls(STRUCTBERT, as_multi_label=False, threshold=threshold, margin=margin)(logits)[0])

    assert [is_close(0.374), is_close(0.376)] == [False, True]
    assert [is_close(0.124, 0.5), is_close(0.126, 0.5)] == [False, True]
    # Scored one by one, each against a contradiction of 0: 1/2, 2/3, 5/6. Any of them may be the close one.
    several = CloseCalls(STRUCTBERT, as_multi_label=True, threshold=0.5, margin=0.01)
    assert several(logits).tolist() == [True]
    assert CloseCalls(STRUCTBERT, as_multi_label=True, threshold=0.6, margin=0.01)(logits).tolist() == [False]
    assert CloseCalls(STRUCTBERT, as_multi_label=True, threshold=0.68, margin=0.02)(logits).tolist() == [True]


@PATIENT
@given(logits=LOGITS, as_multi_label=st.booleans(), threshold=st.none() | st.floats(0, 1), data=st.data())
def test_no_small_error_decides_a_row_that_is_not_close(
    logits: np.ndarray,
    as_multi_label: bool,  # noqa: FBT001 - drawn
    threshold: float | None,
    data: st.DataObject,
) -> None:
    """Whatever errors of half the margin the scores have, other rows keep their best label and their side."""
    margin = 0.125
    scores = scores_from_logits(logits, STRUCTBERT, as_multi_label=as_multi_label).astype(np.float64)
    errors = data.draw(hnp.arrays(np.float64, scores.shape, elements=st.floats(-0.49 * margin, 0.49 * margin)))
    close = CloseCalls(STRUCTBERT, as_multi_label=as_multi_label, threshold=threshold, margin=margin)(logits)
    moved = scores + errors
    assert (moved.argmax(axis=1) == scores.argmax(axis=1))[~close].all()
    if threshold is not None:
        held, held_moved = (
            (scores, moved) if as_multi_label else (scores.max(axis=1, keepdims=True), moved.max(axis=1, keepdims=True))
        )
        assert ((held >= threshold) == (held_moved >= threshold))[~close].all()
