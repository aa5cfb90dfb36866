"""Guesses about files hold for what people have, and say so where nothing fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.first_job.guess import (
    Column,
    guess_delimiter,
    guess_encoding,
    guess_header,
    guess_kept,
    guess_text_column,
    split_records,
)
from tests.builders import PATIENT

SIMPLIFIED = "央行宣布下调存款准备金率，市场对此反应积极\n球队在主场取得胜利\n"
TRADITIONAL = "央行宣佈調降利率，市場對此反應積極\n球隊在主場取得勝利，這個消息讓人高興\n"


@pytest.mark.parametrize(
    ("text", "encoding", "guess"),
    [
        (SIMPLIFIED, "utf-8", "utf-8"),
        (SIMPLIFIED, "utf-8-sig", "utf-8"),
        (SIMPLIFIED, "utf-16", "utf-16"),
        (SIMPLIFIED, "gbk", "gb18030"),
        (SIMPLIFIED + "😀", "gb18030", "gb18030"),
        (TRADITIONAL, "big5", "big5"),
        (TRADITIONAL, "gb18030", "gb18030"),
        ("id,text\n1,plain\n", "ascii", "utf-8"),
    ],
)
def test_encodings_of_chinese_files(text: str, encoding: str, guess: str) -> None:
    """Also where a block ends inside a character."""
    assert guess_encoding([text.encode(encoding)]) == guess
    raw = text.rstrip("\n").encode(encoding)
    assert guess_encoding([raw, raw[:-1]]) == guess


def test_a_late_block_decides_too() -> None:
    """A file that begins with ASCII alone and goes on in GBK is not UTF-8."""
    assert guess_encoding([b"id,text\n" * 20, SIMPLIFIED.encode("gbk")]) == "gb18030"
    assert guess_encoding([b"\x00\x01\x02", b"\xff"]) is None


@given(st.binary(max_size=60), st.binary(max_size=60))
@PATIENT
def test_what_is_guessed_decodes(head: bytes, block: bytes) -> None:
    """Any bytes: an encoding that they are in, or none."""
    guess = guess_encoding([head, block])
    if guess is not None and guess != "utf-16":
        for raw in (head, block):
            assert all(_is_cut_off(raw, error) for error in _errors(raw, guess))


def _errors(raw: bytes, encoding: str) -> list[UnicodeDecodeError]:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError as exc:
        return [exc]
    return []


def _is_cut_off(raw: bytes, error: UnicodeDecodeError) -> bool:
    """Whether only the end of the last character is missing, which has at most four bytes."""
    return error.start >= len(raw) - 3


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_delimiters(delimiter: str) -> None:
    """Quoted fields with other delimiters, and line ends, in them."""
    rows = [["id", "标题"], ["1", '"a, b; c | d\te\nf"'], ["2", "乙"], ["3", "丙"]]
    text = "".join(delimiter.join(row) + "\n" for row in rows)
    assert guess_delimiter(text) == delimiter
    assert [len(record) for record in split_records(text, delimiter)] == [2] * 4


def test_lines_of_text_have_no_delimiter() -> None:
    """Commas in some sentences are no columns."""
    assert guess_delimiter("央行降息\n球队夺冠, 球迷欢呼\n你好\n") is None


@pytest.mark.parametrize(
    ("records", "is_header"),
    [
        ([["id", "text"], ["1", "甲"]], True),
        ([["编号", "标题"], ["1", "甲"]], True),
        ([["topic", "story"], ["财经", "央行宣布下调存款准备金率"]], True),
        ([["财经", "央行宣布下调存款准备金率"], ["体育", "球队在主场取得胜利"]], False),
        ([["1", "甲"], ["2", "乙"]], False),
        ([["a1", "新闻", "央行宣布降息"], ["a2", "新闻", "球队夺冠"]], False),
        ([["央行降息"], ["球队夺冠"]], False),
        ([["标题"], ["球队夺冠"]], True),
    ],
)
def test_headers(records: list[list[str]], is_header: bool) -> None:  # noqa: FBT001 - a parametrised answer
    """A first row that is like the others is none."""
    assert guess_header(records) is is_header


def test_the_text_is_the_column_with_long_distinct_texts() -> None:
    """Not the longest when that repeats, nor a link; a body before a title."""
    columns = [
        Column("doc_id", ("a" * 36, "b" * 36, "c" * 36), True),
        Column("url", ("https://a/" + "x" * 80, "https://b/" + "y" * 80, "https://c/" + "z" * 80), True),
        Column("来源", ("某某新闻网站的很长的名字" * 9,) * 3, True),
        Column("title", ("央行降息", "球队夺冠", "新车上市"), True),
        Column("正文", ("央行今天宣布降息" * 3, "球队昨夜夺冠" * 3, None), True),
        Column("views", ("1" * 200, "2" * 200, "3" * 200), False),
    ]
    found = guess_text_column(columns)
    assert found is not None
    assert found.name == "正文"
    assert guess_kept(columns, "正文") == ["doc_id"]
    assert guess_text_column([Column("n", ("1",), False), Column("empty", (None, ""), True)]) is None
