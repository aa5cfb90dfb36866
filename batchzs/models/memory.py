"""Tell running out of memory from every other error.

On a GPU torch raises OutOfMemoryError, but cuBLAS and cuDNN fail in words of their own when they cannot allocate; on
the CPU a failed allocation is a plain RuntimeError. Works on names and messages, so that it needs no torch.
"""

from __future__ import annotations

_MESSAGES = (
    "can't allocate memory",  # DefaultCPUAllocator on Linux
    "not enough memory",  # DefaultCPUAllocator's other wording
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_NOT_INITIALIZED",  # cuDNN's handle is created lazily, and this is how that fails without memory
    "CUDA out of memory",
    "CUDA error: out of memory",
    "std::bad_alloc",
    "could not create a memory object",  # oneDNN
)
#: oneDNN again, where it cannot allocate what a kernel needs. As a whole: "could not create a primitive descriptor for
#: ..." begins alike and says that there is no such kernel.
_WHOLE_MESSAGE = "could not create a primitive"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a smaller batch might get past this error.

    >>> is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."))
    True
    >>> is_out_of_memory(RuntimeError("CUDA error: device-side assert triggered"))
    False
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if not isinstance(error, RuntimeError):
        return False
    said = str(error)
    return said == _WHOLE_MESSAGE or any(message in said for message in _MESSAGES)
