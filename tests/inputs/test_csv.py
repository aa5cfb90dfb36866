"""CSV and TSV: records, fields, nulls, and damage."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from batchzs.errors import InputError
from batchzs.inputs import textlines
from batchzs.inputs.rows import BAD_RECORD, OK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.inputs.conftest import Reading


def test_every_column_is_a_string(reading: Reading, folder: Path) -> None:
    """Ids come out as they were written: leading zeros, a late letter, 23 digits (case I6)."""
    ids = [*(f"{number:03d}" for number in range(150)), "A9", "12345678901234567890123", "1.0", "true"]
    rows = reading.write(folder / "a.csv", "id,text\n" + "".join(f"{one},降准\n" for one in ids), keep=("id",))
    assert rows.carried["id"].to_list() == ids


def test_nulls(reading: Reading, folder: Path) -> None:
    """A bare empty field is null, a quoted one an empty string, and NA is text (case Z8)."""
    text = 'id,text\n,NA\n"",\n1,""\n2,"\u200b\ufeff"\n3,  \n'
    rows = reading.write(folder / "a.csv", text, keep=("id", "text"))
    assert rows.texts == ["NA", "", "", "\u200b\ufeff", "  "]
    assert rows.carried["id"].to_list() == [None, "", "1", "2", "3"]
    assert rows.carried["text"].to_list() == ["NA", None, "", "\u200b\ufeff", "  "]
    assert rows.statuses == [OK] * 5


def test_nulls_in_the_line_aware_reader(reading: Reading, folder: Path) -> None:
    """Null and empty are told apart in the blocks that Polars does not read, too."""
    text = 'id,text,x\n,6.1" 手机,\n"",甲,""\n"a""b",,"c,""d"\n"","",""\n'
    rows = reading.write(folder / "a.csv", text, keep=("id", "x"))
    assert reading.frozen(folder / "a.csv", keep=("id", "x")).files[0].bad_blocks == (0,)
    assert rows.texts == ['6.1" 手机', "甲", "", ""]
    assert rows.carried["id"].to_list() == [None, "", 'a"b', ""]
    assert rows.carried["x"].to_list() == [None, "", 'c,"d', ""]


@pytest.mark.parametrize("stray", ["", '3,6.1" 手机\n'])
def test_null_values(reading: Reading, folder: Path, stray: str) -> None:
    """The job's null values are compared exactly, in text and carried columns, by both readers."""
    text = f"id,text\nNA,甲\nna,\\N\n \\N,乙\n{stray}"
    rows = reading.write(folder / "a.csv", text, keep=("id",), null_values=("NA", "\\N"))
    assert rows.texts[:3] == ["甲", "", "乙"]
    assert rows.carried["id"].to_list()[:3] == [None, "na", " \\N"]


def test_stray_quote_is_text(reading: Reading, folder: Path) -> None:
    """A quote inside an unquoted field is a character like others; no row is lost (case I1)."""
    text = 'id,text\nn1,降准\nn2,加息\nn3,屏幕6.1" 手机\nn4,涨停\n'
    rows = reading.write(folder / "a.csv", text, keep=("id",))
    assert rows.texts == ["降准", "加息", '屏幕6.1" 手机', "涨停"]
    assert rows.carried["id"].to_list() == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,text\nn1,"未闭合\nn2,乙\nn3,丙\n', 2),
        ('id,text\nn0,甲\nn1,"未闭合\nn2,乙\nn3,丙\n', 3),
        ('id,text\nn0,甲\nn1,"未闭合\nn2,"好"\n', 3),
        ('id,text\nn0,甲\nn1,"未闭合', 3),
        ('id,text\nn0,"甲\n乙"\n"未闭合,丙\nn3,丁\n', 4),
    ],
)
def test_unclosed_quote_refuses_the_file(reading: Reading, folder: Path, text: str, line: int) -> None:
    """A record that swallows the following ones is found before scoring, and its line is named (case I1)."""
    with pytest.raises(InputError, match=rf"a\.csv:{line}: a quote that opens here is not closed") as caught:
        reading.write(folder / "a.csv", text)
    assert "未闭合" not in str(caught.value)


def test_quotes_can_be_turned_off(reading: Reading, folder: Path) -> None:
    """With `quote: null` quotes are ordinary characters, and a bare empty field is null."""
    rows = reading.write(folder / "a.csv", 'id,text\n"n1,"未闭合\n"",\n', quote=None, keep=("id", "text"))
    assert rows.texts == ['"未闭合', ""]
    assert rows.carried.rows() == [('"n1', '"未闭合'), ('""', None)]


def test_record_that_is_too_large(reading: Reading, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclosed quote does not fill the memory: the record is refused at its limit, naming where it began."""
    monkeypatch.setattr(textlines, "MAX_RECORD_BYTES", 4_000)
    lines = "".join(f"n{row},降准\n" for row in range(3_000))
    with pytest.raises(InputError, match=r"a\.csv:3: the record that begins here is larger"):
        reading.write(folder / "a.csv", f'id,text\nn,甲\nn,"未闭合\n{lines}')
    with pytest.raises(InputError, match=r"b\.csv:2: the record that begins here is larger"):
        reading.write(folder / "b.csv", "id,text\nn," + "长" * 5_000)


def test_long_fields(reading: Reading, folder: Path) -> None:
    """A field of megabytes is a field: Python's own limit of 131,072 characters is lifted."""
    long = "长" * 1_000_000
    assert reading.write(folder / "a.csv", f"text\n{long}\n短\n").texts == [long, "短"]


def test_newlines_inside_quotes(reading: Reading, folder: Path) -> None:
    """Rows are records, not lines, over several blocks (case I2)."""
    text = "text\n" + '"第一行 ABC\nDEF 第二行"\r\n' * 20_500
    frozen_rows = reading.write(folder / "a.csv", text)
    assert frozen_rows.texts == ["第一行 ABC\nDEF 第二行"] * 20_500
    frozen = reading.frozen(folder / "a.csv")
    assert [(point.row, point.line) for point in frozen.files[0].seek_points] == [
        (0, 2),
        (10_000, 20_002),
        (20_000, 40_002),
    ]
    assert frozen.files[0].bad_blocks == ()


def test_ragged_records_are_quarantined(reading: Reading, folder: Path) -> None:
    """Too many or too few fields stay in their own row, with line and counts; nothing is cut off (case I5)."""
    rows = reading.write(folder / "a.csv", "id,text\nn1,降准,利好股市\nn2,涨停\nn3\n", keep=("id",))
    assert rows.texts == ["", "涨停", ""]
    assert rows.statuses == [BAD_RECORD, OK, BAD_RECORD]
    assert rows.reasons == ["a.csv:2: found 3 fields, expected 2", None, "a.csv:4: found 1 fields, expected 2"]
    assert rows.carried["id"].to_list() == ["n1", "n2", "n3"]


def test_junk_after_a_closing_quote(reading: Reading, folder: Path) -> None:
    """It damages its record alone; the fields before it are carried, those after it are null."""
    rows = reading.write(folder / "a.csv", 'id,text,x\nn1,"好"的,1\n"n2",乙,2\n', keep=("id", "x"))
    assert rows.statuses == [BAD_RECORD, OK]
    assert rows.reasons[0] == "a.csv:2: characters after a closing quote"
    assert rows.carried.rows() == [("n1", None), ("n2", "2")]
    assert rows.texts == ["", "乙"]


def test_bad_rows_can_fail(reading: Reading, folder: Path) -> None:
    """With `on_bad_rows: fail` the first bad row ends the first pass with its line."""
    with pytest.raises(InputError, match=r"a\.csv:3: found 1 fields, expected 2"):
        reading.write(folder / "a.csv", "id,text\n1,甲\n2\n3\n", on_bad_rows="fail")


def test_wrong_delimiter_is_refused(reading: Reading, folder: Path) -> None:
    """A file most of whose records are damaged is of another shape: refused before scoring."""
    with pytest.raises(InputError, match="60 of the first 61 records are damaged"):
        reading.write(folder / "a.csv", "id;a,text\n1,甲\n" + "2;甲,乙,丙\n" * 60)


def test_line_ends(reading: Reading, folder: Path) -> None:
    """LF, CRLF and a last line without either; U+2028 and U+0085 are text."""
    text = "id,text\r\n1,甲\u2028乙\u0085丙\r\n2,丁\n3,戊"
    assert reading.write(folder / "a.csv", text).texts == ["甲\u2028乙\u0085丙", "丁", "戊"]


def test_lone_carriage_return(reading: Reading, folder: Path) -> None:
    """Inside quotes it is text; outside it damages its record, for readers disagree on what it is."""
    rows = reading.write(folder / "a.csv", 'id,text\n1,"甲\r乙"\n2,甲\r乙\n3,丙\n', keep=("id",))
    assert rows.texts == ["甲\r乙", "", "丙"]
    assert rows.statuses == [OK, BAD_RECORD, OK]
    assert rows.carried["id"].to_list() == ["1", "2", "3"]
    with pytest.raises(InputError, match="carriage return"):
        reading.write(folder / "mac.csv", "id,text\r1,甲\r2,乙\r")


def test_blank_lines_are_no_records(reading: Reading, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are skipped and counted, wherever they are, in files of one column too."""
    text = "\n\r\nid,text\n\n1,甲\n\n\n2,乙\r\n\r\n"
    with caplog.at_level(logging.INFO, logger="batchzs"):
        rows = reading.write(folder / "a.csv", text)
    assert rows.texts == ["甲", "乙"]
    assert "skipped 4 blank lines" in caplog.text
    assert reading.write(folder / "b.csv", 'text\n甲\n\n""\n乙\n').texts == ["甲", "", "乙"]
    assert reading.frozen(folder / "a.csv").files[0].seek_points[0].line == 5


def test_nul_is_a_character(reading: Reading, folder: Path) -> None:
    """NUL passes through untouched, in both readers (case I3)."""
    assert reading.write(folder / "a.csv", "id,text\n1,ab\x00cd\n").texts == ["ab\x00cd"]
    assert reading.write(folder / "b.csv", 'id,text\n1,ab\x00"cd\n').texts == ['ab\x00"cd']


def test_header_only(reading: Reading, folder: Path) -> None:
    """A file without rows is an input without rows (case I11)."""
    rows = reading.write(folder / "a.csv", "id,text\n", keep=("id",))
    assert rows.num_rows == 0
    assert dict(rows.carried.schema) == {"id": rows.carried.schema["id"]}
    assert reading.frozen(folder / "a.csv").files[0].field_names == ("id", "text")


def test_nothing_but_blank_lines(reading: Reading, folder: Path) -> None:
    """A file without a header is no CSV (case I11)."""
    with pytest.raises(InputError, match="has no header"):
        reading.write(folder / "a.csv", "\n\r\n\n")


def test_without_header(reading: Reading, folder: Path) -> None:
    """Columns are called by their number, and the first line is a record."""
    rows = reading.write(folder / "a.csv", "1,甲\n2,乙\n", header=False, text=("column_1",), keep=("column_0",))
    assert rows.texts == ["甲", "乙"]
    assert rows.carried["column_0"].to_list() == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("id,title\n1,甲\n", {}, r"no column 'text' \(input.text\); its columns are: id, title"),
        ("id,text\n1,甲\n", {"keep": ("date",)}, r"no column 'date' \(input.keep\)"),
        ("text,id,text\n1,2,3\n", {}, "names 'text' more than once"),
        ('"text\n1', {}, r"a\.csv:1: a quote that opens here"),
        ("text\n1\n", {"keep": ("text", "text")}, "more than once"),
    ],
)
def test_columns_that_are_not_there(
    reading: Reading,
    folder: Path,
    text: str,
    changes: dict[str, tuple[str, ...]],
    message: str,
) -> None:
    """A wrong column name fails before anything is read, and says which there are."""
    with pytest.raises(InputError, match=message):
        reading.write(folder / "a.csv", text, **changes)


def test_several_text_columns(reading: Reading, folder: Path) -> None:
    """They are joined in the job's order; null parts are skipped, empty ones are not."""
    text = 'body,title\n正文,标题\n,只有标题\n只有正文,\n,\n"",标题\n'
    rows = reading.write(folder / "a.csv", text, text=("title", "body"), separator="|")
    assert rows.texts == ["标题|正文", "只有标题", "只有正文", "", "标题|"]


def test_files_may_differ_in_column_order(reading: Reading, folder: Path) -> None:
    """Columns are found by name in each file; others than the needed ones may differ."""
    (folder / "1.csv").write_text("id,text\n1,甲\n")
    (folder / "2.csv").write_text("x,text,id\nq,乙,2\n")
    rows = reading.rows(folder, keep=("id",))
    assert rows.texts == ["甲", "乙"]
    assert rows.carried["id"].to_list() == ["1", "2"]
    assert rows.source_files == ["1.csv", "2.csv"]


def test_keep_all(reading: Reading, folder: Path) -> None:
    """All columns in file order, the text too; a file with other columns is refused."""
    assert reading.write(folder / "1.csv", "id,text,x\n1,甲,\n", keep="all").carried.rows() == [("1", "甲", None)]
    (folder / "2.csv").write_text("id,text\n2,乙\n")
    with pytest.raises(InputError, match=r"2\.csv: no column 'x'"):
        reading.rows(folder, keep="all")
    (folder / "2.csv").write_text("id,text,x,y\n2,乙,1,2\n")
    with pytest.raises(InputError, match=r"2\.csv: has a column 'y' that .*1\.csv lacks"):
        reading.rows(folder, keep="all")


@pytest.mark.parametrize("delimiter", [None, ";", "，"])
def test_delimiters(reading: Reading, folder: Path, delimiter: str | None) -> None:
    """TSV has tabs by itself; any one character can be named, also one that Polars does not take."""
    mark = delimiter or "\t"
    rows = reading.write(folder / "a.tsv", f"id{mark}text\n1{mark}甲,乙\n", delimiter=delimiter)
    assert rows.texts == ["甲,乙"]


def test_blocks_end_by_bytes(reading: Reading, folder: Path) -> None:
    """Long texts do not make giant blocks."""
    text = "text\n" + ("长" * 300_000 + "\n") * 20
    assert reading.write(folder / "a.csv", text).num_rows == 20
    points = reading.frozen(folder / "a.csv").files[0].seek_points
    assert [point.row for point in points] == [0, 10]
    assert points[1].offset_bytes == 5 + 10 * 900_001
