"""The types that input stages hand on: found files, frozen files, spans of rows, one shard's rows.

Types only. A row is known by its position, (source file, 0-based record number in that file), and by nothing else:
ids of the user's may repeat or be null.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import polars as pl

InputFormat = Literal["parquet", "csv", "tsv", "jsonl"]

#: Statuses that a reader gives a row. `ok` here means readable; that a readable text may turn out to have no tokens of
#: its own (`empty`) is known only after tokenising.
OK = "ok"
BAD_RECORD = "bad_record"  # ragged CSV record, stray characters after a closing quote, JSON that does not parse
BAD_ENCODING = "bad_encoding"  # bytes that are not text in the job's encoding
BAD_TYPE = "bad_type"  # a JSON value where a text was expected, and it is no string


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One input file as discovery lists it, before anything but its metadata was read."""

    path: Path  # absolute, to open
    name: str  # relative to the input's root, "/" as separator: the `source_file` column
    format: InputFormat
    size_bytes: int
    mtime_ns: int
    partitions: tuple[tuple[str, str], ...]  # key=value folder names, in path order; empty unless the job keeps them


@dataclass(frozen=True, slots=True)
class SeekPoint:
    """Where a record begins in a text file, so that a reader can start there."""

    row: int  # 0-based record number (the header is no record)
    offset_bytes: int  # of the record's first byte in the raw file
    line: int  # 1-based physical line number of the record's first line


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file as the first pass froze it."""

    found: FoundFile
    digest: str  # of the whole file's bytes
    num_rows: int
    num_bad_rows: int
    seek_points: tuple[SeekPoint, ...]  # ascending; none for Parquet, which finds rows by itself
    bad_blocks: tuple[int, ...]  # indices into seek_points of the blocks that need the line-aware reader
    field_names: tuple[str, ...]  # columns in file order


@dataclass(frozen=True, slots=True)
class CarriedColumn:
    """A column that goes from input to output, with the one type it has in every shard."""

    name: str
    dtype: str  # a Polars type written so that `dtype_from_text` reads it back


@dataclass(frozen=True, slots=True)
class InputSet:
    """The frozen input: files in their stated natural order, and the carried columns' types."""

    files: tuple[InputFile, ...]
    carried: tuple[CarriedColumn, ...]

    @property
    def num_rows(self) -> int:
        """Rows over all files, quarantined ones included."""
        return sum(file.num_rows for file in self.files)

    @property
    def digest(self) -> str:
        """SHA-256 over every file's name, content and rows: equal where the input is the same, wherever it lies."""
        parts = [f"{file.found.name}\0{file.digest}\0{file.num_rows}\n" for file in self.files]
        return hashlib.sha256("".join(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Rows `start` to `stop` (exclusive) of one file of an `InputSet`."""

    file_index: int
    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        """How many rows the span covers."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class ShardRows:
    """One shard's rows in input order. All lists and frames have the same length, `num_rows`."""

    texts: list[str]  # joined text columns; "" where null, or where the row is quarantined
    statuses: list[str]  # OK or one of the quarantine words
    reasons: list[str | None]  # null where OK; file, line, what was wrong; never the text
    carried: pl.DataFrame  # the carried columns, typed as InputSet.carried says; maybe no columns
    source_files: list[str]
    source_rows: np.ndarray  # (rows,) int64, 0-based record number in the row's file

    @property
    def num_rows(self) -> int:
        """Rows of the shard, quarantined ones included."""
        return len(self.texts)
