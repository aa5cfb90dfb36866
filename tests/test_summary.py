"""The closing summary adds up the shards' records, and names everything that was not ordinary."""

from pathlib import Path

import pytest

from batchzs.paths import RunPaths
from batchzs.records import SplitRecord, Summary
from batchzs.summary import format_summary, summarise
from tests.builders import make_job, run_record, shard_record

PATHS = RunPaths(Path("/结果 [1]"))
SPLIT = SplitRecord(shape="8 pairs x 10 tokens", batch_tokens=80, limit_tokens=40)
SHARDS = [
    shard_record(
        index=0,
        num_rows=10,
        statuses={"ok": 7, "empty": 1, "bad_record": 2},
        labels={"科技": 4, "体育": 1},
        num_truncated=3,
        num_pairs=100,
        num_tokens=1000,
        score_s=4.0,
        splits=(SPLIT,),
    ),
    shard_record(
        index=1,
        num_rows=6,
        statuses={"ok": 5, "non_finite": 1},
        labels={"体育": 5},
        num_truncated=1,
        num_duplicates=2,
        num_scored_alone=1,
        num_nul_texts=4,
        num_pairs=60,
        num_tokens=600,
        score_s=1.0,
        device_name="B CPU",
        attempt=3,
        finished_at="2026-12-01T00:00:00+00:00",
    ),
]


def summary_of_two() -> Summary:
    """Two shards added up."""
    job = make_job(threshold=0.5)
    return summarise(job, PATHS, run_record(job), SHARDS)


def test_numbers_worked_by_hand() -> None:
    """16 rows, 12 ok of which 4 + 1 + 5 have a label; quarantined are 2 + 1 of 16; 160 pairs in 5 s are 32 a second."""
    summary = summary_of_two()
    assert (summary.num_rows, summary.num_shards) == (16, 2)
    assert summary.statuses == {"bad_record": 2, "empty": 1, "non_finite": 1, "ok": 12}
    assert summary.labels == {"科技": 4, "体育": 6, "财经": 0}
    assert (summary.num_unlabelled, summary.num_empty, summary.num_quarantined) == (2, 1, 3)
    assert summary.quarantined_share == 3 / 16
    assert (summary.pairs_per_s, summary.tokens_per_s) == (32.0, 320.0)
    assert (summary.num_truncated, summary.num_duplicates, summary.num_splits, summary.num_attempts) == (4, 2, 1, 3)
    assert summary.devices == ("A CPU", "B CPU")
    assert (summary.read_s, summary.device_s, summary.write_s) == (1.0, 5.0, 0.5)
    assert summary.finished_at == "2026-12-01T00:00:00+00:00"


def test_everything_out_of_the_ordinary_is_shown() -> None:
    """Promise 4: truncated texts, quarantined rows by kind, smaller batches, rescored and NUL texts."""
    text = format_summary(summary_of_two(), wall_s=75)
    for part in (
        "16 in 2 shards",
        "体育 6  科技 4  财经 0",
        "2 below the threshold",
        "quarantined 3 (bad_record 2, non_finite 1)",
        "truncated   4",
        "duplicates  2 (scored once with their twins)",
        "batches made smaller after running out of memory: 1",
        "their logits not being finite at first: 1",
        "texts with NUL characters, which tokenising drops: 4",
        "1 min 15 s now, 5.0 s of scoring in all",
        "32 pairs/s, 320 tokens/s, fp32 on A CPU, B CPU",
        "/结果 [1]",
    ):
        assert part in text


def test_nothing_out_of_the_ordinary_is_not_shown() -> None:
    """An ordinary run has no notes, and one that was done before no time of its own."""
    job = make_job()
    text = format_summary(summarise(job, PATHS, run_record(job), [shard_record()]), wall_s=None)
    assert "note" not in text
    assert "threshold" not in text
    assert "time        2.0 s of scoring" in text


def test_many_labels_are_cut() -> None:
    """A thousand labels do not fill the screen; all of them stand in summary.json."""
    job = make_job(labels=[f"标签{number}" for number in range(1000)])
    summary = summarise(job, PATHS, run_record(job), [shard_record(labels={"标签7": 5})])
    text = format_summary(summary, None)
    assert "标签7 5" in text
    assert "and 980 more" in text
    assert len(summary.labels) == 1000


@pytest.mark.parametrize("shards", [[], [shard_record(num_rows=0, statuses={}, labels={}, score_s=0.0)]])
def test_no_rows_divide_by_nothing(shards: list[object]) -> None:
    """An empty input ends well."""
    job = make_job()
    summary = summarise(job, PATHS, run_record(job), shards)  # type: ignore[arg-type] # mypy joins the two lists
    assert (summary.quarantined_share, summary.pairs_per_s, summary.tokens_per_s) == (0.0, 0.0, 0.0)
    assert format_summary(summary, 1.0)
