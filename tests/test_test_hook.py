"""The hook for tests and benchmarks: read strictly, silent when absent, a stand-in that is the same anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import UsageError
from batchzs.models.memory import is_out_of_memory
from batchzs.test_hook import POINTS, VARIABLE, StandInModel, TestHook
from tests.builders import PATIENT, packed

PAIRS = st.lists(
    st.tuples(st.lists(st.integers(4, 21_127), max_size=12), st.lists(st.integers(4, 21_127), min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)


def forward(pairs: list[tuple[list[int], list[int]]], num_classes: int = 3, **hook: Any) -> np.ndarray:
    """The stand-in's logits."""
    return StandInModel(TestHook(stand_in=True, **hook), num_classes).forward(
        packed([text for text, _ in pairs], [hypothesis for _, hypothesis in pairs])
    )


def test_absent_or_empty_it_does_nothing() -> None:
    """An ordinary run."""
    for environ in ({}, {VARIABLE: ""}):
        hook = TestHook.from_environment(environ)
        assert not hook.is_active
        assert hook.description == {}
        for point in POINTS:
            hook.reach(point)


def test_what_is_asked_for_is_read_and_described() -> None:
    """Only what differs from doing nothing is told of."""
    hook = TestHook.from_environment({VARIABLE: '{"stand_in": true, "delay_s": 0.0, "nan_every": 7}'})
    assert hook.is_active
    assert hook.description == {"stand_in": True, "nan_every": 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected a JSON object"),
        ("[1]", "unknown keys|expected a JSON object"),
        ('"crash"', "unknown keys|expected a JSON object"),
        ("null", "expected a JSON object"),
        ('{"crush": "batch-scored"}', r"unknown keys \['crush'\], expected some of"),
        ('{"_reached": {}}', "unknown keys"),
        ('{"crash": "lunch"}', "crash is 'lunch', expected one of inputs-frozen"),
        ('{"crash": "batch-scored:soon"}', "crash is 'batch-scored:soon'"),
        ('{"crash": 5}', "crash is 5"),
        ('{"pause": "tea"}', "pause is 'tea', expected one of inputs-frozen"),
        ('{"crash": "batch-scored:0"}', "crash is 'batch-scored:0'"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    """A misspelt hook that does nothing would let a test pass for nothing."""
    with pytest.raises(UsageError, match=message):
        TestHook.from_environment({VARIABLE: text})


def test_one_of_several_workers_is_meant() -> None:
    """What disturbs a run holds in that one alone; what changes scores holds in all."""
    settings: dict[str, Any] = {"crash": "batch-scored", "fail_above_tokens": 9, "delay_s": 1.0, "nan_every": 7}
    hook = TestHook(stand_in=True, worker=2, **settings)
    assert hook.in_worker(2) is hook
    other = hook.in_worker(1)
    assert (other.crash, other.fail_above_tokens, other.delay_s, other.nan_every) == (None, None, 0.0, 7)
    everywhere = TestHook(**settings)
    assert everywhere.in_worker(1) is everywhere


@pytest.mark.parametrize(("crash", "printed"), [("batch-scored", "1\n"), ("batch-scored:3", "1\n2\n3\n")])
def test_the_process_dies_the_nth_time_it_comes_by(crash: str, printed: str) -> None:
    """By SIGKILL, as if the power had failed; other points do not count."""
    program = """
import os, sys
from batchzs.test_hook import TestHook
hook = TestHook(crash=sys.argv[1])
for number in range(1, 6):
    print(number, flush=True)
    hook.reach("shard-written")
    hook.reach("batch-scored")
"""
    done = subprocess.run([sys.executable, "-c", program, crash], capture_output=True, check=False, encoding="utf-8")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, printed)


def test_a_paused_process_goes_on_when_it_is_told_to() -> None:
    """So that a test can have another process overtake it at a point of its choice."""
    program = """
from batchzs.test_hook import TestHook
hook = TestHook(pause="batch-scored")
hook.reach("batch-scored")
print("went on")
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, encoding="utf-8") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.communicate()[0] == "went on\n"


def test_logits_worked_by_hand() -> None:
    """A pair's number is the sum of (id + 1) x (2 x position + 1).

    [CLS]=2, 5, [SEP]=3, 7, 3: 3x1 + 6x3 + 4x5 + 8x7 + 4x9 = 133. Times 7919, modulo 8192, / 1024 - 4:
    133 x 7919 = 1,053,227 = 128 x 8192 + 4651 -> 0.54199...; 133 x 6101 = 811,433 = 99 x 8192 + 425 -> -3.58496...;
    133 x 4507 = 599,431 = 73 x 8192 + 1415 -> -2.61816...
    """
    logits = forward([([5], [7])])
    assert logits.dtype == np.float32
    np.testing.assert_array_equal(logits, np.array([[4651 / 1024 - 4, 425 / 1024 - 4, 1415 / 1024 - 4]]))


@PATIENT
@given(pairs=PAIRS, num_classes=st.sampled_from([2, 3]), data=st.data())
def test_a_pairs_logits_are_its_own(
    pairs: list[tuple[list[int], list[int]]], num_classes: int, data: st.DataObject
) -> None:
    """Equal to a loop in Python, in any order and any company."""
    order = data.draw(st.permutations(range(len(pairs))))
    expected = []
    for text, hypothesis in pairs:
        ids = [2, *text, 3, *hypothesis, 3]
        number = sum((token + 1) * (2 * position + 1) for position, token in enumerate(ids))
        expected.append([number * prime % 8192 / 1024 - 4 for prime in (7919, 6101, 4507)[:num_classes]])
    logits = forward([pairs[index] for index in order], num_classes)
    np.testing.assert_array_equal(logits, np.array(expected)[order])
    assert logits.shape == (len(pairs), num_classes)


def test_it_runs_out_of_memory_above_a_number_of_tokens() -> None:
    """Padding counted, in the words of torch's own allocator."""
    pairs = [([5] * 6, [7]), ([5], [7])]
    assert forward(pairs, fail_above_tokens=20).shape == (2, 3)
    with pytest.raises(RuntimeError) as caught:
        forward(pairs, fail_above_tokens=19)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(("nan_ends", "is_finite"), [("never", False), ("in_fp32", True)])
def test_nan_comes_by_the_pairs_ids_and_ends_where_it_is_told_to(nan_ends: str, is_finite: bool) -> None:  # noqa: FBT001 - parametrised
    """Every pair's number is a multiple of 1: all are NaN; the exact forward gives what it gives without the hook."""
    batch = packed([[5], [6, 7]], [[8], [9]])
    plain = StandInModel(TestHook(stand_in=True)).forward(batch)
    model = StandInModel(TestHook.from_environment({VARIABLE: f'{{"nan_every": 1, "nan_ends": "{nan_ends}"}}'}))
    assert np.isnan(model.forward(batch)).all()
    exact = model.forward_exact(batch)
    assert np.isfinite(exact).all() == is_finite
    if is_finite:
        np.testing.assert_array_equal(exact, plain)
    some = StandInModel(TestHook(nan_every=7)).forward(packed([[number] for number in range(4, 200)], [[8]] * 196))
    assert 0 < np.isnan(some[:, 0]).sum() < 100
