"""What a batch frees stays for the next one, and goes back when memory is short."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from batchzs.models.allocator import give_back_freed_memory, keep_freed_memory
from tests.builders import run_python

PROGRAM = """
import re, sys
from pathlib import Path
import torch
from batchzs.models.allocator import give_back_freed_memory, keep_freed_memory
def anonymous_mib():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024
kept = keep_freed_memory()
before = anonymous_mib()
block = torch.ones(64 * 2**20, dtype=torch.uint8)
del block
between = anonymous_mib()
give_back_freed_memory()
print(kept, between - before, anonymous_mib() - before)
"""


def test_a_freed_block_is_kept_until_it_is_asked_back() -> None:
    """64 MiB, in a process of its own; where the C library is another one nothing is kept."""
    kept, between, after = run_python(PROGRAM).split()
    if kept == "True":
        assert int(between) >= 60
    assert int(after) < 10


@pytest.mark.parametrize("library", [object(), None])
def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    """Without these functions, or without a C library to ask, nothing happens."""

    def load(_: object) -> Any:
        if library is None:
            raise OSError("no such library")
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert not keep_freed_memory()
    give_back_freed_memory()
