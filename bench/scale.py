"""Does a run's cost per row stay flat? Whole runs of growing inputs, with the stand-in model that answers at once.

    python -m bench.scale --rows 1000000 10000000

For Parquet and CSV inputs of short texts, and each number of rows, a run in a process of its own is measured from
outside: wall and CPU seconds, the most anonymous memory that it had (RssAnon: Polars maps files, and mapped pages are
no memory that the run holds), and the bytes that it read by system calls (mapped ones are not seen; CSV has none). With
`--tasks 16` the job's sixteen tasks run one after the other, and seconds and bytes are their sums, memory that of the
largest. What counts is what a larger input adds: libraries are read and loaded once. CPU seconds stay comparable where
other work slows the machine down. Every size is run `--repeats` times in turn; medians count. Prints a table and writes
JSON. Ten million rows take a quarter of an hour for each format and number of tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise, product
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


def measure(path: Path, folder: Path, model: Path, num_tasks: int) -> dict[str, float]:
    """Run batchzs over an input; returns wall and CPU seconds, peak anonymous MiB and MB read from files."""
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
    tasks = [["--task", f"{number}/{num_tasks}"] for number in range(1, num_tasks + 1)] if num_tasks > 1 else [[]]
    measured = [_measure_command("run", str(job), *options) for options in tasks]
    return {key: (max if key == "peak_mib" else sum)(one[key] for one in measured) for key in measured[0]}


def _measure_command(*arguments: str) -> dict[str, float]:
    environment = {**os.environ, "BATCHZS_TEST_HOOK": '{"stand_in": true}'}
    spent_s = _children_cpu_s()
    started_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "batchzs", *arguments],
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
    return {
        "wall_s": time.perf_counter() - started_s,
        "cpu_s": _children_cpu_s() - spent_s,
        "peak_mib": peak_kib / 1024,
        "read_mb": read_bytes / 1e6,
    }


def _children_cpu_s() -> float:
    """CPU seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_format(suffix: str, num_tasks: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all sizes of one format, in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {size: folder / f"news-{size}.{suffix}" for size in arguments.rows}
        for size, path in paths.items():
            write_input(path, size)
        found: dict[int, list[dict[str, float]]] = {size: [] for size in arguments.rows}
        for _ in range(arguments.repeats):
            for size, path in paths.items():
                found[size].append(measure(path, folder, arguments.model.absolute(), num_tasks))
        return [
            {
                "format": suffix,
                "tasks": num_tasks,
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
    parser.add_argument("--tasks", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", type=Path, default=Path("sample_data/model"))
    parser.add_argument("--json", type=Path, default=Path("scale.json"))
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": describe_machine(), "runs": []}
    print(
        "format   tasks   rows        wall s   µs a row more   CPU s    CPU µs a row more   peak MiB   "
        "bytes read a byte more"
    )
    for suffix, num_tasks in product(arguments.formats, arguments.tasks):
        rows = measure_format(suffix, num_tasks, arguments)
        for before, row in pairwise(rows):
            for key in ("wall", "cpu"):
                more_s = row[f"{key}_s"] - before[f"{key}_s"]
                row[f"marginal_{key}_us_per_row"] = 1e6 * more_s / (row["rows"] - before["rows"])
            row["marginal_read_ratio"] = (row["read_mb"] - before["read_mb"]) / (row["input_mb"] - before["input_mb"])
        for row in rows:
            marginal = ("marginal_wall_us_per_row", "marginal_cpu_us_per_row", "marginal_read_ratio")
            wall, cpu, read = (row.get(key) for key in marginal)
            print(
                f"{row['format']:<9}{row['tasks']:<8}{row['rows']:<12,}"
                f"{row['wall_s']:<9.1f}{'' if wall is None else f'{wall:.1f}':<16}"
                f"{row['cpu_s']:<9.1f}{'' if cpu is None else f'{cpu:.1f}':<20}"
                f"{row['peak_mib']:<11.0f}{'' if read is None else f'{read:.2f}'}"
            )
        result["runs"] += rows
    arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
