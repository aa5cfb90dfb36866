"""Guesses about a file from some of its bytes: encoding, delimiter, header, and which column holds the texts.

Pure. A guess is written into a job file with its reason, for a person to look at; a run guesses nothing.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DELIMITERS = (",", "\t", ";", "|")
#: Names that say what a column holds, in lower case.
_TEXT_NAMES = frozenset(
    {
        *("text", "title", "content", "headline", "body", "sentence", "comment", "message", "query", "question"),
        *("review", "summary", "abstract", "description", "文本", "标题", "正文", "内容", "评论", "摘要", "问题"),
        *("描述", "新闻", "句子", "留言", "微博"),
    }
)
_ID_NAME = re.compile(
    r"(?:^|[_\-. ])(?:id|uid|uuid|guid|key|no|url|link)$|[a-z](?:Id|ID)$|编号$|序号$|单号$|主键$|链接$", re.IGNORECASE
)
#: The most frequent Chinese characters, simplified and traditional: text has them, and wrongly decoded text has not.
_COMMON = frozenset(
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行"
    "学法所民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本去把性好应开它合还因由其些然"
    "前外天政四日那社义事平形相全表间样与关各重新线内数正心反你明看原又么利比或但质气第向道命此变条只没结解问意建月公无"
    "系军很情者最立代想已通并提直题程展五果料象员位入常文总次品式活设及管特件长求老头基资边流路级少图山统接知较将组见计"
    "這個們為會來說對時國學發經過還後開關與種產現實點進動電長見題問應當樣條頭員運氣書報車場馬風門東無業義將設計論機話讓"
    "，。！？、：；“”《》（）"
)
_CHINESE = re.compile("[\u3400-\u9fff\uf900-\ufaff\u3000-\u303f\uff00-\uffef\ue000-\uf8ff]")
_MOSTLY_DISTINCT = 0.5
_ID_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Column:
    """A column and what a sample of rows has there; None for no value."""

    name: str
    values: tuple[str | None, ...]
    is_text: bool  # whether values are texts in the file, and no numbers or dates

    @property
    def present(self) -> list[str]:
        """The values that are there."""
        return [value for value in self.values if value]

    @property
    def mean_characters(self) -> float:
        """How long its values are."""
        present = self.present
        return sum(map(len, present)) / len(present) if present else 0.0

    @property
    def distinct_share(self) -> float:
        """How much of what is there is there once."""
        present = self.present
        return len(set(present)) / len(present) if present else 0.0


def guess_encoding(blocks: Sequence[bytes]) -> str | None:
    r"""Guess how text is encoded.

    Args:
        blocks: the file's first bytes and some from its middle, each beginning where a line does; the ends may be cut.

    Returns:
        The name for a job file, or None where nothing fits.

    >>> guess_encoding(["标题\n央行的决定".encode("gbk")]), guess_encoding([b"plain"])
    ('gb18030', 'utf-8')
    """
    head = blocks[0] if blocks else b""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if any(b"\0" in block for block in blocks):
        return None
    if _decoded(blocks, "utf-8") is not None:
        return "utf-8"
    best: tuple[float, str] | None = None
    for encoding in ("gb18030", "big5"):
        text = _decoded(blocks, encoding)
        if text is None:
            continue
        chinese = _CHINESE.findall(text)
        share = sum(character in _COMMON for character in chinese) / max(len(chinese), 1)
        if best is None or share > best[0]:
            best = (share, encoding)
    return best[1] if best else None


def guess_delimiter(text: str) -> str | None:
    r"""Guess what separates the fields of delimited lines: what gives all records as many, and more than one.

    Args:
        text: whole lines, the last one perhaps cut.

    Returns:
        The character; None where the lines seem to be one field each.

    >>> guess_delimiter('id;text\n1;"a;b, c"\n2;d, e, f\n')
    ';'
    """
    best: tuple[float, int, str] | None = None
    for delimiter in DELIMITERS:
        records = split_records(text, delimiter)
        if not records or len(records[0]) < 2:
            continue
        width = len(records[0])
        share = sum(len(record) == width for record in records) / len(records)
        if share > 0.8 and (best is None or (share, width) > best[:2]):
            best = (share, width, delimiter)
    return best[2] if best else None


def split_records(text: str, delimiter: str, quote: str | None = '"') -> list[list[str]]:
    """Split the beginning of a file into records, leaving blank lines and, where there are several, the last one out.

    Args:
        text: the beginning, cut anywhere.
        delimiter: between fields.
        quote: around fields, or None.
    """
    lines = io.StringIO(text, newline="")
    if quote is None:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quotechar=quote)
    records: list[list[str]] = []
    with contextlib.suppress(csv.Error):  # a field beyond csv's limit, which an unclosed quote makes
        records.extend(record for record in reader if record)
    return records[:-1] if len(records) > 2 and not text.endswith("\n") else records


def guess_header(records: Sequence[Sequence[str]]) -> bool:
    """Guess whether the first record names columns: short, distinct, no number among them, and unlike what follows.

    >>> guess_header([["id", "标题"], ["1", "央行降息"]]), guess_header([["1", "央行降息"], ["2", "球队夺冠"]])
    (True, False)
    """
    first, *others = records
    names = [name.strip() for name in first]
    recurs = any(name == one[place].strip() for one in others for place, name in enumerate(names) if place < len(one))
    if recurs or any(_is_number(name) for name in names):
        return False
    if any(name.lower() in _TEXT_NAMES or _ID_NAME.search(name) for name in names):
        return True
    if not all(names) or len(set(names)) < len(names) or any(len(name) > 40 for name in names):
        return False
    if not others:
        return len(names) > 1
    longest = max(range(len(names)), key=lambda place: sum(len(one[place]) for one in others if place < len(one)))
    mean = sum(len(one[longest]) for one in others if longest < len(one)) / len(others)
    return len(names) > 1 and len(names[longest]) * 2 <= mean


def guess_text_column(columns: Sequence[Column]) -> Column | None:
    """Guess which column holds the texts: the one of texts that are longest on average and mostly distinct.

    >>> guess_text_column([Column("id", ("1", "2"), True), Column("t", ("央行降息", "球队夺冠"), True)]).name
    't'
    """
    texts = [column for column in columns if column.is_text and column.present]
    distinct = [column for column in texts if column.distinct_share >= _MOSTLY_DISTINCT]
    readable = [column for column in distinct if not _ID_NAME.search(column.name)]
    # A name decides only between columns of about one length: a title column is not the text where there is a body.
    return max(
        readable or distinct or texts,
        key=lambda column: column.mean_characters * (1.5 if column.name.strip().lower() in _TEXT_NAMES else 1.0),
        default=None,
    )


def guess_kept(columns: Sequence[Column], text: str) -> list[str]:
    """Guess which columns tell rows apart: named like an id, and short.

    >>> guess_kept([Column("news_id", ("1", "2"), False), Column("t", ("甲", "乙"), True)], "t")
    ['news_id']
    """
    return [
        column.name
        for column in columns
        if column.name != text and _ID_NAME.search(column.name) and column.mean_characters <= _ID_CHARACTERS
    ]


def _decoded(blocks: Sequence[bytes], encoding: str) -> str | None:
    parts = []
    for block in blocks:
        decoder = codecs.getincrementaldecoder(encoding)("strict")
        try:
            parts.append(decoder.decode(block, final=False))  # the end may lie inside a character
        except UnicodeDecodeError:
            return None
    return "".join(parts)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?[\d.,/:\- ]+", text) is not None
