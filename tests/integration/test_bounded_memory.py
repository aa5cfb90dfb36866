"""Memory is bounded by the shard and not by the input (promise 8, case I14): whole runs, measured from outside.

Texts of twenty kilobytes make few rows and much to read, hold and tokenise. Each occurs twenty times in a row, which
the engine scores once: tokenising three gigabytes would take a quarter of an hour.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.conftest import Running, Workshop

MIB = 2**20
#: The promise, the interpreter and its libraries included.
LIMIT_MIB = 1024
TEXT_BYTES = 20_000
NUM_REPEATS = 20
#: Far beyond what a run here takes, on a busy machine too.
TIMEOUT_S = 900
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def long_texts(num_texts: int) -> Iterator[str]:
    """Make texts of twenty kilobytes, Chinese and ASCII, every twenty of them alike."""
    sentences = "今天的新闻很多，球队昨夜取胜。" * 100
    filler = "-" * (TEXT_BYTES - len(sentences.encode()))
    for number in range(num_texts):
        yield f"第{number // NUM_REPEATS}条 {sentences} {filler}"


def write_csv(path: Path, num_texts: int) -> None:
    """Write a CSV file in a stream."""
    with path.open("w", encoding="utf-8") as file:
        file.write("id,text\n")
        for number, text in enumerate(long_texts(num_texts)):
            file.write(f"{number},{text}\n")


def write_parquet(path: Path, num_texts: int) -> None:
    """Write a Parquet file of a single row group, by way of a mapped file, so that this process holds little of it."""
    mapped = path.with_suffix(".arrow")
    with pa.OSFile(str(mapped), "wb") as sink, ipc.new_file(sink, SCHEMA) as writer:
        pending: list[str] = []
        for number, text in enumerate(long_texts(num_texts)):
            pending.append(text)
            if len(pending) == 1000 or number == num_texts - 1:
                ids = pa.array(range(number + 1 - len(pending), number + 1), pa.int64())
                writer.write_batch(pa.record_batch([ids, pa.array(pending)], schema=SCHEMA))
                pending = []
    with pa.memory_map(str(mapped)) as source:
        table = ipc.open_file(source).read_all()
        pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=num_texts)
    mapped.unlink()
    assert pq.read_metadata(path).num_row_groups == 1


def peak_mib(running: Running) -> float:
    """Wait for a run's end; return the most anonymous memory that it had: all of its own, mapped files left out."""
    status = Path(f"/proc/{running._process.pid}/status")
    peak = 0
    deadline_s = time.monotonic() + TIMEOUT_S
    while not running.has_ended:
        assert time.monotonic() < deadline_s, running.stderr
        found = re.search(r"RssAnon:\s+(\d+) kB", status.read_text())
        peak = max(peak, int(found[1]) if found else 0)
        time.sleep(0.01)
    return peak / 1024


def run_and_measure(
    workshop: Workshop, write: Callable[[Path, int], None], name: str, num_texts: int, shard_rows: int
) -> float:
    """Write an input, score it, see that every row came out in order, remove it; return the run's peak in MiB."""
    path = workshop.folder / name
    write(path, num_texts)
    job = workshop.job(
        input={"path": name},
        labels=["新闻"],
        output={"path": f"{name} 结果", "shard_rows": shard_rows},
        engine={"max_length": 64, "max_batch_tokens": 4096},
    )
    running = workshop.start("run", job)
    peak = peak_mib(running)
    result = running.end()
    path.unlink()
    assert result.code == 0, result.stderr
    output = workshop.folder / f"{name} 结果"
    table = workshop.table(output)
    assert table["id"].cast(int).to_list() == table["source_row"].to_list() == list(range(num_texts))
    assert table["status"].unique().to_list() == ["ok"]
    shutil.rmtree(output)
    return peak


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "write"), [(".csv", write_csv), (".parquet", write_parquet)])
def test_memory_does_not_grow_with_the_input(
    workshop: Workshop, suffix: str, write: Callable[[Path, int], None]
) -> None:
    """Three and a half times the rows, in one huge row group too, take hardly more memory."""
    small, large = (run_and_measure(workshop, write, f"{count}{suffix}", count, 500) for count in (4_000, 14_000))
    assert large < LIMIT_MIB
    assert large - small < 10_000 * TEXT_BYTES / MIB / 2


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "write"), [(".csv", write_csv), (".parquet", write_parquet)])
def test_three_gigabytes_in_less_than_one(workshop: Workshop, suffix: str, write: Callable[[Path, int], None]) -> None:
    """An input three times as large as what the run may hold."""
    free_bytes = shutil.disk_usage(workshop.folder).free
    if free_bytes < 8 * 10**9:
        pytest.skip(f"three gigabytes are written twice here, and {free_bytes / 1e9:.1f} GB are free")
    started_s = time.monotonic()
    num_texts = 3 * 2**30 // TEXT_BYTES
    peak = run_and_measure(workshop, write, f"large{suffix}", num_texts, 4_000)
    print(  # noqa: T201 - figures for docs/reliability.md
        f"\n3 GiB of {suffix}: {num_texts} rows, peak {peak:.0f} MiB, {time.monotonic() - started_s:.0f} s in all"
    )
    assert peak < LIMIT_MIB
