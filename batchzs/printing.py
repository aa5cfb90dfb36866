"""The one place that prints: results on standard output, which may be closed, full, or read only in part.

Apart from `cli`, so that the modules of commands can share it without importing each other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable


def show(text: str) -> bool:
    """Put a result on standard output; a reader that went away or a full disk behind it undoes no work.

    Returns:
        Whether it was taken.
    """
    try:
        click.echo(text)
    except OSError as exc:
        logging.getLogger("batchzs").warning("standard output takes nothing: %s", exc.strerror)
        return False
    return True


def show_lines(lines: Iterable[str]) -> bool:
    """Put lines on standard output as they come, up to the first that it does not take.

    Returns:
        Whether all were taken.
    """
    return all(show(line) for line in lines)
