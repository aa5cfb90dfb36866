"""Files that are frozen later: their carried columns are those of the files before, or they are refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from batchzs.errors import InputError
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import InputSet, RowSpan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.inputs.conftest import Reading


def added(reading: Reading, folder: Path, known: InputSet, **settings: Any) -> InputSet:
    """Freeze the files of a folder that are not known yet."""
    spec = reading.spec(folder, **settings)
    names = {file.found.name for file in known.files}
    new = [file for file in find_files(spec, []) if file.name not in names]
    return freeze_inputs(spec, new, known=known)


def write_jsonl(path: Path, *records: dict[str, Any]) -> None:
    """Write records."""
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")


def test_a_narrower_type_is_carried_in_the_one_that_is_there(reading: Reading, folder: Path) -> None:
    """A writer chose Int32 today, or met only nulls: the column stays Int64, and its values are the same."""
    pl.DataFrame({"text": ["甲"], "id": [2**40]}).write_parquet(folder / "1.parquet")
    known = reading.frozen(folder, keep=("id",))
    pl.DataFrame({"text": ["乙"], "id": pl.Series([7], dtype=pl.Int32)}).write_parquet(folder / "2.parquet")
    pl.DataFrame({"text": ["丙"], "id": [None]}).write_parquet(folder / "3.parquet")
    new = added(reading, folder, known, keep=("id",))
    assert new.carried == known.carried
    rows = read_rows(reading.spec(folder, keep=("id",)), new, [RowSpan(0, 0, 1), RowSpan(1, 0, 1)])
    assert rows.carried.to_dict(as_series=False) == {"id": [7, None]}
    assert rows.carried.schema == {"id": pl.Int64}


@pytest.mark.parametrize(
    ("column", "keep", "message"),
    [
        ({"id": ["7"]}, ("id",), r"2\.parquet: column 'id' \(input.keep\) is String, but Int32 in .*1\.parquet"),
        (
            {"id": [2**40]},
            ("id",),
            r"2\.parquet: column 'id' \(input.keep\) would have to be Int64 with this file, and",
        ),
        ({}, ("id",), r"2\.parquet: no column 'id' \(input.keep\)"),
        ({}, "all", r"2\.parquet: no column 'id'"),
        ({"id": [7], "day": ["1"]}, "all", r"2\.parquet: has a column 'day' that .*1\.parquet lacks \(keep: all\)"),
    ],
)
def test_parquet_that_does_not_fit(
    reading: Reading, folder: Path, column: dict[str, Any], keep: Any, message: str
) -> None:
    """The shards that are there have one type for each column: another one, or none, is refused before scoring."""
    pl.DataFrame({"text": ["甲"], "id": pl.Series([1], dtype=pl.Int32)}).write_parquet(folder / "1.parquet")
    known = reading.frozen(folder, keep=keep)
    pl.DataFrame({"text": ["乙"], **column}).write_parquet(folder / "2.parquet")
    with pytest.raises(InputError, match=message):
        added(reading, folder, known, keep=keep)


@pytest.mark.parametrize(
    ("header", "keep", "message"),
    [
        ("text,day", ("id",), r"2\.csv: no column 'id' \(input.keep\)"),
        ("id,text,day", "all", r"2\.csv: has a column 'day' that .*1\.csv lacks"),
        ("text", "all", r"2\.csv: no column 'id'"),
        ("id,body", ("id",), r"2\.csv: no column 'text' \(input.text\)"),
    ],
)
def test_csv_that_does_not_fit(reading: Reading, folder: Path, header: str, keep: Any, message: str) -> None:
    """A column more or less than the files before had."""
    (folder / "1.csv").write_text("id,text\n1,甲\n", encoding="utf-8")
    known = reading.frozen(folder, keep=keep)
    (folder / "2.csv").write_text(f"{header}\n{','.join('乙' for _ in header.split(','))}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        added(reading, folder, known, keep=keep)


def test_csv_columns_in_another_order_fit(reading: Reading, folder: Path) -> None:
    """With `keep: all` the columns keep the first file's order."""
    (folder / "1.csv").write_text("id,text\n1,甲\n", encoding="utf-8")
    known = reading.frozen(folder, keep="all")
    (folder / "2.csv").write_text("text,id\n乙,2\n", encoding="utf-8")
    new = added(reading, folder, known, keep="all")
    assert new.carried == known.carried
    assert read_rows(reading.spec(folder, keep="all"), new, [RowSpan(0, 0, 1)]).carried.row(0) == ("2", "乙")


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        (1, 2**60, True),
        (1, 0.5, False),
        (1, "x", False),
        (0.5, 1, True),
        (0.5, 2**60, False),
        ("x", 1, True),
        (True, False, True),
        (True, 1, False),
        (1, None, True),
    ],
)
def test_json_values_that_fit_or_do_not(
    reading: Reading, folder: Path, before: object, now: object, *, fits: bool
) -> None:
    """A file fits where all files, read at once, would have had the type that is there."""
    write_jsonl(folder / "1.jsonl", {"text": "甲", "id": before})
    known = reading.frozen(folder, keep=("id",))
    write_jsonl(folder / "2.jsonl", {"text": "乙", "id": now})
    if fits:
        new = added(reading, folder, known, keep=("id",))
        assert new.carried == known.carried == reading.frozen(folder, keep=("id",)).carried
        read_rows(reading.spec(folder, keep=("id",)), new, [RowSpan(0, 0, 1)])
    else:
        assert reading.frozen(folder, keep=("id",)).carried != known.carried
        with pytest.raises(InputError, match=r"2\.jsonl: column 'id' \(input.keep\) would have to be"):
            added(reading, folder, known, keep=("id",))


def test_json_keys_come_and_go(reading: Reading, folder: Path) -> None:
    """A key that is lacking is null, as within one file; one that nobody had before is refused with `keep: all`."""
    write_jsonl(folder / "1.jsonl", {"text": "甲", "id": 1, "title": "a"})
    for keep in ("all", ("id",)):
        known = reading.frozen(folder / "1.jsonl", keep=keep, text=("title", "text"))
        write_jsonl(folder / "2.jsonl", {"text": "乙"})
        new = added(reading, folder, known, keep=keep, text=("title", "text"))
        assert new.carried == known.carried
        write_jsonl(folder / "2.jsonl", {"text": "乙", "day": 1})
        if keep == "all":
            with pytest.raises(InputError, match=r"2\.jsonl: has 'day', which no file before it has \(keep: all\)"):
                added(reading, folder, known, keep=keep, text=("title", "text"))
        else:
            added(reading, folder, known, keep=keep, text=("title", "text"))


def test_folder_names_stay_columns(reading: Reading, folder: Path) -> None:
    """A new dated folder brings new values of the same columns."""
    for day in ("2024-05-01", "2024-05-02"):
        (folder / f"day={day}").mkdir()
    (folder / "day=2024-05-01" / "a.csv").write_text("text\n甲\n", encoding="utf-8")
    known = reading.frozen(folder, partitions="keep")
    (folder / "day=2024-05-02" / "a.csv").write_text("text\n乙\n", encoding="utf-8")
    new = added(reading, folder, known, partitions="keep")
    assert new.carried == known.carried
    assert [file.found.name for file in new.files] == ["day=2024-05-02/a.csv"]
    assert read_rows(reading.spec(folder, partitions="keep"), new, [RowSpan(0, 0, 1)]).carried.row(0) == ("2024-05-02",)
