"""Bytes that are text in the job's encoding, and bytes that are not."""

from __future__ import annotations

import codecs
import logging
import re
from typing import TYPE_CHECKING

import pytest

from batchzs.errors import InputError
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import BAD_ENCODING, OK, RowSpan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.inputs.conftest import Reading

TEXT = 'id,text\r\nn1,央行宣布降准\r\nn2,"第一行\n第二行,""引号"""\r\nn3,屏幕6.1" 手机\r\nn4,一ਅ一\r\n'
EXPECTED = ["央行宣布降准", '第一行\n第二行,"引号"', '屏幕6.1" 手机', "一ਅ一"]  # U+0A05 has the byte of a line feed


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("utf-8", TEXT.encode()),
        ("utf-8", codecs.BOM_UTF8 + TEXT.encode()),
        ("utf-8-sig", TEXT.encode()),
        ("UTF8", codecs.BOM_UTF8 + TEXT.encode()),
        ("gb18030", TEXT.encode("gb18030")),
        ("gb18030", ("\ufeff" + TEXT).encode("gb18030")),
        ("utf-16", TEXT.encode("utf-16")),
        ("utf-16", TEXT.encode("utf-16-le")),
        ("utf-16", codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be")),
        ("utf-16-le", codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le")),
        ("utf-16-be", TEXT.encode("utf-16-be")),
        ("utf-32", TEXT.encode("utf-32")),
    ],
)
def test_encodings_and_marks(reading: Reading, folder: Path, encoding: str, content: bytes) -> None:
    """With and without a byte-order mark, every encoding gives the same rows (cases I3, I4)."""
    rows = reading.write(folder / "a.csv", content, encoding=encoding, keep=("id",))
    assert rows.texts == EXPECTED
    assert rows.carried["id"].to_list() == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("encoding", ["gbk", "big5"])
def test_clean_blocks_of_other_encodings(reading: Reading, folder: Path, encoding: str) -> None:
    """A file without oddities is read by Polars after it is written anew in UTF-8; every span can be reached."""
    content = "id,text\n" + "".join(f"{row},第{row}行 功蓋\n" for row in range(25_000))
    path = folder / "a.csv"
    path.write_bytes(content.encode(encoding))
    spec = reading.spec(path, encoding=encoding)
    frozen = reading.frozen(path, encoding=encoding)
    assert frozen.files[0].bad_blocks == ()
    assert len(frozen.files[0].seek_points) == 3
    rows = read_rows(spec, frozen, [RowSpan(0, 9_999, 10_001), RowSpan(0, 24_999, 25_000)])
    assert rows.texts == ["第9999行 功蓋", "第10000行 功蓋", "第24999行 功蓋"]


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16"])
def test_jsonl_in_other_encodings(reading: Reading, folder: Path, encoding: str) -> None:
    """JSON Lines are decoded like CSV, and the mark is no part of the first record (case I4)."""
    content = '{"text": "降准"}\n{"text": "涨停"}\n'
    assert reading.write(folder / "a.jsonl", content.encode(encoding), encoding=encoding).texts == ["降准", "涨停"]
    marked = codecs.BOM_UTF8 + content.encode()
    assert reading.write(folder / "b.jsonl", marked).texts == ["降准", "涨停"]


def test_files_with_and_without_a_mark(reading: Reading, folder: Path) -> None:
    """A set of files may mix them, with quoted headers too (case I4)."""
    (folder / "1.csv").write_bytes(codecs.BOM_UTF8 + '"text","id"\n甲,1\n'.encode())
    (folder / "2.csv").write_bytes("id,text\n2,乙\n".encode())
    assert reading.rows(folder).texts == ["甲", "乙"]
    lines = folder / "lines"
    lines.mkdir()
    (lines / "1.jsonl").write_bytes('{"text": "甲"}\n'.encode())
    (lines / "2.jsonl").write_bytes(codecs.BOM_UTF8 + '{"text": "乙"}\n'.encode())
    assert reading.rows(lines).texts == ["甲", "乙"]


def test_mark_inside_a_file(reading: Reading, folder: Path) -> None:
    """Only the file's first bytes are a mark: a record of a later block that begins like one keeps it."""
    content = "text,x\n" + "甲,1\n" * 10_000 + "\ufeff乙,2\n"
    assert reading.write(folder / "a.csv", content).texts[-1] == "\ufeff乙"


def test_broken_byte_is_quarantined(reading: Reading, folder: Path) -> None:
    """One broken character costs its row alone; file, line and offset are named, other fields carried (case I3)."""
    broken = b"\xe4\xbd\n"
    content = "id,text\nn1,降准\nn2,加".encode() + broken + "n3,涨停\n".encode()
    rows = reading.write(folder / "a.csv", content, keep=("id", "text"))
    assert rows.texts == ["降准", "", "涨停"]
    assert rows.statuses == [OK, BAD_ENCODING, OK]
    assert rows.reasons[1] == f"a.csv:3: the byte at offset {content.index(broken)} is not utf-8"
    assert rows.carried.rows() == [("n1", "降准"), ("n2", None), ("n3", "涨停")]
    assert reading.frozen(folder / "a.csv").files[0].num_bad_rows == 1


def test_broken_byte_before_a_quote(reading: Reading, folder: Path) -> None:
    """A lead byte without its second one does not take the quote or the line end after it along."""
    content = b'id,text\nn1,"\x81"\nn2,' + "降准\n".encode("gb18030") + b"n3,\x81\nn4,a\n"
    rows = reading.write(folder / "a.csv", content, encoding="gb18030", keep=("id",))
    assert rows.statuses == [BAD_ENCODING, OK, BAD_ENCODING, OK]
    assert rows.texts == ["", "降准", "", "a"]
    assert rows.carried["id"].to_list() == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_other_encoding_is_refused_with_a_hint(reading: Reading, folder: Path, name: str) -> None:
    """A GB18030 file read as UTF-8 fails up front and says what to set, not row by row (case I3)."""
    lines = "id,text\nn1,央行宣布降准\n" if name == "a.csv" else '{"text": "央行宣布降准"}\n'
    with pytest.raises(InputError, match=r"is not utf-8, and .* read well as gb18030: set input.encoding") as caught:
        reading.write(folder / name, lines.encode("gb18030"))
    assert "央行" not in str(caught.value)


def test_undecodable_header(reading: Reading, folder: Path) -> None:
    """A header that is no text is refused, with a hint."""
    with pytest.raises(InputError, match=r"a\.csv:1: the byte at offset 3 is not utf-8.*gb18030"):
        reading.write(folder / "a.csv", "id,标题\n1,甲\n".encode("gb18030"), text=("标题",))


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("utf-8", TEXT.encode("utf-16")),
        ("gb18030", codecs.BOM_UTF8 + TEXT.encode()),
        ("utf-16-be", TEXT.encode("utf-16")),
    ],
)
def test_mark_of_another_encoding(reading: Reading, folder: Path, encoding: str, content: bytes) -> None:
    """A file that says what it is, and is not what the job says, is refused."""
    with pytest.raises(InputError, match=r"a\.csv: begins with the byte-order mark of"):
        reading.write(folder / "a.csv", content, encoding=encoding)


@pytest.mark.parametrize("encoding", ["klingon", "rot13", "utf-7", "iso2022_jp", "hz", "cp037"])
def test_encodings_that_cannot_be_read(reading: Reading, folder: Path, encoding: str) -> None:
    """Unknown encodings, and those without lines that stand for themselves, are refused."""
    with pytest.raises(InputError, match=r"input\.encoding"):
        reading.write(folder / "a.csv", "text\n1\n", encoding=encoding)


def test_utf8_taken_for_another_encoding(reading: Reading, folder: Path) -> None:
    """A UTF-8 file read as GB18030 fails in every second row or so, and says what it is."""
    content = "text\n" + "降准降息\n央行宣\n新\n" * 3
    with pytest.raises(InputError, match=r"is not gb18030, and .* read well as utf-8"):
        reading.write(folder / "a.csv", content.encode(), encoding="gb18030")


def test_bad_rows_are_logged(reading: Reading, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first pass says how many rows of a file are bad, and why the first one is, without its text."""
    content = b"text\na\nb\n" + "降准\n".encode("gb18030")
    with caplog.at_level(logging.WARNING, logger="batchzs"):
        reading.write(folder / "a.csv", content)
    expected = r"1 bad row will .* a\.csv:4: the byte at offset 9 is not utf-8; its bytes read well as gb18030"
    assert re.search(expected, caplog.text)


def test_hint_with_fail(reading: Reading, folder: Path) -> None:
    """With `on_bad_rows: fail` the hint comes with the first bad row."""
    content = b"text\na\nb\nc\n" + "降准\n".encode("gb18030")
    with pytest.raises(InputError, match=r"a\.csv:5: .*read well as gb18030.*on_bad_rows: fail"):
        reading.write(folder / "a.csv", content, on_bad_rows="fail")
