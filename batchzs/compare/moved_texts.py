"""The texts of the rows that moved most between two outputs, from the input where it is there and unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from batchzs.errors import InputError
from batchzs.finished import input_file_now
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import InputSet, RowSpan
from batchzs.prepare import read_spec

if TYPE_CHECKING:
    from batchzs.compare.comparison import Comparison
    from batchzs.finished import FinishedRun
    from batchzs.inputs.rows import InputFile


def read_moved_texts(result: Comparison) -> None:
    """Put its text beside each row; a file that cannot be read as it was is named in `unread`.

    The second output's input is asked where the first one's is gone.
    """
    wanted: dict[str, set[int]] = {}
    for row in result.most_moved:
        wanted.setdefault(row.source_file, set()).add(row.source_row)
    texts: dict[tuple[str, int], str] = {}
    for name, rows in wanted.items():
        for run in (result.old, result.new):
            file = next(file for file in run.inputs.files if file.found.name == name)
            try:
                texts |= {(name, row): text for row, text in _texts(run, file, sorted(rows)).items()}
            except InputError as exc:
                result.unread.setdefault(name, str(exc))
            else:
                result.unread.pop(name, None)
                break
    result.most_moved = [replace(row, text=texts.get((row.source_file, row.source_row))) for row in result.most_moved]


def _texts(run: FinishedRun, file: InputFile, rows: list[int]) -> dict[int, str]:
    inputs = InputSet((input_file_now(file),), ())
    found = read_rows(read_spec(run.job), inputs, [RowSpan(0, row, row + 1) for row in rows])
    return dict(zip(rows, found.texts, strict=True))
