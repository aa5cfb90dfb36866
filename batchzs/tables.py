"""Tables for a terminal, in which Chinese stands in line: such a character takes two columns.

Pure; text is made safe to show by the caller.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What stands for a missing label.
NO_LABEL = "(none)"

_WIDE = frozenset({"W", "F"})
#: Marks that stand over the character before them, and characters of no width.
_NARROWEST = frozenset({"Mn", "Me", "Cf"})


def display_width(text: str) -> int:
    """Columns that a text takes on a terminal.

    >>> display_width("体育 a"), display_width("e\u0301")
    (6, 1)
    """
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in _NARROWEST:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text up with spaces to a width.

    >>> padded("体育", 6) + "|", padded("体育", 6, right=True) + "|"
    ('体育  |', '  体育|')
    """
    spaces = " " * (width - display_width(text))
    return spaces + text if right else text + spaces


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    r"""Lay out a table: the first column and every one of words to the left, every one of numbers to the right.

    Args:
        header: the columns' names.
        rows: cells as text; `-` and the empty text are of any column.

    >>> print(*format_table(["label", "rows", "to"], [["体育", "1,024", "-"], ["b", "7", "财经"]]), sep="\n")
    label   rows  to
    体育   1,024  -
    b          7  财经
    """
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(display_width, column)) for column in columns]
    is_right = [place > 0 and all(_is_number(cell) for cell in column[1:]) for place, column in enumerate(columns)]
    return [
        "  ".join(
            padded(cell, width, right=right) for cell, width, right in zip(cells, widths, is_right, strict=True)
        ).rstrip()
        for cells in (header, *rows)
    ]


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell.strip("+-%").replace(",", "").replace(".", "", 1).isdecimal()


def percent(share: float | None, digits: int = 2) -> str:
    """Write a share.

    >>> percent(0.12345), percent(None)
    ('12.35%', '-')
    """
    return "-" if share is None else f"{share:.{digits}%}"


def decimal(number: float | None, digits: int = 4) -> str:
    """Write a number with a fixed count of decimals.

    >>> decimal(0.5), decimal(None)
    ('0.5000', '-')
    """
    return "-" if number is None else f"{number:.{digits}f}"
