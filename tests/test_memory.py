"""Running out of memory is told from every other error (cases O2 and O3)."""

import pytest
import torch

from batchzs.models.memory import is_out_of_memory


def test_torchs_own_failed_allocation_on_the_cpu() -> None:
    """A plain RuntimeError: it is recognised by what torch really says."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert type(caught.value) is RuntimeError
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: not enough memory"),
        RuntimeError("could not create a memory object"),
        RuntimeError("could not create a primitive"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_every_disguise_is_recognised(error: Exception) -> None:
    """Each was reported as a lack of memory that a smaller batch got past."""
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("could not create a primitive descriptor for a matmul primitive"),
        IndexError("index out of range in self"),
        ValueError("CUDA out of memory"),
        KeyboardInterrupt(),
    ],
)
def test_nothing_else_is(error: BaseException) -> None:
    """A smaller batch would only hide these."""
    assert not is_out_of_memory(error)
