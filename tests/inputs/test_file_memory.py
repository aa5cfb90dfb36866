"""Memory is bounded by a block and by the wanted rows, not by the file (case I14)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# A process of its own: the peak of this one is that of the tests before. VmHWM, for ru_maxrss starts at the parent's.
_MEASURE = """
import sys
from pathlib import Path

from batchzs.inputs import rowgroups
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import RowSpan
from batchzs.inputs.spec import ReadSpec

def peak_mib():
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024

def use(path):
    spec = ReadSpec(path, None, ("text",), "", (), "drop", "utf-8", None, '"', True, (), "quarantine")
    frozen = freeze_inputs(spec, find_files(spec, []))
    rows = read_rows(spec, frozen, [RowSpan(0, frozen.num_rows - 100, frozen.num_rows)])
    assert rows.num_rows == 100
    return peak_mib()

rowgroups.MAX_GROUP_BYTES = 2**20  # so that smaller files will do for this test
small = use(sys.argv[1])
print(use(sys.argv[2]) - small)
"""


def _write_csv(frame: pl.DataFrame, path: Path) -> None:
    frame.write_csv(path)


def _write_jsonl(frame: pl.DataFrame, path: Path) -> None:
    frame.write_ndjson(path)


def _write_parquet(frame: pl.DataFrame, path: Path) -> None:
    frame.write_parquet(path, compression="uncompressed", row_group_size=frame.height)


@pytest.mark.parametrize(
    ("suffix", "write"),
    [(".csv", _write_csv), (".jsonl", _write_jsonl), (".parquet", _write_parquet)],
)
def test_memory_does_not_grow_with_the_file(
    scratch: Path,
    suffix: str,
    write: Callable[[pl.DataFrame, Path], None],
) -> None:
    """Twice the rows, a Parquet file of a single row group too, take hardly more memory."""
    paths = [scratch / f"{name}{suffix}" for name in ("small", "large")]
    for path, num_rows in zip(paths, (40_000, 80_000), strict=True):
        rows = pl.select(number=pl.int_range(num_rows))
        write(rows.select(text=pl.format("{}{}", pl.col("number"), pl.lit("长短" * 200))), path)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", _MEASURE, *map(str, paths)]
    one_thread = {**os.environ, "POLARS_MAX_THREADS": "1"}  # each thread's allocator keeps some memory for itself
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=one_thread)
    small, large = (path.stat().st_size / 2**20 for path in paths)
    assert float(done.stdout) < (large - small) / 2
