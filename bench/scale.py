"""Does a run's cost per row stay flat? Whole runs of growing inputs, with the stand-in model that answers at once.

    python -m bench.scale --rows 1000000 10000000

For Parquet and CSV inputs of short texts, and each number of rows, a run in a process of its own is measured from
outside: wall seconds, the most anonymous memory that it had (RssAnon: Polars maps files, and mapped pages are no
memory that the run holds), and the bytes that it read. Every size is run `--repeats` times in turn; medians count.
Prints a table and writes JSON. Ten million rows take a quarter of an hour for each format.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from bench.machine import describe_machine

#: Rows written at a time.
_CHUNK = 100_000
_WORDS = ("央行", "股市", "球队", "电影", "学校", "新车", "芯片", "战机", "沙发", "博物馆", "票房", "高考")
LABELS = ("财经", "体育", "科技")


def chunk(first: int, num_rows: int) -> pl.DataFrame:
    """Short texts, no two alike."""
    numbers = range(first, first + num_rows)
    texts = [f"{_WORDS[number % 12]}{_WORDS[number // 12 % 12]}今日消息{number}" for number in numbers]
    return pl.DataFrame({"id": numbers, "text": texts})


def write_input(path: Path, num_rows: int) -> None:
    """Write an input in bounded memory."""
    if path.suffix == ".parquet":
        schema = pa.schema([("id", pa.int64()), ("text", pa.large_string())])
        with pq.ParquetWriter(path, schema) as writer:
            for first in range(0, num_rows, _CHUNK):
                writer.write_table(chunk(first, min(_CHUNK, num_rows - first)).to_arrow().cast(schema))
        return
    with path.open("wb") as file:
        for first in range(0, num_rows, _CHUNK):
            chunk(first, min(_CHUNK, num_rows - first)).write_csv(file, include_header=first == 0)


def measure(path: Path, folder: Path, model: Path) -> dict[str, float]:
    """Run batchzs over an input; returns wall seconds, peak anonymous MiB and MB read from files."""
    output = folder / "out"
    shutil.rmtree(output, ignore_errors=True)
    job = folder / "job.yaml"
    settings = {
        "input": {"path": str(path), "text": "text", "keep": ["id"]},
        "labels": list(LABELS),
        "model": {"path": str(model)},
        "output": {"path": str(output), "shard_rows": 50_000},
    }
    job.write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
    environment = {**os.environ, "BATCHZS_TEST_HOOK": '{"stand_in": true}'}
    started_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "batchzs", "run", str(job)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak_kib = read_bytes = 0
    while process.poll() is None:
        try:
            found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            counted = re.search(r"rchar: (\d+)", Path(f"/proc/{process.pid}/io").read_text())
        except OSError:
            break  # it ended between the two
        peak_kib = max(peak_kib, int(found[1]) if found else 0)
        read_bytes = int(counted[1]) if counted else read_bytes
        time.sleep(0.02)
    if process.wait() != 0:
        raise SystemExit(f"batchzs ended with {process.returncode}")
    return {"wall_s": time.perf_counter() - started_s, "peak_mib": peak_kib / 1024, "read_mb": read_bytes / 1e6}


def measure_format(suffix: str, sizes: list[int], repeats: int, model: Path) -> list[dict[str, Any]]:
    """Measure all sizes of one format, in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {size: folder / f"news-{size}{suffix}" for size in sizes}
        for size, path in paths.items():
            write_input(path, size)
        found: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
        for _ in range(repeats):
            for size, path in paths.items():
                found[size].append(measure(path, folder, model))
        return [
            {
                "format": suffix[1:],
                "rows": size,
                "input_mb": paths[size].stat().st_size / 1e6,
                **{key: median(one[key] for one in measured) for key in measured[0]},
            }
            for size, measured in found.items()
        ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[250_000, 1_000_000, 2_500_000], help="ascending")
    parser.add_argument("--formats", nargs="+", default=["parquet", "csv"], choices=["parquet", "csv"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", type=Path, default=Path("sample_data/model"))
    parser.add_argument("--json", type=Path, default=Path("scale.json"))
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": describe_machine(), "runs": []}
    print("format   rows        wall s   µs/row   marginal µs/row   peak MiB   bytes read / input")
    for suffix in arguments.formats:
        rows = measure_format(f".{suffix}", arguments.rows, arguments.repeats, arguments.model.absolute())
        marginal = [None] + [
            1e6 * (after["wall_s"] - before["wall_s"]) / (after["rows"] - before["rows"])
            for before, after in pairwise(rows)
        ]
        for row, cost in zip(rows, marginal, strict=True):
            row["marginal_us_per_row"] = cost
            row["read_ratio"] = row["read_mb"] / row["input_mb"]
            print(
                f"{row['format']:<9}{row['rows']:<12,}{row['wall_s']:<9.1f}{1e6 * row['wall_s'] / row['rows']:<9.1f}"
                f"{'' if cost is None else f'{cost:.1f}':<18}{row['peak_mib']:<11.0f}{row['read_ratio']:.2f}"
            )
        result["runs"] += rows
    arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
