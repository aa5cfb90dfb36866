"""Rows to shards: every selected row in one shard, in order, whatever the files."""

from hypothesis import given
from hypothesis import strategies as st

from batchzs.inputs.rows import RowSpan
from batchzs.plan import Selection, Shard, plan_generations, plan_shards
from tests.builders import PATIENT

ROW_COUNTS = st.lists(st.integers(0, 30), max_size=8)


def rows(shard: Shard) -> list[tuple[int, int]]:
    """A shard's rows as (file, row)."""
    return [(span.file_index, row) for span in shard.spans for row in range(span.start, span.stop)]


def all_rows(row_counts: list[int]) -> list[tuple[int, int]]:
    """Every row of the input."""
    return [(file, row) for file, count in enumerate(row_counts) for row in range(count)]


def test_shards_worked_by_hand() -> None:
    """Files of 3, 0, 7 and 2 rows, 4 a shard: 3 + 1, then 4 and 2 + 2 of the large file and the last."""
    shards = plan_shards([3, 0, 7, 2], 4, Selection())
    assert [(s.index, s.first_row, [(x.file_index, x.start, x.stop) for x in s.spans]) for s in shards] == [
        (0, 0, [(0, 0, 3), (2, 0, 1)]),
        (1, 4, [(2, 1, 5)]),
        (2, 8, [(2, 5, 7), (3, 0, 2)]),
    ]


@PATIENT
@given(row_counts=ROW_COUNTS, shard_rows=st.integers(1, 20), limit=st.none() | st.integers(1, 200))
def test_every_row_once_and_in_order(row_counts: list[int], shard_rows: int, limit: int | None) -> None:
    """The shards one after the other are the input's first rows; all but the last are full."""
    shards = plan_shards(row_counts, shard_rows, Selection(limit=limit))
    assert [row for shard in shards for row in rows(shard)] == all_rows(row_counts)[:limit]
    check_shape(shards, shard_rows)


@PATIENT
@given(row_counts=ROW_COUNTS, shard_rows=st.integers(1, 20), sample=st.integers(1, 100), seed=st.integers())
def test_a_sample_is_distinct_rows_in_input_order(
    row_counts: list[int], shard_rows: int, sample: int, seed: int
) -> None:
    """As many as asked for or all there are, each once, the same for the same seed."""
    selection = Selection(sample=sample, seed=seed)
    shards = plan_shards(row_counts, shard_rows, selection)
    drawn = [row for shard in shards for row in rows(shard)]
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(all_rows(row_counts))
    assert len(drawn) == min(sample, sum(row_counts))
    assert plan_shards(row_counts, shard_rows, selection) == shards
    check_shape(shards, shard_rows)


def check_shape(shards: list[Shard], shard_rows: int) -> None:
    """Full shards but the last, numbered through, with adjacent spans put together."""
    assert [shard.index for shard in shards] == list(range(len(shards)))
    assert all(shard.num_rows == shard_rows for shard in shards[:-1])
    assert shards[-1].num_rows <= shard_rows
    assert [shard.first_row for shard in shards] == [number * shard_rows for number in range(len(shards))]
    for shard in shards:
        assert shard.num_rows == len(rows(shard))
        for before, after in zip(shard.spans, shard.spans[1:], strict=False):
            assert (before.file_index, before.stop) < (after.file_index, after.start)
        assert all(span.num_rows > 0 for span in shard.spans)


def test_another_seed_draws_other_rows() -> None:
    """The seed is heard."""
    draws = {str(plan_shards([1000], 1000, Selection(sample=20, seed=seed))) for seed in range(5)}
    assert len(draws) == 5


def test_the_same_seed_draws_the_same_rows_for_ever() -> None:
    """A run resumed under another Python must find its own rows: the draw is pinned."""
    shards = plan_shards([60, 40], 10, Selection(sample=5, seed=7))
    assert rows(shards[0]) == [(0, 6), (0, 19), (0, 41), (0, 50), (1, 23)]


def test_an_input_without_rows_has_one_shard_without_rows() -> None:
    """So that the output exists and has its schema."""
    for row_counts in ([], [0], [0, 0]):
        for selection in (Selection(), Selection(limit=5), Selection(sample=5)):
            assert plan_shards(row_counts, 10, selection) == [Shard(0, 0, ())]


def test_generations_worked_by_hand() -> None:
    """Files of 3 and 2 rows, then one of 1, then 0 and 5 rows, 4 a shard: no shard holds rows of two generations."""
    shards = plan_generations([[3, 2], [1], [0, 5]], 4, Selection())
    assert [
        (s.index, s.generation, s.first_row, [(x.file_index, x.start, x.stop) for x in s.spans]) for s in shards
    ] == [
        (0, 1, 0, [(0, 0, 3), (1, 0, 1)]),
        (1, 1, 4, [(1, 1, 2)]),
        (2, 2, 5, [(2, 0, 1)]),
        (3, 3, 6, [(4, 0, 4)]),
        (4, 3, 10, [(4, 4, 5)]),
    ]


def test_a_generation_without_rows_has_no_shard() -> None:
    """The first has one, for the schema; files that come later and hold nothing leave the output as it is."""
    assert plan_generations([[0], [0, 0], [2]], 5, Selection()) == [
        Shard(0, 0, ()),
        Shard(1, 0, (RowSpan(3, 0, 2),), generation=3),
    ]


@PATIENT
@given(generations=st.lists(ROW_COUNTS, min_size=1, max_size=4), shard_rows=st.integers(1, 20))
def test_later_generations_change_no_shard_and_every_row_is_there_once(
    generations: list[list[int]], shard_rows: int
) -> None:
    """Whatever is added: the shards before it stay, and all together hold the input's rows in order."""
    shards = plan_generations(generations, shard_rows, Selection())
    counts = [count for one in generations for count in one]
    assert [row for shard in shards for row in rows(shard)] == all_rows(counts)
    assert [shard.index for shard in shards] == list(range(len(shards)))
    assert [shard.first_row for shard in shards] == [
        sum(before.num_rows for before in shards[: shard.index]) for shard in shards
    ]
    for number in range(1, len(generations)):
        earlier = plan_generations(generations[:number], shard_rows, Selection())
        assert shards[: len(earlier)] == earlier
        assert all(shard.generation > number for shard in shards[len(earlier) :])


@PATIENT
@given(row_counts=ROW_COUNTS, shard_rows=st.integers(1, 20), limit=st.none() | st.integers(1, 200))
def test_one_generation_is_the_plain_plan(row_counts: list[int], shard_rows: int, limit: int | None) -> None:
    """An output to which nothing was added has the shards that it always had."""
    selection = Selection(limit=limit)
    assert plan_generations([row_counts], shard_rows, selection) == plan_shards(row_counts, shard_rows, selection)
