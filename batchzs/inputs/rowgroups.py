"""Where a Parquet file's row groups lie, and files with huge ones, read batch by batch with pyarrow.

Groups of an ordinary size are read some together, each once: a group that is cut between two reads is read twice.

Polars holds a row group's columns whole, in both of its engines: one group of 300 MB made it take 660 MB. pyarrow
decodes page by page and stays below 100 MB. It starts at the beginning of a row group each time, so that files with
groups of an ordinary size are left to Polars, which is better at finding rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

#: Decoded size of the needed columns of one row group, above which it is read batch by batch.
MAX_GROUP_BYTES = 64 * 2**20

#: What pyarrow raises on damaged files; the last one where a column's name in a footer is no text any more.
ARROW_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError)

#: Decoded size of the needed columns from which on groups that are read together are enough.
_STRETCH_BYTES = 8 * 2**20
_BUFFER_BYTES = 2**20
_BATCH_BYTES = 4 * 2**20
_MAX_BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring row groups, to be read together: rows `start` to `stop`."""

    start: int
    stop: int
    end_byte: int  # all of their pages lie before it
    largest_bytes: int  # decoded size of the needed columns of the largest group

    @property
    def is_huge(self) -> bool:
        """Whether a group is too large to be decoded whole."""
        return self.largest_bytes > MAX_GROUP_BYTES


def find_stretches(path: Path, columns: Collection[str]) -> list[Stretch]:
    """Find how a file's row groups are best read: small ones together, none of them cut.

    Args:
        path: The file.
        columns: Top-level columns that are needed.

    Returns:
        All rows of the file, in order.
    """
    metadata = pq.read_metadata(path)
    stretches: list[Stretch] = []
    start = stop = end_byte = num_bytes = largest = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        chunks = [group.column(position) for position in range(group.num_columns)]
        group_bytes = sum(
            chunk.total_uncompressed_size
            for chunk in chunks
            # A nested column's path goes on after a dot; a dot in a plain name only makes the sum too large.
            if chunk.path_in_schema in columns or chunk.path_in_schema.split(".")[0] in columns
        )
        stop += group.num_rows
        end_byte = max([end_byte, *(chunk.data_page_offset + chunk.total_compressed_size for chunk in chunks)])
        num_bytes, largest = num_bytes + group_bytes, max(largest, group_bytes)
        if num_bytes >= _STRETCH_BYTES or index == metadata.num_row_groups - 1:
            stretches.append(Stretch(start, stop, end_byte, largest))
            start, num_bytes, largest = stop, 0, 0
    return stretches


def stream_batches(path: Path, columns: Collection[str]) -> Iterator[pl.DataFrame]:
    """Yield a file's rows in order, in small frames."""
    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
        for group in range(file.metadata.num_row_groups):
            yield from _group_batches(file, group, columns)


def stream_rows(path: Path, columns: Collection[str], rows: np.ndarray) -> Iterator[pl.DataFrame]:
    """Yield wanted rows of a file in order, in small frames.

    Args:
        path: The file.
        columns: Top-level columns; more may come.
        rows: (wanted,) int64, ascending row numbers.
    """
    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
        group_stop = 0
        for group in range(file.metadata.num_row_groups):
            start = group_stop
            group_stop += file.metadata.row_group(group).num_rows
            last = int(np.searchsorted(rows, group_stop))
            if last == int(np.searchsorted(rows, start)):
                continue
            for frame in _group_batches(file, group, columns):
                in_frame = rows[slice(*np.searchsorted(rows, [start, start + frame.height]))]
                if len(in_frame):
                    yield frame[in_frame - start]
                start += frame.height
                if start > rows[last - 1]:
                    break


def _group_batches(file: pq.ParquetFile, group: int, columns: Collection[str]) -> Iterator[pl.DataFrame]:
    metadata = file.metadata.row_group(group)
    num_rows = _BATCH_BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)
    num_rows = min(max(num_rows, 1), _MAX_BATCH_ROWS)
    for batch in file.iter_batches(num_rows, row_groups=[group], columns=list(columns), use_threads=False):
        batch.validate(full=True)  # pyarrow does not check UTF-8 by itself, and Polars trusts what it is given
        yield pl.DataFrame(batch)
