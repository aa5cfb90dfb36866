"""The rows of an output that were quarantined: where they lie, and why, and on request what the input has there.

Goes through the shards that are there one after the other, so it works mid-run and in the memory of one shard. Texts
are other people's: they are read from the input only when asked for, and never from the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from batchzs.errors import DifferenceError, InputError
from batchzs.finished import input_file_now
from batchzs.inputs.raw import read_raw_records
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import InputSet, RowSpan
from batchzs.output import NON_FINITE
from batchzs.prepare import read_spec
from batchzs.records import SOUND_STATUSES
from batchzs.verify_shard import BROKEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from batchzs.finished import FinishedRun

_COLUMNS = ("source_file", "source_row", "status", "reason")


@dataclass(frozen=True, slots=True)
class BadRow:
    """A quarantined row."""

    source_file: str
    source_row: int
    status: str
    reason: str | None
    text: str | None = None  # as the input has it; of a damaged record all its lines; None where it was not read


@dataclass(slots=True)
class Quarantine:
    """Goes through an output's quarantined rows.

    Attributes:
        run: the output.
        with_texts: read texts from the input as well.
        num_missing: shards that are not there, counted so far.
        unread: for each input file that cannot be read as it was, why.
    """

    run: FinishedRun
    with_texts: bool
    num_missing: int
    unread: dict[str, str]

    def __init__(self, run: FinishedRun, *, with_texts: bool = False) -> None:
        self.run = run
        self.with_texts = with_texts
        self.num_missing = 0
        self.unread = {}

    def rows(self) -> Iterator[BadRow]:
        """Yield the rows of every shard that is there, in input order.

        Raises:
            DifferenceError: a shard is damaged.
        """
        for shard in self.run.shards:
            rows = self._rows_of(shard.index)
            yield from self._with_texts(rows) if self.with_texts else rows

    def _rows_of(self, index: int) -> list[BadRow]:
        path = self.run.paths.shard(index)
        rows: list[BadRow] = []
        try:
            with pq.ParquetFile(path) as parquet:
                for batch in parquet.iter_batches(columns=[self.run.column(name) for name in _COLUMNS]):
                    columns = [batch.column(self.run.column(name)) for name in _COLUMNS]
                    is_bad = ~np.isin(np.array(columns[2].to_pylist(), dtype=object), SOUND_STATUSES)
                    chosen = [column.filter(is_bad).to_pylist() for column in columns]
                    rows += [BadRow(*values) for values in zip(*chosen, strict=True)]
        except FileNotFoundError:
            self.num_missing += 1
        except BROKEN as exc:
            raise DifferenceError(
                f"{path}: cannot be read as a shard of this run ({type(exc).__name__}): `batchzs verify` says more"
            ) from exc
        return rows

    def _with_texts(self, rows: Sequence[BadRow]) -> Iterator[BadRow]:
        for name, group in groupby(rows, key=lambda row: row.source_file):
            of_file = list(group)
            texts = self._texts(name, of_file)
            for row in of_file:
                yield BadRow(row.source_file, row.source_row, row.status, row.reason, texts.get(row.source_row))

    def _texts(self, name: str, rows: Sequence[BadRow]) -> dict[int, str]:
        """Texts of some rows of one file by their numbers; none where the file is no longer what it was."""
        inputs, spec = self.run.inputs, read_spec(self.run.job)
        index = next((place for place, file in enumerate(inputs.files) if file.found.name == name), None)
        if index is None:
            self.unread[name] = "is none of the run's input files"
            return {}
        # A row without a finite score was read like any other; a damaged one has no text but its record.
        readable = [row.source_row for row in rows if row.status == NON_FINITE]
        damaged = [row.source_row for row in rows if row.status != NON_FINITE]
        texts: dict[int, str] = {}
        try:
            file = input_file_now(inputs.files[index])
            if readable:
                spans = [RowSpan(0, row, row + 1) for row in readable]
                found = read_rows(spec, InputSet((file,), ()), spans)
                texts |= dict(zip(readable, found.texts, strict=True))
            if damaged:
                texts |= read_raw_records(spec, file, damaged)
        except (InputError, ValueError) as exc:  # ValueError: row numbers that a damaged shard made up
            self.unread[name] = str(exc)
        return texts
