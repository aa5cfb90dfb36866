"""Tables for a terminal, in which Chinese stands in line: such a character takes two columns.

Pure; text is made safe to show by the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchzs.display_width import display_width, padded

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What stands for a missing label.
NO_LABEL = "(none)"


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
