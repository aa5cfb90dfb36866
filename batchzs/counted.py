"""Numbers of things in messages: one row, two rows."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Write how many of something there are.

    Args:
        number: how many.
        what: one of them, in the singular; an s makes it the plural.

    >>> counted(1, "row"), counted(0, "row"), counted(1234, "new file")
    ('1 row', '0 rows', '1,234 new files')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
