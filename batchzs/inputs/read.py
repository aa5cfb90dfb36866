"""The second pass: one shard's rows, from the files that the first pass froze.

Positions are given here, from the frozen files and the wanted spans; no engine numbers rows (its order may change).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from batchzs.errors import InputError
from batchzs.inputs.csvfile import read_csv_rows
from batchzs.inputs.dtypes import dtype_from_text
from batchzs.inputs.jsonl import read_jsonl_rows
from batchzs.inputs.parquetfile import read_parquet_rows
from batchzs.inputs.rows import OK, ShardRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from batchzs.inputs.pieces import Piece
    from batchzs.inputs.rows import InputFile, InputSet, RowSpan
    from batchzs.inputs.spec import ReadSpec

#: What Hive and Spark call the folder of rows whose partition value is null.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def read_rows(
    spec: ReadSpec, input_set: InputSet, spans: Sequence[RowSpan], on_piece: Callable[[], None] = lambda: None
) -> ShardRows:
    """Read the rows of some spans.

    Args:
        spec: How the files are written; as in the first pass.
        input_set: The frozen input.
        spans: Within one file ascending and disjoint; maybe very many of single rows.
        on_piece: Called now and then; what it raises ends the reading.

    Returns:
        The rows, in the spans' order.

    Raises:
        InputError: A file is not what it was when it was frozen.
    """
    texts: list[str] = []
    statuses: list[str] = []
    reasons: list[str | None] = []
    source_files: list[str] = []
    source_rows: list[np.ndarray] = []
    carried: list[pl.DataFrame] = []
    schema = {column.name: dtype_from_text(column.dtype) for column in input_set.carried}
    for file_index, group in groupby(spans, key=lambda span: span.file_index):
        file = input_set.files[file_index]
        rows = np.concatenate([np.arange(span.start, span.stop, dtype=np.int64) for span in group])
        if not len(rows):
            continue
        _check_rows(file, rows)
        _refuse_changed(file)
        num_before = len(texts)
        for piece in _pieces(spec, file, rows, schema):
            on_piece()
            texts += piece.texts
            problems = [piece.problems.get(index) for index in range(len(piece.texts))]
            statuses += [OK if problem is None else problem.status for problem in problems]
            reasons += [None if problem is None else problem.reason for problem in problems]
            if schema:
                carried.append(_with_partitions(piece, file))
        if len(texts) - num_before != len(rows):
            raise InputError(f"{file.found.path}: asked for {len(rows)} rows, found {len(texts) - num_before}")
        source_files += [file.found.name] * len(rows)
        source_rows.append(rows)
    return ShardRows(
        texts=texts,
        statuses=statuses,
        reasons=reasons,
        carried=pl.concat([pl.DataFrame(schema=schema), *carried]),
        source_files=source_files,
        source_rows=np.concatenate([np.empty(0, dtype=np.int64), *source_rows]),
    )


def _pieces(spec: ReadSpec, file: InputFile, rows: np.ndarray, schema: dict[str, pl.DataType]) -> Iterator[Piece]:
    from_folders = {key for key, _ in file.found.partitions}
    own = {name: dtype for name, dtype in schema.items() if name not in from_folders}
    match file.found.format:
        case "csv" | "tsv":
            return read_csv_rows(spec, file, rows, list(own))
        case "jsonl":
            return read_jsonl_rows(spec, file, rows, own)
        case "parquet":
            return read_parquet_rows(spec, file, rows, own)


def _with_partitions(piece: Piece, file: InputFile) -> pl.DataFrame:
    """Add the columns that come from folder names, which are the last carried ones."""
    columns = [
        pl.repeat(None if value == _HIVE_NULL else value, len(piece.texts), dtype=pl.String, eager=True).alias(key)
        for key, value in file.found.partitions
    ]
    return piece.carried.hstack(columns) if piece.carried.width else pl.DataFrame(columns)


def _check_rows(file: InputFile, rows: np.ndarray) -> None:
    if rows[0] < 0 or rows[-1] >= file.num_rows or (len(rows) > 1 and np.diff(rows).min() <= 0):
        raise ValueError(f"spans of {file.found.name} are not ascending within its {file.num_rows} rows")


def _refuse_changed(file: InputFile) -> None:
    found = file.found
    try:
        status = found.path.stat()
    except OSError as exc:
        raise InputError(f"{found.path}: cannot be read any more: {exc.strerror}") from exc
    if (status.st_size, status.st_mtime_ns) != (found.size_bytes, found.mtime_ns):
        raise InputError(f"{found.path}: has changed while the run went on; the same command checks its content")
