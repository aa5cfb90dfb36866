"""Wordings, how they are drawn, and what they are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.display_width import display_width
from batchzs.errors import UsageError
from batchzs.wordings.bars import Style, bar, folded, format_texts, says_utf8, texts_to_json
from batchzs.wordings.scored import NO_TEMPLATE, Scored, wordings_of
from batchzs.wordings.truth import format_judgement, judge, judgement_to_json, sign_test, wilson_interval
from tests.builders import PATIENT, make_job, shard_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

LABELS = ["科技", "体育", "财经"]


def scored(winners: Sequence[int | None], template: str = "{}", **job: Any) -> Scored:
    """A wording under which each text has the label at an index, or no score."""
    (wording,) = wordings_of(make_job(labels=LABELS, **job), [template], [])
    scores = np.full((len(winners), len(LABELS)), np.nan, dtype=np.float32)
    for row, winner in enumerate(winners):
        if winner is not None:
            scores[row] = 0.1
            scores[row, winner] = 0.8
    names = [None if winner is None else LABELS[winner] for winner in winners]
    frame = pl.DataFrame(
        {
            "label": names,
            "score": [None if name is None else 0.8 for name in names],
            "num_tokens": [5] * len(names),
            "truncated": [False] * len(names),
            "status": ["empty" if name is None else "ok" for name in names],
            "reason": ["the text is null" if name is None else None for name in names],
        },
        schema_overrides={"label": pl.String, "score": pl.Float32, "reason": pl.String},
    )
    return Scored(wording, frame, scores, scores > 0.5)


def style(width: int = 80, **changes: Any) -> Style:
    """A terminal of some width."""
    values: dict[str, Any] = {"width": width, "is_ascii": False, "num_labels": 10, "emphasise": str}
    return Style(**values | changes)


def test_every_template_is_a_wording_of_all_labels() -> None:
    """Labels with a hypothesis of their own keep it; scores of all labels are kept, whatever the job says."""
    own = {"name": "财经", "hypothesis": "说的是钱"}
    job = make_job(labels=["科技", own], template="这篇文章的标题是{}", output__scores="none", output__prefix="zs_")
    first, second = wordings_of(job, ["{}", "这是{}"], [])
    assert [label.hypothesis for label in first.job.labels] == ["科技", "说的是钱"]
    assert [label.hypothesis for label in second.job.labels] == ["这是科技", "说的是钱"]
    assert (first.job.output.scores, first.job.output.prefix) == ("all", "")
    (usual,) = wordings_of(job, [], [])
    assert usual.job.labels == job.labels


def test_labels_take_the_place_of_the_jobs() -> None:
    """What comes after the first equals sign is the hypothesis."""
    (wording,) = wordings_of(make_job(), ["关于{}"], ["美食", "天气=明天 a=b"])
    assert [(label.name, label.hypothesis) for label in wording.job.labels] == [
        ("美食", "关于美食"),
        ("天气", "明天 a=b"),
    ]
    (only,) = wordings_of(make_job(), [], ["天气=明天"])
    assert only.template == NO_TEMPLATE


@pytest.mark.parametrize(
    ("templates", "labels", "message"),
    [
        (["没有"], [], "--template: found '没有', expected a sentence with exactly one {}"),
        (["{}", "{}"], [], "--template '{}': is given twice"),
        (["{}", "是{}"], ["甲=乙"], "comes to the same hypotheses as '{}'"),
        ([], ["甲", "甲"], "--label: labels"),
        ([], ["=乙"], "--label: labels"),
    ],
)
def test_what_makes_no_wording_is_refused(templates: list[str], labels: list[str], message: str) -> None:
    """Before anything is loaded, naming the option."""
    with pytest.raises(UsageError) as caught:
        wordings_of(make_job(), templates, labels)
    assert message in str(caught.value).replace('"', "'")


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("num_wordings", [1, 2, 7])
@pytest.mark.parametrize("is_ascii", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, num_wordings: int, *, is_ascii: bool) -> None:
    """Chinese counted as two columns; wordings that find no room stand below."""
    wordings = [scored([0, 2, None], f"这是一篇关于{{}}的第{number}种报道") for number in range(num_wordings)]
    rows = shard_rows(["长" * 500, "a\x1b[2J\n" * 30, ""])
    lines = list(format_texts(wordings, rows, style(width, is_ascii=is_ascii)))
    assert max(map(display_width, lines)) <= width
    assert not any("\x1b" in line for line in lines)
    assert sum("*" in line for line in lines) >= 3
    assert is_ascii != any("█" in line for line in lines)


def test_labels_are_ranked_by_the_first_wording_and_cut() -> None:
    """Beside the best ones stands what wins in another wording; the rest is counted."""
    lines = list(format_texts([scored([2]), scored([0], "是{}")], shard_rows(["一"]), style(num_labels=1)))
    labels = [line.split()[0] for line in lines if line.strip() and line.split()[0] in LABELS]
    assert labels == ["财经", "科技"]
    assert any("and 1 more labels, at most 0.100" in line for line in lines)


def test_a_text_without_a_mark_is_explained() -> None:
    """Below the threshold a run gives no label, and the display says so."""
    below = scored([0, 1], threshold=0.9)
    below.chosen[0] = False
    lines = list(format_texts([below], shard_rows(["一", "二"]), style()))
    assert lines[-2:] == ["* a label that a run gives", "no mark: every label is below the threshold, 0.9"]
    assert list(format_texts([scored([0])], shard_rows(["一"]), style()))[-1] == "* a label that a run gives"
    assert "mark" not in "".join(format_texts([scored([None])], shard_rows([""]), style()))


def test_what_is_not_scored_says_why() -> None:
    """Damaged rows with the reader's reason, empty ones with the engine's."""
    rows = shard_rows(["", "一"], bad={1: ("bad_record", "新闻.csv:3: found 4 fields")})
    lines = "\n".join(format_texts([scored([None, 0])], rows, style()))
    assert "row 0 of 新闻 1.csv; empty, not scored: the text is null" in lines
    assert "bad_record, not scored: 新闻.csv:3: found 4 fields" in lines
    first, second = texts_to_json([scored([None, 0])], rows)
    assert (first["status"], second["status"], second["text"]) == ("empty", "bad_record", None)


@PATIENT
@given(share=st.floats(0, 1), width=st.integers(1, 60), is_ascii=st.booleans())
def test_bars_fit(share: float, width: int, *, is_ascii: bool) -> None:
    """No bar is longer than its room, and the whole is all of it."""
    assert display_width(bar(share, width, is_ascii=is_ascii)) <= width
    assert display_width(bar(1.0, width, is_ascii=is_ascii)) == width


@PATIENT
@given(st.text(alphabet="a体\u0301😀", max_size=60), st.integers(4, 20), st.integers(1, 3))
def test_folded_texts_fit(text: str, width: int, num_lines: int) -> None:
    """Lines are as wide as they may be at most, and nothing is lost where the text fits."""
    lines = folded(text, width, num_lines, style())
    assert len(lines) <= num_lines
    assert all(display_width(line) <= width for line in lines)
    assert "".join(lines) == text or lines[-1].endswith("…")


@pytest.mark.parametrize(
    ("environ", "answer"),
    [
        ({}, True),
        ({"LANG": "en_US.utf8"}, True),
        ({"LANG": "zh_CN.GB18030"}, False),
        ({"LC_ALL": "POSIX", "LANG": "C.UTF-8"}, False),
        ({"PYTHONIOENCODING": "gbk:replace", "LANG": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),
    ],
)
def test_what_the_environment_says_of_the_terminal(environ: dict[str, str], *, answer: bool) -> None:
    """In the order in which the C library asks it."""
    assert says_utf8(environ) is answer


def test_truth_worked_by_hand() -> None:
    """Null and blank truths are left out, unscored rows too, unknown labels count as wrong and are named."""
    truth = ["科技", "体育", "财经", " 科技 ", "天气", None, "", "体育", "科技"]
    rows = shard_rows(["x"] * 9, bad={8: ("bad_record", "x")}, carried={"类": truth})
    first = scored([0, 1, 2, 0, 1, 0, 0, None, 0])  # all right but 天气
    second = scored([0, 1, 0, 1, 1, 0, 0, None, 0], "是{}")  # wrong on two more
    judgement = judge([first, second], rows, "类")
    assert (judgement.num_rows, judgement.num_unknown, judgement.num_unscored) == (9, 2, 2)
    assert judgement.no_labels == {"天气": 1}
    assert [one.report.num_correct for one in judgement.wordings] == [4, 2]
    text = "\n".join(format_judgement(judgement, 80))
    assert "accuracy    80.0%: 4 of 5 right (95 % interval 37.6% to 96.4%)" in text
    assert "100.0% of the 4 rows whose true label is one of the labels" in text
    assert "best        wording 1, by 40.0% over wording 2: alone right on 2 rows, the other on 0" in text
    assert "within noise: chance gives as much in 50% of cases" in text
    best, other = judgement_to_json(judgement)
    assert (best["accuracy"], best["accuracy_among_labels"], best["is_best"]) == (0.8, 1.0, True)
    assert other["behind_best"] == {"best_alone": 2, "this_alone": 0, "chance": 0.5}
    assert {"truth": "天气", "given": "体育", "num_rows": 1} in best["confusions"]


def test_truth_of_other_types_and_of_nothing() -> None:
    """Whole numbers are labels as they are written; without one true label there is nothing to say."""
    rows = shard_rows(["x", "x"], carried={"类": [1, None]})
    assert judge([scored([0, 0])], rows, "类").no_labels == {"1": 1}
    nothing = judge([scored([0, 0])], shard_rows(["x", "x"], carried={"类": [None, None]}), "类")
    assert list(format_judgement(nothing, 80))[-1].endswith("2 rows without a true label")
    assert next(judgement_to_json(nothing))["accuracy"] is None


def test_a_wide_confusion_table_becomes_a_list() -> None:
    """The largest wrong entries, where the table has no room."""
    rows = shard_rows(["x"] * 3, carried={"类": ["科技", "科技", "体育"]})
    lines = list(format_judgement(judge([scored([1, 1, 1])], rows, "类"), 20))
    assert any(line.split() == ["科技", "体育", "2"] for line in lines)


@PATIENT
@given(st.integers(0, 500), st.integers(0, 500))
def test_statistics_keep_their_bounds(first: int, second: int) -> None:
    """An interval holds its share, and a test's probability is one."""
    low, high = wilson_interval(first, first + second)
    share = first / (first + second) if first + second else 0.5
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1
    assert 0 < sign_test(first, second) <= 1
    assert sign_test(first, second) == sign_test(second, first)
