"""Texts of an output's rows, read from the input by position: the output itself has none.

Where an input file is gone or has changed, its texts are left out, and why is kept.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from batchzs.errors import InputError
from batchzs.finished import input_file_now
from batchzs.inputs.raw import read_raw_records
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import InputSet, RowSpan
from batchzs.prepare import read_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from batchzs.finished import FinishedRun


class Place(Protocol):
    """What says where a row lies in the input."""

    @property
    def source_file(self) -> str:
        """The file's name in the output."""

    @property
    def source_row(self) -> int:
        """The record's number in the file."""


class InputTexts:
    """Reads texts from a run's input.

    Attributes:
        unread: for each input file that cannot be read as it was, why; filled in reading.
    """

    def __init__(self, run: FinishedRun) -> None:
        self.unread: dict[str, str] = {}
        self._spec = read_spec(run.job)
        self._files = {file.found.name: file for file in run.inputs.files}

    def read(self, readable: Iterable[Place], damaged: Iterable[Place] = ()) -> dict[tuple[str, int], str]:
        """Read the texts of some rows, in any order.

        Args:
            readable: rows that were read well: each one's text is what was scored.
            damaged: rows that have no text but their record as it stands in the input.

        Returns:
            Texts by file and row; none of the files in `unread`.
        """
        wanted = sorted(
            {(place.source_file, place.source_row, True) for place in readable}
            | {(place.source_file, place.source_row, False) for place in damaged}
        )
        texts: dict[tuple[str, int], str] = {}
        for name, group in groupby(wanted, key=lambda place: place[0]):
            rows = [(row, is_readable) for _, row, is_readable in group]
            try:
                found = self._read_file(
                    name,
                    [row for row, is_readable in rows if is_readable],
                    [row for row, is_readable in rows if not is_readable],
                )
            except (InputError, ValueError) as exc:  # ValueError: row numbers that a damaged shard made up
                self.unread[name] = str(exc)
            else:
                texts |= {(name, row): text for row, text in found.items()}
        return texts

    def _read_file(self, name: str, readable: list[int], damaged: list[int]) -> dict[int, str]:
        if name not in self._files:
            raise InputError("is none of the run's input files")
        file = input_file_now(self._files[name])
        texts: dict[int, str] = {}
        if readable:
            found = read_rows(self._spec, InputSet((file,), ()), [RowSpan(0, row, row + 1) for row in readable])
            texts |= dict(zip(readable, found.texts, strict=True))
        if damaged:
            texts |= read_raw_records(self._spec, file, damaged)
        return texts
