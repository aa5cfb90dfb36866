"""What machine a benchmark ran on: no figure means anything without it."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("batchzs", "torch", "transformers", "tokenizers", "polars", "numpy")
_FEATURES = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


def describe_machine() -> dict[str, Any]:
    """The processor, its cores and units, the kernel, the load, and the versions of what matters."""
    try:
        cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        cpu = ""
    name = re.search(r"model name\s*:\s*(.+)", cpu)
    flags = re.search(r"flags\s*:\s*(.+)", cpu)
    has = set(flags[1].split()) if flags else set()
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    return {
        "cpu": name[1] if name else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "features": [feature for feature in _FEATURES if feature in has],
        "load_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": versions,
    }
