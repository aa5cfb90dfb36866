"""Whether there is time for another step: by the longest so far, never by hope."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.deadline import RESERVE_S, Deadline
from batchzs.errors import TimeLimitError
from batchzs.pace import (
    EXACT_FACTOR,
    FIRST_BATCH_S,
    FIRST_PUBLISH_ROW_S,
    FIRST_PUBLISH_S,
    FIRST_READ_S,
    Pace,
    TimedBatches,
    pace_of,
)
from batchzs.stopping import StopFlag
from tests.builders import PATIENT, shard_record

SECONDS = st.floats(0, 1e5, allow_nan=False)


def stop_in(left_s: float) -> StopFlag:
    """A run that has to be over in so many seconds of a clock that stands still."""
    return StopFlag(Deadline(datetime.fromtimestamp(left_s, UTC), "a test", clock=lambda: 0.0))


def test_before_anything_was_measured_guesses_stand_in() -> None:
    """Twice the longest batch that `auto` makes, since one may wait for another; reading; publishing by rows."""
    pace = Pace()
    assert pace.to_score_batch_s(is_exact=False) == 2 * FIRST_BATCH_S
    assert pace.to_score_batch_s(is_exact=True) == 2 * EXACT_FACTOR * FIRST_BATCH_S
    assert pace.to_begin_shard_s() == FIRST_READ_S + 2 * FIRST_BATCH_S
    assert pace.to_publish_s(100_000) == pytest.approx(FIRST_PUBLISH_S + 100_000 * FIRST_PUBLISH_ROW_S)


def test_the_longest_step_so_far_counts() -> None:
    """Batches of 0.5, 2 and 1 s, a record of 0.25 s, a shard read in 3 s: 4.25 s for a batch, 7.25 s for a shard."""
    pace = Pace()
    for seconds in (0.5, 2.0, 1.0):
        pace.batch(seconds, is_exact=False)
    for seconds in (0.25, 0.125):
        pace.sync(seconds)
    pace.read(3.0)
    pace.read(1.0)
    assert pace.to_score_batch_s(is_exact=False) == 4.25
    assert pace.to_begin_shard_s() == 7.25
    assert pace.to_score_batch_s(is_exact=True) == 2 * EXACT_FACTOR * 2.0 + 0.25  # none yet: from the usual ones
    pace.batch(3.0, is_exact=True)
    assert pace.to_score_batch_s(is_exact=True) == 6.25
    assert pace.to_score_batch_s(is_exact=False) == 4.25


def test_a_publication_that_hung_is_forgotten() -> None:
    """The longest of the last eight counts, earlier attempts' among them: their records leave out the sync."""
    records = [shard_record(write_s=100.0, finished_at="2026-11-30T03:00:00+00:00")]
    records += [shard_record(write_s=float(n), finished_at=f"2026-11-30T03:01:0{n}+00:00") for n in (3, 1, 2)]
    pace = pace_of(records)
    assert pace.to_publish_s(5) == 100 + FIRST_PUBLISH_S
    for _ in range(5):
        pace.publication(0.5)
    assert pace.to_publish_s(5) == 3 + FIRST_PUBLISH_S
    for _ in range(8):
        pace.publication(0.5)
    assert pace.to_publish_s(5) == 0.5


@PATIENT
@given(batches=st.lists(SECONDS), exact=st.lists(SECONDS), publications=st.lists(SECONDS), sync=SECONDS, left_s=SECONDS)
def test_nothing_begins_that_would_not_fit(
    batches: list[float], exact: list[float], publications: list[float], sync: float, left_s: float
) -> None:
    """Whatever was measured: where a step begins, two batches of the longest kind and their record fit, and a shard."""
    pace = Pace()
    stop = stop_in(left_s)
    for seconds in batches:
        TimedBatches(pace, stop, is_exact=False).after(seconds)
    for seconds in exact:
        TimedBatches(pace, stop, is_exact=True).after(seconds)
    for seconds in publications:
        pace.publication(seconds)
    pace.sync(sync)
    for is_exact, measured in ((False, batches), (True, exact)):
        try:
            TimedBatches(pace, stop, is_exact=is_exact).before()
        except TimeLimitError:
            continue
        assert left_s >= 2 * max(measured, default=0.0) + sync + RESERVE_S - 1e-3
    if stop.has_time(pace.to_publish_s(10)):
        assert left_s >= max(publications[-8:], default=0.0) + RESERVE_S - 1e-3
    if stop.has_time(pace.to_begin_shard_s()):
        TimedBatches(pace, stop, is_exact=False).before()  # what is read is for at least one batch


def test_without_a_deadline_everything_begins() -> None:
    """Most runs have none."""
    pace = Pace(batch_s=1e9)
    TimedBatches(pace, StopFlag(), is_exact=False).before()
    assert StopFlag().has_time(1e12)
