"""An output's rows counted: a case worked by hand, every shape of job, and a plain reckoning row by row."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import DifferenceError
from batchzs.finished import open_run
from batchzs.report import counting
from batchzs.report.aggregate import Aggregates, aggregate
from batchzs.report.binning import NUM_SCORE_BINS, length_bins, quantiles, score_bin
from batchzs.scoring import rank_labels, scores_from_logits
from tests.builders import PATIENT, PATIENT_AND_BRIEF, odd_folder
from tests.made_outputs import CLASSES, MadeOutput, make_output, random_logits

if TYPE_CHECKING:
    from pathlib import Path

BAD = {4: ("bad_record", "新闻:5: found 3 fields, expected 2"), 6: ("non_finite", ""), 9: ("bad_record", "新闻:10: x")}
TEXTS = [f"第{row}条" for row in range(12)]


def look(made: MadeOutput, num_shown: int = 3) -> Aggregates:
    """Aggregate all shards of an output that are there."""
    run = open_run(made.paths.output)
    shards = [shard for shard in run.shards if made.paths.shard(shard.index).exists()]
    return aggregate(run, shards, num_shown)


def entailment(*rows: list[float]) -> np.ndarray:
    """Logits of which only entailment differs, so that scores are the softmax of these numbers."""
    logits = np.zeros((len(rows), len(rows[0]), 3), dtype=np.float32)
    logits[:, :, CLASSES.entailment] = rows
    return logits


def test_a_case_by_hand(tmp_path: Path) -> None:
    """Two labels: scores are 1 / (1 + e^-d) and its rest, d being the difference of the logits."""
    # d = 2, 0, -1, 4: best scores 0.8808, 0.5, 0.7311, 0.9820; margins 0.7616, 0, 0.4621, 0.9640
    made = make_output(
        odd_folder(tmp_path),
        ["甲", "乙乙", "丙丙丙", "丁" * 600, "", "坏"],
        logits=entailment([2, 0], [0, 0], [0, 1], [4, 0], [0, 0], [0, 0]),
        bad={5: ("bad_record", "why")},
        labels=["科技", "体育"],
        shard_rows=4,
    )
    found = look(made)
    assert (found.num_rows, found.statuses) == (6, {"bad_record": 1, "empty": 1, "ok": 4})
    assert [(label.name, label.num_rows, label.num_reaching) for label in found.labels] == [
        ("科技", 3, 3),
        ("体育", 1, 1),
    ]
    assert found.labels[0].mean_score == pytest.approx((0.8808 + 0.5 + 0.9820) / 3, abs=1e-4)
    assert {place: rows for place, rows in enumerate(found.score_bins) if rows} == {44: 1, 25: 1, 36: 1, 49: 1}
    assert {place: rows for place, rows in enumerate(found.certainty_bins) if rows} == {38: 1, 0: 1, 23: 1, 48: 1}
    assert found.certainty_kind == "margin"
    assert [row.source_row for row in found.least_certain] == [1, 2, 0]
    assert found.least_certain[0].candidates == (("科技", 0.5), ("体育", 0.5))
    name, score = found.least_certain[1].candidates[0]
    assert name == "体育"
    assert score == pytest.approx(0.7311, abs=1e-4)
    assert (found.lengths.median, found.lengths.percentile_95, found.lengths.longest) == (2, 600, 600)
    assert (found.num_truncated, sum(one.num_marked for one in found.lengths.bins)) == (1, 1)
    assert [(row.source_row, row.status, row.reason) for row in found.quarantined] == [(5, "bad_record", "why")]


SHAPES: list[dict[str, Any]] = [
    {},
    {"threshold": 0.6},
    {"multi_label": True},
    {"multi_label": True, "threshold": 0.9, "output__prefix": "zs_"},
    {"labels": ["科技"]},
    {"labels": ["科技"], "output__scores": "none", "output__logits": False},
    {"output__scores": "none", "output__logits": False},
    {"output__scores": 1},
    {"output__scores": 2, "output__prefix": "zs_"},
    {"multi_label": True, "output__scores": 2},
    {"labels": [f"标签{place}" for place in range(60)]},
]


def by_hand(made: MadeOutput, bad: dict[int, tuple[str, str]]) -> dict[str, Any]:
    """The same numbers, row by row in Python."""
    job = open_run(made.paths.output).job
    names = [label.name for label in job.labels]
    scores = scores_from_logits(made.logits, CLASSES, as_multi_label=job.scored_as_multi_label)
    ranked = rank_labels(scores)
    threshold = job.resolved_threshold
    labels: Counter[str] = Counter()
    score_bins: Counter[int] = Counter()
    certainties = {}
    num_unlabelled = 0
    for row, text in enumerate(made.texts):
        if row in bad or not text:
            continue
        best = ranked[row, 0]
        score_bins[score_bin(float(scores[row, best]))] += 1
        kept = scores[row] if job.resolved_scores == "all" else scores[row, ranked[row, : max(1, _kept(job))]]
        if job.scored_as_multi_label:
            certainties[row] = float(np.abs(kept - np.float32(0.5 if threshold is None else threshold)).min())
        elif _kept(job) < 2:
            certainties[row] = float(scores[row, best])
        else:
            certainties[row] = float(scores[row, ranked[row, 0]] - scores[row, ranked[row, 1]])
        reaching = [
            place for place in range(len(names)) if threshold is None or scores[row, place] >= np.float32(threshold)
        ]
        given_labels = reaching if job.multi_label else [best] if best in reaching else []
        labels.update(names[place] for place in given_labels)
        num_unlabelled += not given_labels
    return {
        "labels": labels,
        "score_bins": score_bins,
        "certainty_bins": Counter(score_bin(value) for value in certainties.values()),
        "certainties": certainties,
        "num_unlabelled": num_unlabelled,
    }


def _kept(job: Any) -> int:
    if job.resolved_scores == "all":
        return len(job.labels)
    return 0 if job.resolved_scores == "none" else int(job.resolved_scores)


def check(made: MadeOutput, bad: dict[int, tuple[str, str]]) -> None:
    """Hold what is counted against a plain reckoning."""
    found, expected = look(made, 5), by_hand(made, bad)
    assert Counter({label.name: label.num_reaching for label in found.labels}) == expected["labels"]
    assert [label.num_reaching for label in found.labels] == sorted(
        (label.num_reaching for label in found.labels), reverse=True
    )
    for name in ("score_bins", "certainty_bins"):
        assert Counter({place: rows for place, rows in enumerate(getattr(found, name)) if rows}) == expected[name]
    assert found.num_unlabelled == expected["num_unlabelled"]
    least = sorted(expected["certainties"].items(), key=lambda item: (item[1], item[0]))[:5]  # no two are alike
    assert [row.source_row for row in found.least_certain] == [row for row, _ in least]
    assert [row.certainty for row in found.least_certain] == pytest.approx([value for _, value in least], abs=1e-7)
    assert sum(found.statuses.values()) == found.num_rows == len(made.texts)
    assert Counter(row.status for row in found.quarantined) == Counter(status for status, _ in bad.values())


@pytest.mark.parametrize("rows_at_once", [1, 6, 1_000_000])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_of_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: dict[str, Any], rows_at_once: int
) -> None:
    """Thresholds, several labels, few or no scores, prefixes, one label, many: all as counted by hand.

    However many shards are counted at once.
    """
    monkeypatch.setattr(counting, "_ROWS_AT_ONCE", rows_at_once)
    check(make_output(odd_folder(tmp_path), TEXTS, bad=BAD, shard_rows=5, **shape), BAD)


@PATIENT_AND_BRIEF
@given(num_texts=st.integers(0, 30), shape=st.sampled_from(SHAPES), seed=st.integers(0, 99), data=st.data())
def test_any_output(
    tmp_path_factory: pytest.TempPathFactory, num_texts: int, shape: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    """Whatever the logits, the empty texts and the shards' sizes."""
    texts = data.draw(st.lists(st.sampled_from(["", "甲", "新闻 a"]), min_size=num_texts, max_size=num_texts))
    logits = random_logits(num_texts, len(shape.get("labels", "abc")), seed)
    made = make_output(
        odd_folder(tmp_path_factory.mktemp("any")),
        texts,
        logits=logits,
        shard_rows=data.draw(st.integers(1, 12)),
        **shape,
    )
    check(made, {})


@pytest.mark.parametrize("num_shown", [1, 2, 3, 20])
@pytest.mark.parametrize("rows_at_once", [7, 1_000_000])
def test_copies_of_a_text_do_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_shown: int, rows_at_once: int
) -> None:
    """Rows with the very same scores stand for one text: the first of them is shown, and then the next text."""
    monkeypatch.setattr(counting, "_ROWS_AT_ONCE", rows_at_once)
    copies = [[0.0, 0.1]] * 90 + [[0.0, 0.2]] * 90
    made = make_output(
        odd_folder(tmp_path),
        ["甲"] * 180 + ["乙", "丙"],
        logits=entailment(*copies, [0.3, 0], [0, 0.4]),
        labels=["科技", "体育"],
        shard_rows=50,
    )
    found = look(made, num_shown)
    assert [row.source_row for row in found.least_certain] == [0, 90, 180, 181][:num_shown]


def test_no_rows_and_no_shards(tmp_path: Path) -> None:
    """An input without rows, and a run that has published nothing, are reports of nothing."""
    for name, done in (("none", None), ("no shards", 0)):
        folder = tmp_path / name
        folder.mkdir()
        found = look(make_output(folder, [] if done is None else TEXTS, num_done=done))
        assert (found.num_rows, found.statuses, found.least_certain) == (0, {}, ())
        assert (sum(found.score_bins), found.lengths.bins) == (0, ())
        assert [label.num_rows for label in found.labels] == [0, 0, 0]


def test_no_text_when_no_row_is_asked_for(tmp_path: Path) -> None:
    """With 0 rows to show, none is."""
    found = look(make_output(tmp_path, TEXTS, bad=BAD), 0)
    assert (found.least_certain, found.quarantined) == ((), ())
    assert found.num_rows == len(TEXTS)


@pytest.mark.parametrize("damage", ["cut", "text", "columns"])
def test_a_damaged_shard_is_named(tmp_path: Path, damage: str) -> None:
    """One shard of several that is not what it should be."""
    made = make_output(odd_folder(tmp_path), TEXTS, shard_rows=4)
    path = made.paths.shard(1)
    if damage == "columns":
        import polars as pl

        pl.DataFrame({"label": ["科技"]}).write_parquet(path)
    else:
        path.write_bytes(path.read_bytes()[:300] if damage == "cut" else b"PAR1 no such thing PAR1")
    with pytest.raises(DifferenceError, match="part-00001"):
        look(made)


@PATIENT
@given(st.dictionaries(st.integers(0, 70_000), st.integers(1, 50), max_size=20))
def test_length_bins_hold_every_text_once(counts: dict[int, int]) -> None:
    """Bins follow each other without gaps and hold what lies between their edges."""
    bins = length_bins(counts, counts)
    assert sum(one.num_rows for one in bins) == sum(one.num_marked for one in bins) == sum(counts.values())
    assert all(earlier.stop == later.start for earlier, later in pairwise(bins))
    for one in bins:
        assert one.num_rows == sum(rows for length, rows in counts.items() if one.start <= length < one.stop)


@PATIENT
@given(st.dictionaries(st.integers(0, 100), st.integers(1, 5), min_size=1, max_size=20), st.floats(0.01, 1))
def test_quantiles(counts: dict[int, int], share: float) -> None:
    """The number itself is of the rows; at least the share is at or below it, less is below."""
    numbers = [number for number, rows in counts.items() for _ in range(rows)]
    (found,) = quantiles(counts, [share])
    assert found in counts
    assert sum(number < found for number in numbers) < share * len(numbers) + 1e-9
    assert sum(number <= found for number in numbers) >= share * len(numbers) - 1e-9


def test_a_value_at_an_edge_is_in_the_bin_above() -> None:
    """Also where float32 lies just below a decimal: then it is below."""
    assert score_bin(float(np.float32(0.58))) == 28  # float32(0.58) is 0.57999998...
    assert score_bin(float(np.float32(0.3))) == 15
    assert score_bin(1.0) == NUM_SCORE_BINS - 1
