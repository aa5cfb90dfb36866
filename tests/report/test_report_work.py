"""Speed over time, tasks and backoffs from shards' records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.report.work import speed_over_time, work_of
from tests.builders import PATIENT, shard_record

START = "2026-11-30T03:00:00+00:00"


def at(minutes: float) -> str:
    """A time after the start."""
    whole = int(minutes)
    return f"2026-11-30T{3 + whole // 60:02d}:{whole % 60:02d}:{round(minutes % 1 * 60):02d}+00:00"


def test_speed_by_hand() -> None:
    """Two workers at once are added up; a pause is a pause."""
    # Worker A: 600 tokens in minute 0..1 and in 9..10; worker B: 1200 tokens in 0..2.
    records = [
        shard_record(index=0, finished_at=at(1), score_s=60.0, write_s=0.0, num_tokens=600),
        shard_record(index=1, finished_at=at(2), score_s=120.0, write_s=0.0, num_tokens=1200),
        shard_record(index=2, finished_at=at(10), score_s=60.0, write_s=0.0, num_tokens=600),
    ]
    speed = speed_over_time(records)
    assert speed is not None
    assert speed.step_s == 60  # nothing finer than a shard is known
    assert speed.tokens_per_s[:3] == pytest.approx((20, 10, 0))
    assert speed.tokens_per_s[9] == pytest.approx(10)


@PATIENT
@given(st.lists(st.tuples(st.integers(0, 200_000), st.floats(0, 5000), st.integers(0, 10**9)), min_size=1, max_size=30))
def test_no_token_is_lost(shards: list[tuple[int, float, int]]) -> None:
    """Rates times the seconds that they stand for are the tokens; and there are never many steps."""
    from datetime import UTC, datetime

    records = [
        shard_record(
            index=index,
            finished_at=datetime.fromtimestamp(1_800_000_000 + second, UTC).isoformat(),
            score_s=score_s,
            write_s=0.0,
            num_tokens=num_tokens,
        )
        for index, (second, score_s, num_tokens) in enumerate(shards)
    ]
    speed = speed_over_time(records)
    total = sum(num_tokens for _, _, num_tokens in shards)
    if not total:
        assert speed is None
        return
    assert speed is not None
    assert len(speed.tokens_per_s) <= 62
    assert all(rate >= 0 for rate in speed.tokens_per_s)
    if max(score_s for _, score_s, _ in shards) > 1:
        assert sum(speed.tokens_per_s) * speed.step_s >= total * 0.99  # first and last steps are worked in part


def test_who_did_what() -> None:
    """Parts by device and by task, those that have published nothing too, and each batch that did not fit."""
    split = {"shape": "planned", "batch_tokens": 4000, "limit_tokens": 2000}
    records = [
        shard_record(index=0, host="a", score_s=2.0, num_tokens=100),
        shard_record(index=1, host="b", score_s=1.0, num_tokens=100, splits=(split, split)),
        shard_record(index=3, host="a", score_s=2.0, num_tokens=300, finished_at=at(7)),
    ]
    work = work_of(records, 3)
    assert [(scorer.host, share.num_shards, share.tokens_per_s) for scorer, share in work.scorers] == [
        ("a", 2, 100.0),
        ("b", 1, 100.0),
    ]
    assert [(name, share and share.num_shards) for name, share in work.tasks] == [("1/3", 2), ("2/3", 1), ("3/3", None)]
    assert [(one.shard_index, one.batch_tokens) for one in work.backoffs] == [(1, 4000), (1, 4000)]
    assert work.total is not None
    assert (work.total.num_splits, work.total.last_finished_at) == (2, at(7))


def test_nothing_and_times_that_are_none() -> None:
    """No record gives nothing; a record whose time cannot be read has no place in time."""
    assert work_of([], None).total is None
    assert work_of([], None).tasks == ()
    assert speed_over_time([shard_record(finished_at="yesterday")]) is None
    assert work_of([shard_record(finished_at="yesterday")], None).total is not None
