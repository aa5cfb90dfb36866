"""Have the C library keep what a batch frees for the next one, on a CPU.

glibc asks the kernel for every large block anew and gives it back at once. A forward pass makes hundreds of them, and
the kernel clears each page before it is used again, which took several percent of the time. Here large blocks come
from the heap and stay with the process until memory is short. Other C libraries are left as they are.
"""

from __future__ import annotations

import ctypes

#: glibc's <malloc.h>: the heap is not trimmed below this; no block is mapped by itself; one heap for all threads, since
#: the others' are too small for large blocks.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_MAX_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Set the C library's allocator up for blocks of equal sizes, again and again.

    Returns:
        Whether it took that.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all([mallopt(_MMAP_MAX, 0), mallopt(_TRIM_THRESHOLD, _MAX_INT), mallopt(_ARENA_MAX, 1)])


def give_back_freed_memory() -> None:
    """Return what was kept to the kernel, where the C library can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
