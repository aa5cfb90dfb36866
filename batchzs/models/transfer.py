"""Arrays to the device and back, so that a GPU never waits for the processor between two batches.

Copies from and to ordinary memory wait for all that is queued on a GPU before them: the next batch's kernels would be
queued only once this one's are done. Here the arrays of a batch go up in one copy from page-locked memory, and results
come down into page-locked memory and are waited for by themselves, not by whatever another worker has queued since.
torch keeps page-locked blocks for the next batch, and hands none out before the copy that uses it is done.

On a CPU nothing is copied that need not be.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

#: Each array begins at a multiple of so many numbers: 64 bytes, on which any kernel's wide loads work.
_ALIGNMENT = 16


def to_device(arrays: Sequence[np.ndarray], device: torch.device) -> list[torch.Tensor]:
    """Copy arrays of small integers to a device, all in one.

    Args:
        arrays: one-dimensional, of integers that 32 bits hold; indices and offsets into a batch are.
        device: where to.

    Returns:
        For each array an int32 tensor of its length.
    """
    if device.type == "cpu":
        return [torch.from_numpy(array.astype(np.int32, copy=False)) for array in arrays]
    starts, size = lay_out([len(array) for array in arrays])
    staged = torch.empty(size, dtype=torch.int32, pin_memory=True)
    view = staged.numpy()
    for array, start in zip(arrays, starts, strict=True):
        view[start : start + len(array)] = array
    copied = staged.to(device, non_blocking=True)
    return [copied[start : start + len(array)] for array, start in zip(arrays, starts, strict=True)]


def lay_out(lengths: Sequence[int]) -> tuple[list[int], int]:
    """Say where arrays of some lengths begin in one that holds them all, each aligned, and how long that one is.

    >>> lay_out([20, 3, 16])
    ([0, 32, 48], 64)
    """
    starts = []
    size = 0
    for length in lengths:
        starts.append(size)
        size += -(-length // _ALIGNMENT) * _ALIGNMENT
    return starts, size


def queueing(device: torch.device) -> AbstractContextManager[object]:
    """What a network's threads go through one at a time while they queue a batch; on a CPU nothing holds them up.

    A GPU runs one batch after the other in any case. Queued one at a time, the batches of several workers take the
    memory of one, because what a batch gives back is the next one's to take as soon as it is queued.
    """
    return nullcontext() if device.type == "cpu" else threading.Lock()


@dataclass(frozen=True, slots=True)
class Fetching:
    """A result on its way from the device."""

    _values: torch.Tensor  # in this machine's memory
    _is_there: torch.cuda.Event | None  # None: it is

    @staticmethod
    def start(result: torch.Tensor) -> Fetching:
        """Queue the copy behind what computes the result, and return at once."""
        if result.device.type == "cpu":
            return Fetching(result, None)
        values = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        values.copy_(result, non_blocking=True)
        # A thread that waits for a blocking event sleeps; the others have the processor to put batches together.
        is_there = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        torch.cuda.current_stream(result.device).record_event(is_there)
        return Fetching(values, is_there)

    def wait(self) -> np.ndarray:
        """Wait for the result and return it."""
        if self._is_there is None:
            return np.asarray(self._values.numpy())
        self._is_there.synchronize()
        return self._values.numpy().copy()  # the page-locked block is wanted for other results
