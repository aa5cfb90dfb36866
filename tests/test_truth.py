"""Labels held against the truth: cases by hand, and what must hold for any."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.truth.metrics import hold_against_truth, threshold_for
from batchzs.truth.text import format_truth, truth_to_json
from tests.builders import PATIENT

LABELS = ["财经", "体育", "其他"]
ROWS = st.lists(
    st.tuples(
        st.sampled_from([*LABELS, None]),
        st.sampled_from(LABELS),
        st.integers(0, 1000).map(lambda thousandths: np.float32(thousandths / 1000)),
    ),
    max_size=40,
)


def series(values: list[str | None]) -> pl.Series:
    """A column of texts, also where there are none."""
    return pl.Series(values, dtype=pl.String)


def test_a_case_by_hand() -> None:
    """Six rows: two of 财经, three of 体育, one whose truth is not known.

    财经 is given twice, once rightly; 体育 once, rightly; one row has no label; one is not scored.
    """
    truth = series(["财经", "财经", "体育", "体育", "体育", None])
    labels = series(["财经", None, "体育", "财经", None, "体育"])
    best = series(["财经", "体育", "体育", "财经", None, "体育"])
    scores = np.array([0.9, 0.3, 0.55, 0.58, np.nan, 0.99], dtype=np.float32)
    report = hold_against_truth(truth, labels, scores, best)
    assert (report.num_rows, report.num_unknown, report.num_given, report.num_correct) == (5, 1, 3, 2)
    assert report.accuracy == 2 / 5
    assert report.precision == 2 / 3
    assert report.coverage == 3 / 5
    sport, money = report.labels
    assert (sport.name, sport.precision, sport.recall, sport.f1) == ("体育", 1.0, 1 / 3, 1 / 2)
    assert (money.name, money.precision, money.recall, money.f1) == ("财经", 1 / 2, 1 / 2, 1 / 2)
    found = {(one.truth, one.given): one.num_rows for one in report.confusions}
    assert found == {
        ("财经", "财经"): 1,
        ("财经", None): 1,
        ("体育", "体育"): 1,
        ("体育", "财经"): 1,
        ("体育", None): 1,
    }
    bins = {one.start: (one.num_rows, one.accuracy) for one in report.calibration if one.num_rows}
    assert bins == {0.3: (1, 0.0), 0.5: (2, 0.5), 0.9: (1, 1.0)}
    # (0.1 right of 0.9) + (0.3 of a wrong one) + |1 - 1.13|, over four scored rows
    assert report.calibration_error == pytest.approx((0.1 + 0.3 + 0.13) / 4, abs=1e-6)


def test_the_threshold_by_hand() -> None:
    """Rows by score: right, wrong, right, right, wrong: precision 1, 1/2, 2/3, 3/4, 3/5."""
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, np.nan], dtype=np.float32)
    is_right = np.array([True, False, True, True, False, False])
    found = threshold_for(0.7, is_right, scores, 6)
    assert found is not None
    assert (found.threshold, found.precision, found.num_rows, found.coverage) == (0.6, 0.75, 4, 4 / 6)
    found = threshold_for(0.99, is_right, scores, 6)
    assert found is not None
    assert found.threshold == 0.9
    assert threshold_for(0.5, ~is_right[:1], scores[:1], 1) is None


@PATIENT
@given(ROWS)
def test_any_columns_add_up(rows: list[tuple[str | None, str, np.float32]]) -> None:
    """Counts are what counting row by row gives, and no number leaves 0..1."""
    truth, labels = series([row[0] for row in rows]), series([row[1] for row in rows])
    scores = np.array([row[2] for row in rows], dtype=np.float32)
    report = hold_against_truth(truth, labels, scores)
    known = [row for row in rows if row[0] is not None]
    assert report.num_rows == len(known)
    assert report.num_correct == sum(row[0] == row[1] for row in known)
    assert sum(one.num_rows for one in report.confusions) == len(known)
    assert sum(one.num_rows for one in report.calibration) == len(known)
    for one in report.labels:
        assert one.num_true == sum(row[0] == one.name for row in known)
        assert one.num_given == sum(row[1] == one.name for row in known)
    for share in (report.accuracy, report.precision, report.coverage, report.calibration_error):
        assert share is None or 0 <= share <= 1
    for span in report.calibration:
        inside = [row for row in known if span.start <= row[2] < span.stop or row[2] == span.stop == 1]
        assert span.num_rows == len(inside)
    assert format_truth(report, None, None)
    assert truth_to_json(report, None)["right"] == report.num_correct


@PATIENT
@given(ROWS, st.floats(0, 1))
def test_the_threshold_is_the_lowest_that_reaches_the_precision(
    rows: list[tuple[str | None, str, np.float32]], wanted: float
) -> None:
    """Against trying every score: it reaches the precision, and no lower one does."""
    known = [row for row in rows if row[0] is not None]
    scores = np.array([row[2] for row in known], dtype=np.float32)
    is_right = np.array([row[0] == row[1] for row in known], dtype=bool)
    found = threshold_for(wanted, is_right, scores, len(known))
    good = [score for score in scores if is_right[scores >= score].sum() >= wanted * (scores >= score).sum()]
    assert (found is None) == (not good)
    if found is not None:
        assert np.float32(found.threshold) == min(good)
        assert found.num_rows == (scores >= np.float32(found.threshold)).sum()
        assert (
            f"threshold {found.threshold!r}"
            in format_truth(hold_against_truth(series([]), series([]), scores[:0]), found, wanted)[-1]
        )
