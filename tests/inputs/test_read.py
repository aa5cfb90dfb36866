"""Rows of spans over several files, with their positions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from batchzs.errors import InputError
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.frozen import check_unchanged
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import BAD_RECORD, OK, CarriedColumn, RowSpan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.inputs.conftest import Reading


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_spans_over_files(reading: Reading, folder: Path, suffix: str) -> None:
    """Rows come in the spans' order, each with its file and its number in that file."""
    for name in ("p-10", "p-2"):
        frame = pl.DataFrame(
            {"text": [f"{name} 第{row}行" for row in range(12)], "id": [str(row) for row in range(12)]}
        )
        path = folder / f"{name}.{suffix}"
        match suffix:
            case "csv" | "tsv":
                frame.write_csv(path, separator="," if suffix == "csv" else "\t")
            case "jsonl":
                frame.write_ndjson(path)
            case _:
                frame.write_parquet(path)
    spec = reading.spec(folder, keep=("id",))
    frozen = reading.frozen(folder, keep=("id",))
    assert (frozen.num_rows, frozen.carried) == (24, (CarriedColumn("id", "String"),))
    rows = read_rows(spec, frozen, [RowSpan(0, 10, 12), RowSpan(1, 0, 1), RowSpan(1, 5, 7)])
    assert rows.source_files == [f"p-2.{suffix}"] * 2 + [f"p-10.{suffix}"] * 3
    assert rows.source_rows.tolist() == [10, 11, 0, 5, 6]
    assert rows.source_rows.dtype == "int64"
    assert rows.texts == ["p-2 第10行", "p-2 第11行", "p-10 第0行", "p-10 第5行", "p-10 第6行"]
    assert rows.carried["id"].to_list() == ["10", "11", "0", "5", "6"]
    assert (rows.statuses, rows.reasons, rows.num_rows) == ([OK] * 5, [None] * 5, 5)


def test_no_spans(reading: Reading, folder: Path) -> None:
    """No spans give no rows, with the carried columns' types (case I11)."""
    reading.write(folder / "a.csv", "id,text\n1,甲\n")
    frozen = reading.frozen(folder, keep=("id",))
    rows = read_rows(reading.spec(folder, keep=("id",)), frozen, [])
    assert (rows.num_rows, rows.carried.schema, len(rows.source_rows)) == (0, {"id": pl.String()}, 0)


@pytest.mark.parametrize("spans", [[RowSpan(0, 0, 3)], [RowSpan(0, 1, 2), RowSpan(0, 0, 1)], [RowSpan(0, -1, 1)]])
def test_spans_that_are_not_there(reading: Reading, folder: Path, spans: list[RowSpan]) -> None:
    """Spans beyond the file or out of order are a fault of ours."""
    reading.write(folder / "a.csv", "text\n甲\n乙\n")
    with pytest.raises(ValueError, match="not ascending within its 2 rows"):
        read_rows(reading.spec(folder), reading.frozen(folder), spans)


def test_partitions_as_columns(reading: Reading, folder: Path) -> None:
    """Folder names come after the carried columns, as strings; Hive's word for null is null (case I10)."""
    for day in ("01", "02", "__HIVE_DEFAULT_PARTITION__"):
        (folder / f"day={day}").mkdir()
        (folder / f"day={day}" / "p.csv").write_text(f"id,text\n1,{day}\nbad\n")
    rows = reading.rows(folder, keep=("id",), partitions="keep")
    assert rows.carried.rows() == [("1", "01"), ("bad", "01"), ("1", "02"), ("bad", "02"), ("1", None), ("bad", None)]
    assert rows.statuses == [OK, BAD_RECORD] * 3
    assert reading.frozen(folder, keep=("id",), partitions="keep").carried[-1] == CarriedColumn("day", "String")
    assert reading.rows(folder, partitions="keep").carried.columns == ["day"]
    assert reading.rows(folder).carried.width == 0
    assert rows.source_files[0] == "day=01/p.csv"


def test_progress_counts_bytes(reading: Reading, folder: Path) -> None:
    """The first pass tells how many bytes it has read, over all files."""
    (folder / "a.csv").write_text("text\n" + "甲\n" * 1_000)
    (folder / "b.csv").write_text("text\n乙\n")
    spec = reading.spec(folder)
    found = find_files(spec, [])
    seen: list[int] = []
    freeze_inputs(spec, found, on_progress=seen.append)
    assert sum(seen) == sum(file.size_bytes for file in found)


def test_freezing_nothing(reading: Reading) -> None:
    """An input without files is refused."""
    with pytest.raises(InputError, match="no input files"):
        freeze_inputs(reading.spec("/x"), [])


def test_file_that_vanishes_before_the_first_pass(reading: Reading, folder: Path) -> None:
    """It is named, not a traceback."""
    (folder / "a.csv").write_text("text\n甲\n")
    spec = reading.spec(folder)
    found = find_files(spec, [])
    (folder / "a.csv").unlink()
    with pytest.raises(InputError, match=r"a\.csv: cannot be read"):
        freeze_inputs(spec, found)


def test_two_reads_are_the_same(reading: Reading, folder: Path) -> None:
    """Order and content do not depend on the run (case I15)."""
    path = folder / "a.csv"
    path.write_text("id,text\n" + "".join(f"{row},第{row}行\n" for row in range(30_000)))
    first, second = (reading.rows(path, keep=("id",)) for _ in range(2))
    assert first.texts == second.texts == [f"第{row}行" for row in range(30_000)]
    assert first.carried.equals(second.carried)


class StoppedError(Exception):
    """What a stop raises in these tests."""


def stop_at(number: int) -> Callable[..., None]:
    """Make a callback that raises when it is called for the `number`th time."""
    calls = iter(range(1, number))

    def on_call(*_: object) -> None:
        if next(calls, None) is None:
            raise StoppedError

    return on_call


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_stop_is_heard_while_files_are_read(reading: Reading, folder: Path, suffix: str) -> None:
    """Freezing, digesting again and reading each call back on the way, and end where that raises."""
    path = folder / f"a.{suffix}"
    frame = pl.DataFrame({"text": [f"第{row}行" * 10 for row in range(40_000)]})
    match suffix:
        case "csv" | "tsv":
            frame.write_csv(path, separator="," if suffix == "csv" else "\t")
        case "jsonl":
            frame.write_ndjson(path)
        case _:
            frame.write_parquet(path)
    spec = reading.spec(folder)
    found = find_files(spec, [])
    for number in (1, 2):
        with pytest.raises(StoppedError):
            freeze_inputs(spec, found, on_progress=stop_at(number))
    frozen = freeze_inputs(spec, found)
    with pytest.raises(StoppedError):
        check_unchanged(frozen, [replace(file, mtime_ns=1) for file in found], stop_at(1))
    with pytest.raises(StoppedError):
        read_rows(spec, frozen, [RowSpan(0, 0, frozen.num_rows)], stop_at(2))
