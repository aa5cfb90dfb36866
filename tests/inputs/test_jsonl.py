"""JSON Lines: records, types of carried keys, and damage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from batchzs.errors import InputError
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import BAD_ENCODING, BAD_RECORD, BAD_TYPE, OK, RowSpan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.inputs.conftest import Reading


def lines(*records: Any) -> str:
    """Write records as JSON Lines; strings are taken as they are."""
    return "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records)


def test_bad_lines_are_quarantined(reading: Reading, folder: Path) -> None:
    """Each kind of damage costs its own row, with its line; the rows after it are there (case I12)."""
    content = (
        lines(
            {"id": "a", "text": "甲"},
            "x",
            {"id": "b", "text": "乙"},
            '{"id": "c", "text": NaN}',
            '{"id": "d", "text": "丁", "x": Infinity}',
            {"id": "e", "text": 123},
            [1, 2],
            {"id": "f", "text": "己"},
            '{"id": "g", "text": "\\ud800"}',
            '{"id": "h", "text": "辛"} x',
        )
        + '{"id": "z", "te'
    )
    rows = reading.write(folder / "a.jsonl", content, keep=("id",))
    assert rows.texts == ["甲", "", "乙", "", "", "", "", "己", "", "", ""]
    assert rows.statuses == [
        OK,
        BAD_RECORD,
        OK,
        BAD_RECORD,
        BAD_RECORD,
        BAD_TYPE,
        BAD_RECORD,
        OK,
        BAD_ENCODING,
        BAD_RECORD,
        BAD_RECORD,
    ]
    assert rows.reasons[1] == "a.jsonl:2: not valid JSON at character 1"
    assert rows.reasons[5] == "a.jsonl:6: 'text' is a number, expected a string"
    assert rows.reasons[6] == "a.jsonl:7: found a list, expected an object"
    assert rows.carried["id"].to_list() == ["a", None, "b", None, None, "e", None, "f", "g", None, None]


def test_nothing_is_inferred_from_the_first_lines(reading: Reading, folder: Path) -> None:
    """A key that appears late is there, and a text that looks like a number stays a text (case I12)."""
    content = lines(*[{"id": 1}] * 200, {"id": 2, "text": "123", "late": True})
    rows = reading.write(folder / "a.jsonl", content, keep=("late",))
    assert rows.texts == [""] * 200 + ["123"]
    assert rows.carried["late"].to_list() == [None] * 200 + [True]
    assert rows.statuses == [OK] * 201


def test_missing_and_null_texts(reading: Reading, folder: Path) -> None:
    """They are null, and ok for a reader; null parts of several are skipped (case Z8)."""
    content = lines({"a": "甲", "b": "乙"}, {"a": None, "b": "丙"}, {"b": None}, {"a": ""}, {})
    rows = reading.write(folder / "x.jsonl", content, text=("a", "b"), separator="|")
    assert rows.texts == ["甲|乙", "丙", "", "", ""]
    assert rows.statuses == [OK] * 5


def test_blank_lines_and_white_space(reading: Reading, folder: Path) -> None:
    """Blank lines are no records; CRLF and indentation are no damage; U+2028 is text."""
    content = '\r\n{"text": "甲\u2028乙"}\r\n  \n \t{"text": "丙"} \n\n{"text": "丁"}'
    assert reading.write(folder / "a.jsonl", content).texts == ["甲\u2028乙", "丙", "丁"]


def test_raw_bytes_that_are_no_text(reading: Reading, folder: Path) -> None:
    """Invalid UTF-8 quarantines the line, with its offset."""
    content = '{"text": "甲"}\n'.encode() + b'{"text": "\xe4\xbd"}\n' + '{"text": "丙"}\n'.encode()
    rows = reading.write(folder / "a.jsonl", content)
    assert rows.statuses == [OK, BAD_ENCODING, OK]
    assert rows.reasons[1] == "a.jsonl:2: the byte at offset 26 is not utf-8"


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (["007", None, "1"], pl.String(), ["007", None, "1"]),
        ([True, None], pl.Boolean(), [True, None]),
        ([1, 2**53 + 1, None], pl.Int64(), [1, 2**53 + 1, None]),
        ([1, 2.5], pl.Float64(), [1.0, 2.5]),
        ([2**53 + 1, 2.5], pl.String(), ["9007199254740993", "2.5"]),
        ([1, "x2"], pl.String(), ["1", "x2"]),
        ([2**63, 1], pl.String(), ["9223372036854775808", "1"]),
        ([-(2**63), 2**63 - 1], pl.Int64(), [-(2**63), 2**63 - 1]),
        ([True, 1], pl.String(), ["true", "1"]),
        ([{"a": ["甲", None]}, None, "s"], pl.String(), ['{"a":["甲",null]}', None, "s"]),
        ([None, None], pl.String(), [None, None]),
    ],
)
def test_types_of_carried_keys(
    reading: Reading,
    folder: Path,
    values: list[Any],
    dtype: pl.DataType,
    expected: list[Any],
) -> None:
    """A key's type is that of all its values; without one in common it is a string with the JSON text (case I6)."""
    content = lines(*({"text": "甲", "x": value} for value in values))
    rows = reading.write(folder / "a.jsonl", content, keep=("x",))
    assert rows.carried.schema["x"] == dtype
    assert rows.carried["x"].to_list() == expected


def test_types_hold_over_all_files(reading: Reading, folder: Path) -> None:
    """The type does not depend on which file or shard is read."""
    (folder / "1.jsonl").write_text(lines({"text": "甲", "id": 1}))
    (folder / "2.jsonl").write_text(lines({"text": "乙", "id": "x2"}))
    spec = reading.spec(folder, keep=("id",))
    frozen = reading.frozen(folder, keep=("id",))
    assert read_rows(spec, frozen, [RowSpan(0, 0, 1)]).carried.rows() == [("1",)]
    assert read_rows(spec, frozen, [RowSpan(1, 0, 1)]).carried.rows() == [("x2",)]


def test_keep_all_takes_the_union_of_keys(reading: Reading, folder: Path) -> None:
    """Keys in the order of their first appearance, over all files."""
    (folder / "1.jsonl").write_text(lines({"text": "甲", "b": 1}, {"a": 2}))
    (folder / "2.jsonl").write_text(lines({"c": 3, "text": "乙"}))
    rows = reading.rows(folder, keep="all")
    assert rows.carried.columns == ["text", "b", "a", "c"]
    assert rows.carried.rows() == [("甲", 1, None, None), (None, None, 2, None), ("乙", None, None, 3)]


@pytest.mark.parametrize(
    ("records", "changes", "message"),
    [
        ([{"text": "甲"}], {"keep": ("id",)}, "no record has the key 'id'; keys: text"),
        ([{"title": "甲"}], {}, "no record has a text key"),
        ([{"a": "甲"}], {"text": ("a", "b")}, "no record has the key 'b'"),
        ([{f"k{row}": 1} for row in range(10_001)], {}, "more than 10000 keys"),
    ],
)
def test_keys_that_are_not_there(
    reading: Reading,
    folder: Path,
    records: list[Any],
    changes: dict[str, tuple[str, ...]],
    message: str,
) -> None:
    """A wrong key fails before scoring instead of giving empty texts."""
    with pytest.raises(InputError, match=message):
        reading.write(folder / "a.jsonl", lines(*records), **changes)


def test_file_of_another_format(reading: Reading, folder: Path) -> None:
    """A pretty-printed JSON array is refused up front, not quarantined line by line."""
    content = json.dumps([{"text": "甲"}] * 30, indent=1)
    with pytest.raises(InputError, match="of the first 92 records are damaged: is the file of the format"):
        reading.write(folder / "a.jsonl", content)


def test_bad_rows_can_fail(reading: Reading, folder: Path) -> None:
    """With `on_bad_rows: fail` the first bad line ends the first pass."""
    with pytest.raises(InputError, match=r"a\.jsonl:2: not valid JSON"):
        reading.write(folder / "a.jsonl", lines({"text": "甲"}, "x", "y"), on_bad_rows="fail")


def test_surrogates_count_only_where_needed(reading: Reading, folder: Path) -> None:
    """Half a surrogate pair in a key or value that nobody reads is no damage; whole pairs are characters."""
    content = '{"text": "\\ud83d\\ude00", "x": "\\ud800", "\\udc00": 1}\n' + lines({"text": "乙"})
    rows = reading.write(folder / "a.jsonl", content)
    assert (rows.texts, rows.statuses) == (["😀", "乙"], [OK, OK])
    assert reading.frozen(folder / "a.jsonl").files[0].field_names == ("text", "x")
    assert reading.rows(folder / "a.jsonl", keep=("x",)).statuses == [BAD_ENCODING, OK]
    assert reading.rows(folder / "a.jsonl", keep="all").carried.columns == ["text", "x"]


@pytest.mark.parametrize("value", ["[" * 100_000, "[" * 300 + "]" * 300, "1" * 5_000])
def test_hostile_values(reading: Reading, folder: Path, value: str) -> None:
    """Thousands of brackets or digits cost their row, not the run."""
    content = f'{{"text": "甲", "x": {value}}}\n' + lines({"text": "乙", "x": 1})
    rows = reading.write(folder / "a.jsonl", content, keep=("x",))
    assert rows.statuses == [BAD_RECORD, OK]
    assert rows.carried["x"].to_list() == [None, 1]


def test_file_without_records(reading: Reading, folder: Path) -> None:
    """Blank lines alone are an input without rows; with bad ones alone, all are quarantined (case I11)."""
    rows = reading.write(folder / "a.jsonl", "\n\n", keep=("id",))
    assert (rows.num_rows, rows.carried.schema) == (0, {"id": pl.String()})
    rows = reading.write(folder / "a.jsonl", "x\ny\n", keep=("id",))
    assert (rows.statuses, rows.carried.rows()) == ([BAD_RECORD, BAD_RECORD], [(None,), (None,)])


def test_blocks(reading: Reading, folder: Path) -> None:
    """A block begins every 10,000 records, at the record's own line."""
    content = "".join(f'\n{{"text": "{row}"}}\n' for row in range(20_001))
    rows = reading.write(folder / "a.jsonl", content)
    assert rows.texts == [str(row) for row in range(20_001)]
    points = reading.frozen(folder / "a.jsonl").files[0].seek_points
    assert [(point.row, point.line) for point in points] == [(0, 2), (10_000, 20_002), (20_000, 40_002)]
