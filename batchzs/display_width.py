"""Text in the columns of a terminal: a Chinese character takes two.

Pure; what acts on a terminal is made safe by `escape` first.
"""

from __future__ import annotations

import unicodedata


def display_width(text: str) -> int:
    r"""Columns that a text takes.

    >>> display_width("财经 ok"), display_width("e\u0301")
    (7, 1)
    """
    return sum(_width(character) for character in text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text up with spaces to `width` columns.

    >>> padded("财经", 6) + "|", padded("财经", 6, right=True) + "|"
    ('财经  |', '  财经|')
    """
    spaces = " " * (width - display_width(text))
    return spaces + text if right else text + spaces


def cut(text: str, width: int) -> str:
    """Shorten a text to at most `width` columns, with a mark at its end where it was cut.

    >>> cut("这篇文章的标题是财经", 12)
    '这篇文章的…'
    """
    if display_width(text) <= width:
        return text
    kept, used = "", 1  # the mark's own column
    for character in text:
        used += _width(character)
        if used > width:
            break
        kept += character
    return kept + "…"


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` columns, at spaces where there are any.

    >>> wrapped("one two three", 8)
    ['one two', 'three']
    """
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if display_width(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        line = word
        while display_width(line) > width:
            head = _head(line, width)
            lines.append(head)
            line = line[len(head) :]
    return [*lines, line] if line or not lines else lines


def _head(text: str, width: int) -> str:
    """As much of a text's beginning as fits, at least one character."""
    stop = used = 0
    while stop < len(text) and used + _width(text[stop]) <= width:
        used += _width(text[stop])
        stop += 1
    return text[: max(stop, 1)]


def _width(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
