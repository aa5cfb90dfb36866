"""Batches of pairs, longest first, and the budget that shrinks and grows again."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchzs.batching import SUCCESSES_BEFORE_GROWTH, TokenBudget, order_longest_first, plan_batches
from tests.builders import PATIENT

LENGTHS = st.lists(st.integers(min_value=4, max_value=512), max_size=200).map(np.array)


def planned(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """The lengths of each batch, as planned from lengths in any order."""
    ordered = lengths[order_longest_first(lengths)] if len(lengths) else lengths
    return [ordered[batch] for batch in plan_batches(ordered, budget)]


def test_plan_worked_by_hand() -> None:
    """A batch is as many pairs as fit at the length of its first, which is its longest.

    Budget 24, lengths in order 12 8 8 7 5 5 3:
      12       -> 24 // 12 = 2 pairs: 12 8      (2 x 12 = 24 tokens with padding)
      8        -> 24 // 8  = 3 pairs: 8 7 5     (24)
      5        -> 24 // 5  = 4, two are left: 5 3 (10)
    """
    assert [batch.tolist() for batch in planned(np.array([5, 8, 3, 12, 7, 8, 5]), 24)] == [[12, 8], [8, 7, 5], [5, 3]]


def test_pair_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    """Nothing is left out for being too long."""
    assert [batch.tolist() for batch in planned(np.array([50, 30, 4]), 10)] == [[50], [30], [4]]


@PATIENT
@given(lengths=st.lists(st.integers(4, 8), max_size=200))
def test_equal_lengths_keep_their_order(lengths: list[int]) -> None:
    """The order is a function of lengths alone, Python's stable sort: two runs plan the same batches."""
    order = order_longest_first(np.array(lengths, dtype=np.int64))
    assert order.tolist() == sorted(range(len(lengths)), key=lambda index: -lengths[index])


def test_small_unsigned_lengths_are_not_negated_in_their_own_type() -> None:
    """-3 of an unsigned type would be a large number."""
    assert order_longest_first(np.array([3, 9, 5], dtype=np.uint8)).tolist() == [1, 2, 0]


def test_no_pairs_no_batches() -> None:
    """A shard of empty texts has nothing to score."""
    assert plan_batches(np.array([], dtype=np.int64), 100) == []


@PATIENT
@given(lengths=LENGTHS, budget=st.integers(min_value=1, max_value=5000))
def test_plan_covers_every_pair_once_longest_first_within_the_budget(lengths: np.ndarray, budget: int) -> None:
    """Every pair lies in one batch; only a pair on its own may be above the budget; no batch could take one more."""
    batches = planned(lengths, budget)
    flat = [length for batch in batches for length in batch.tolist()]
    assert flat == sorted(lengths.tolist(), reverse=True)
    for number, batch in enumerate(batches):
        assert len(batch) == 1 or len(batch) * batch[0] <= budget
        if number < len(batches) - 1:
            assert (len(batch) + 1) * batch[0] > budget


@PATIENT
@given(lengths=LENGTHS, budget=st.integers(min_value=1, max_value=5000))
def test_plan_equals_a_loop_over_pairs(lengths: np.ndarray, budget: int) -> None:
    """The reference takes one pair after another and begins a batch where the next would not fit."""
    expected: list[list[int]] = []
    for length in sorted(lengths.tolist(), reverse=True):
        if expected and (len(expected[-1]) + 1) * expected[-1][0] <= budget:
            expected[-1].append(length)
        else:
            expected.append([length])
    assert [batch.tolist() for batch in planned(lengths, budget)] == expected


def test_budget_halves_what_failed() -> None:
    """The limit after a failure is half of what did not fit: 960 // 2 = 480, and again 480 // 2 = 240."""
    budget = TokenBudget(1000)
    budget.record_failure(960)
    assert budget.limit_tokens == 480
    budget.record_failure(480)
    assert budget.limit_tokens == 240
    assert budget.failed_tokens == 480


def test_single_pair_above_the_budget_still_lowers_the_limit() -> None:
    """A failure of more tokens than the limit halves the limit, not the failure."""
    budget = TokenBudget(100)
    budget.record_failure(512)
    assert budget.limit_tokens == 50


def test_without_a_failure_the_limit_is_the_plan() -> None:
    """Successes alone never raise the limit above what was planned."""
    budget = TokenBudget(1000)
    for _ in range(10 * SUCCESSES_BEFORE_GROWTH):
        budget.record_success()
    assert budget.limit_tokens == 1000


def test_growth_comes_after_32_and_after_a_further_failure_after_64_successes() -> None:
    """A machine at its limit is asked for more ever more rarely.

    By hand: 1000 planned, 960 fails: 480. After 32 successes 480 + 480 // 4 = 600. 600 fails: 300, bound 600. After
    64 successes, and not before, 300 + 75 = 375.
    """
    budget = TokenBudget(1000)
    budget.record_failure(960)
    limits = []
    for _ in range(32):
        limits.append(budget.limit_tokens)
        budget.record_success()
    assert set(limits) == {480}
    assert budget.limit_tokens == 600
    budget.record_failure(600)
    for _ in range(63):
        budget.record_success()
    assert budget.limit_tokens == 300
    budget.record_success()
    assert budget.limit_tokens == 375


def test_growth_stops_below_the_smallest_size_that_failed() -> None:
    """What failed is an exclusive bound: 100 fails, the limit comes to 99 and stays."""
    budget = TokenBudget(1000)
    budget.record_failure(100)
    for _ in range(100 * SUCCESSES_BEFORE_GROWTH):
        budget.record_success()
    assert budget.limit_tokens == 99


def test_a_failure_forgets_the_successes_before_it() -> None:
    """Growth takes successes in a row."""
    budget = TokenBudget(1000)
    budget.record_failure(960)
    for _ in range(31):
        budget.record_success()
    budget.record_failure(400)
    budget.record_success()
    assert budget.limit_tokens == 200


@PATIENT
@given(
    planned_tokens=st.integers(min_value=1, max_value=10_000),
    events=st.lists(st.integers(min_value=-100, max_value=20_000), max_size=200),
)
def test_budget_state_machine(planned_tokens: int, events: list[int]) -> None:
    """Whatever happens the limit is at least 1, never above the plan, and below every size that failed.

    An event above 0 is a failure of so many tokens, any other so many successes.
    """
    budget = TokenBudget(planned_tokens)
    failed: list[int] = []
    for event in events:
        before = budget.limit_tokens
        if event > 0:
            budget.record_failure(event)
            failed.append(event)
            assert budget.limit_tokens == max(1, min(before, event) // 2)
        else:
            for _ in range(-event):
                budget.record_success()
            assert budget.limit_tokens >= before
        assert 1 <= budget.limit_tokens <= planned_tokens
        if failed and min(failed) > 1:
            assert budget.limit_tokens < min(failed)


def num_backoffs(batches: list[np.ndarray], planned_tokens: int, capacity: int) -> int:
    """Allocate what each batch needs from a pool that only grows, halving as the engine does.

    A pair of n tokens needs n x n units, its attention weights. The pool keeps every block that it was asked for and
    gives one out again only where it is large enough.
    """
    budget = TokenBudget(planned_tokens)
    pool: list[int] = []
    pending = list(reversed(batches))
    num = 0
    while pending:
        batch = pending.pop()
        parts = plan_batches(batch, budget.limit_tokens)
        if len(parts) > 1:
            pending += [batch[part] for part in reversed(parts)]
            continue
        size = len(batch) * int(batch[0]) ** 2
        if any(block >= size for block in pool) or sum(pool) + size <= capacity:
            if not any(block >= size for block in pool):
                pool.append(size)
            budget.record_success()
        else:
            budget.record_failure(len(batch) * int(batch[0]))
            pending.append(batch)
            num += 1
    return num


def test_longest_first_backs_off_at_most_once_with_an_allocator_that_only_grows() -> None:
    """Case O5: longest first, the largest block is asked for first and serves all later batches.

    4096 tokens a batch, by hand: pairs of 128 tokens come 32 at once, 32 x 128^2 = 524,288 units, and of 96, 64, 32
    and 16 tokens 387,072, 262,144, 131,072 and 65,536. With room for 600,000 the first block is the only one. With
    room for 300,000 it fails once, at 2048 tokens the block of 16 x 128^2 = 262,144 serves to the end. Shortest
    first, the three smaller blocks are 458,752 by the time that 387,072 more are asked for.
    """
    lengths = np.repeat([16, 128, 32, 96, 64], 300)
    batches = planned(lengths, 4096)
    assert num_backoffs(batches, 4096, capacity=600_000) == 0
    assert num_backoffs(batches, 4096, capacity=300_000) == 1
    assert num_backoffs(batches[::-1], 4096, capacity=600_000) > 0
