"""The rows of an output that were quarantined: where they lie, and why, and on request what the input has there.

Goes through the shards that are there one after the other, so it works mid-run and in the memory of one shard. Texts
are other people's: they are read from the input only when asked for, and never from the output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from batchzs.errors import DifferenceError
from batchzs.input_texts import InputTexts
from batchzs.output import NON_FINITE
from batchzs.records import SOUND_STATUSES
from batchzs.verify.shard import BROKEN

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
    """

    run: FinishedRun
    with_texts: bool
    num_missing: int
    _texts: InputTexts

    def __init__(self, run: FinishedRun, *, with_texts: bool = False) -> None:
        self.run = run
        self.with_texts = with_texts
        self.num_missing = 0
        self._texts = InputTexts(run)

    @property
    def unread(self) -> dict[str, str]:
        """For each input file that cannot be read as it was, why."""
        return self._texts.unread

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
        # A row without a finite score was read like any other; a damaged one has no text but its record.
        readable = [row for row in rows if row.status == NON_FINITE]
        texts = self._texts.read(readable, [row for row in rows if row.status != NON_FINITE])
        for row in rows:
            yield replace(row, text=texts.get((row.source_file, row.source_row)))
