"""A sample of runs is spread over all rows and takes each at most once."""

from hypothesis import given
from hypothesis import strategies as st

from batchzs.estimate.row_sample import sample_runs
from batchzs.plan import Selection, plan_shards
from tests.builders import PATIENT


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=6).filter(lambda counts: sum(counts) > 20),
    st.integers(1, 20),
    st.integers(1, 10),
    st.integers(1, 60),
)
@PATIENT
def test_runs_lie_inside_the_input_and_never_overlap(
    row_counts: list[int], num_rows: int, run_rows: int, shard_rows: int
) -> None:
    """About as many rows as asked for, ascending, each within its file."""
    shards = plan_shards(row_counts, shard_rows, Selection())
    spans = sample_runs(shards, num_rows, run_rows)
    starts = [sum(row_counts[: span.file_index]) + span.start for span in spans]
    stops = [start + span.num_rows for start, span in zip(starts, spans, strict=True)]
    assert all(span.num_rows > 0 and span.stop <= row_counts[span.file_index] for span in spans)
    assert all(stop <= start for stop, start in zip(stops, starts[1:], strict=False))
    drawn = sum(span.num_rows for span in spans)
    assert drawn == max(1, num_rows // run_rows) * run_rows or run_rows > num_rows


def test_every_part_of_the_rows_is_drawn_from() -> None:
    """Inputs are often sorted: a sample of the beginning would say nothing of the end."""
    spans = sample_runs(plan_shards([1000], 100, Selection()), 100, 10)
    assert [span.start // 100 for span in spans] == list(range(10))


def test_drawn_rows_of_a_selection_are_found() -> None:
    """With `--sample` a shard's spans are single rows."""
    shards = plan_shards([1000], 40, Selection(sample=100, seed=3))
    chosen = {row for shard in shards for span in shard.spans for row in range(span.start, span.stop)}
    drawn = [row for span in sample_runs(shards, 30, 5) for row in range(span.start, span.stop)]
    assert len(drawn) == 30
    assert set(drawn) <= chosen
