"""What the readers of single formats hand to the stages that freeze and read the whole input.

Types, and the few steps that every format takes alike. No format's rules are here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.counted import counted
from batchzs.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import polars as pl

    from batchzs.inputs.rows import FoundFile, SeekPoint
    from batchzs.inputs.spec import ReadSpec

logger = logging.getLogger(__name__)

#: Records of one block of a text file: small enough to seek well, large enough that a call to Polars pays.
BLOCK_RECORDS = 10_000
#: A block also ends here, so that long texts do not make blocks that fill the memory.
BLOCK_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class RowProblem:
    """Why a row is quarantined."""

    status: str  # one of the quarantine words in `rows`
    reason: str  # file, line, what was wrong; never the text


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive wanted rows of one file, in order."""

    texts: list[str]
    problems: dict[int, RowProblem]  # by index into `texts`
    carried: pl.DataFrame  # without the columns that come from folder names


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """What the first pass learned of one file's records."""

    digest: str
    num_rows: int
    num_bad_rows: int
    seek_points: tuple[SeekPoint, ...]
    bad_blocks: tuple[int, ...]
    field_names: tuple[str, ...]


class BadRowTally:
    """Counts one file's bad rows in the first pass, and stops it where the job or plain sense says so.

    A file of which more than half of the first hundred records are bad is not a file with bad rows: it is in another
    encoding or of another shape, and it is refused before anything is scored.
    """

    _HEAD_RECORDS = 100
    _MIN_RECORDS = 50  # below it, damage of single records is believed; a wrong encoding shows in one record already

    def __init__(self, spec: ReadSpec, undecodable: str, hint: Callable[[], str]) -> None:
        """Start counting.

        Args:
            spec: Says whether bad rows are allowed at all.
            undecodable: The status of rows that the job's encoding cannot decode.
            hint: What to add where such rows stop the pass; asked for only then.
        """
        self._fail = spec.on_bad_rows == "fail"
        self._undecodable = undecodable
        self._hint = hint
        self._head_checked = False
        self._first_reason = ""
        self.num_bad = 0

    def add_block(self, problems: dict[int, RowProblem], num_records: int) -> None:
        """Count one block's problems, by their index in the block, and raise where the file is to be refused."""
        self.num_bad += len(problems)
        if problems and not self._first_reason:
            first = problems[min(problems)]
            self._first_reason = first.reason + (self._hint() if first.status == self._undecodable else "")
            if self._fail:
                raise InputError(f"{self._first_reason} (the job says on_bad_rows: fail)")
        if not self._head_checked and num_records:
            self._head_checked = True  # the first block of a file has its first hundred records
            self._check_head(problems, min(num_records, self._HEAD_RECORDS))

    def log(self) -> None:
        """Say how many rows were bad, if any, and why the first one was."""
        if self.num_bad:
            logger.warning(
                "%s will be quarantined; the first: %s", counted(self.num_bad, "bad row"), self._first_reason
            )

    def _check_head(self, problems: dict[int, RowProblem], num_head: int) -> None:
        head = [problems[index] for index in sorted(problems) if index < num_head]
        undecodable = [problem for problem in head if problem.status == self._undecodable]
        if 2 * len(undecodable) > num_head:
            raise InputError(
                f"{undecodable[0].reason}, and so are {len(undecodable)} of the first {num_head} records{self._hint()}",
            )
        if num_head >= self._MIN_RECORDS and 2 * len(head) > num_head:
            raise InputError(
                f"{head[0].reason}, and {len(head)} of the first {num_head} records are damaged: is the file of the"
                " format that the job says?",
            )


def require_columns(found: FoundFile, names: Sequence[str], needed: Iterable[str], *, role: str) -> None:
    """Refuse a file that lacks a needed column.

    Args:
        found: The file.
        names: Its columns.
        needed: Columns that have to be among them.
        role: What the columns are needed for, as the job calls it.

    Raises:
        InputError: One is missing; the message lists the columns that are there.
    """
    for name in needed:
        if name not in names:
            raise InputError(
                f"{found.path}: no column {name!r} ({role}); its columns are: {list_names(names)}", key=role
            )


def list_names(names: Sequence[str], limit: int = 50) -> str:
    """Write out names for a message, cut where there are very many.

    >>> list_names(["id", "text"])
    'id, text'
    >>> list_names(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
