"""Arrays come to the device whole, and results come back whole; on a GPU nothing waits for what is queued behind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchzs.models.transfer import Fetching, lay_out, to_device
from tests.builders import PATIENT

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")),
]


@PATIENT
@given(lengths=st.lists(st.integers(0, 100), max_size=6))
def test_arrays_in_one_lie_apart_and_aligned(lengths: list[int]) -> None:
    """None overlaps another, each begins where wide loads may, and little is lost between them."""
    starts, size = lay_out(lengths)
    stops = [start + length for start, length in zip(starts, lengths, strict=True)]
    assert all(start % 16 == 0 for start in starts)
    assert all(0 <= start - stop < 16 for start, stop in zip([*starts, size], [0, *stops], strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_arrive_as_they_were(device: str) -> None:
    """As int32, empty ones too, while the next ones are on their way already."""
    draw = np.random.default_rng(0)
    for size in (3, 70_000, 1, 70_000):
        arrays = [draw.integers(0, 2**31 - 1, length) for length in (size, 0, 17)]
        copies = to_device(arrays, torch.device(device))
        assert {copy.dtype for copy in copies} == {torch.int32}
        assert {copy.device.type for copy in copies} == {device}
        for array, copy in zip(arrays, copies, strict=True):
            assert copy.tolist() == array.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_results_of_several_threads_do_not_mix(device: str) -> None:
    """Each waits for its own, and keeps it when page-locked memory is used again."""

    def doubled(number: int) -> list[np.ndarray]:
        results = []
        for step in range(20):
            (copy,) = to_device([np.full(1000, number + step)], torch.device(device))
            results.append(Fetching.start(copy.float() * 2).wait())
        return results

    with ThreadPoolExecutor(4) as pool:
        for number, results in zip(range(0, 400, 100), pool.map(doubled, range(0, 400, 100)), strict=True):
            for step, result in enumerate(results):
                assert result.dtype == np.float32
                assert (result == 2 * (number + step)).all()
