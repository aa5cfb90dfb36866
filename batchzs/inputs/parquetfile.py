"""Parquet files: schemas of all files first, then the two passes over one file.

Polars reads one file at a time, with the path taken literally and no folder names guessed at: scans of several files
make the result depend on their order (pola-rs/polars#24050), fail on columns nobody selected, and do not name the
file (#12210). A file's rows are known from its footer, and counted again while decoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import polars.selectors as cs

from batchzs.errors import InputError
from batchzs.inputs.dtypes import common_dtype, dtype_to_text, normalised
from batchzs.inputs.pieces import Piece, ScannedFile, require_columns
from batchzs.inputs.rowgroups import ARROW_BROKEN, find_stretches, stream_batches, stream_rows
from batchzs.inputs.textlines import HashingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from batchzs.inputs.rows import FoundFile, InputFile
    from batchzs.inputs.spec import ReadSpec

#: Rows handed out at a time.
_BATCH_ROWS = 32_768
_BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException, *ARROW_BROKEN)

Schema = dict[str, pl.DataType]


def read_schema(found: FoundFile) -> Schema:
    """Read the columns and their types from a file's footer.

    Raises:
        InputError: It has no readable footer.
    """
    try:
        return dict(_scan(found).collect_schema())
    except _BROKEN as exc:
        raise InputError(f"{found.path}: is not a complete Parquet file: {str(exc).splitlines()[0]}") from exc


def check_text_columns(spec: ReadSpec, found: FoundFile, schema: Schema) -> None:
    """Refuse a file whose text columns are missing or hold anything but text.

    Raises:
        InputError: Names the file, the column and its type.
    """
    require_columns(found, list(schema), spec.text, role="input.text")
    for name in spec.text:
        if normalised(schema[name]) not in (pl.String, pl.Null):
            raise InputError(
                f"{found.path}: column {name!r} (input.text) is of type {schema[name]}, expected strings",
                key="input.text",
            )


def carried_columns(keep: Sequence[str], files: Sequence[tuple[FoundFile, Schema]]) -> Schema:
    """Return the carried columns with the one type each has over all files. The files' order does not matter.

    Raises:
        InputError: A column is missing somewhere, or two files' types have nothing in common.
    """
    types: Schema = {}
    origin: dict[str, FoundFile] = {}
    for found, schema in files:
        require_columns(found, list(schema), keep, role="input.keep")
        for name in keep:
            own = normalised(schema[name])
            try:
                dtype_to_text(own)
            except ValueError as exc:
                raise InputError(f"{found.path}: column {name!r} (input.keep): {exc}", key="input.keep") from exc
            joined = common_dtype(types[name], own) if name in types else own
            if joined is None:
                why = _why_not(types[name], own)
                raise InputError(
                    f"{found.path}: column {name!r} (input.keep) is {own}, but {types[name]} in"
                    f" {origin[name].path}{why}",
                )
            if name not in types or joined != types[name]:
                origin[name] = found
            types[name] = joined
    return {name: pl.String() if dtype == pl.Null else dtype for name, dtype in types.items()}


def _why_not(first: pl.DataType, second: pl.DataType) -> str:
    if first.is_numeric() and second.is_numeric() and first.is_float() != second.is_float():
        return ": as floats, whole numbers above 2**53 would lose digits (did a writer meet a null?)"
    if isinstance(first, pl.Datetime) and isinstance(second, pl.Datetime):
        return ": times of different zones or units are not converted"
    return ": no type holds both"


def scan_parquet_file(
    spec: ReadSpec,
    found: FoundFile,
    schema: Schema,
    carried: Mapping[str, pl.DataType],
    on_progress: Callable[[int], None] | None,
) -> ScannedFile:
    """Read one file whole: digest all bytes, and decode the needed columns in bounded memory.

    Row groups are decoded right after they were digested, while the system still has them at hand: from a disk or over
    a network, a file larger than memory comes once.

    Raises:
        InputError: A page is damaged, a text is not UTF-8, or there are not as many rows as the footer says.
    """
    num_decoded = 0
    with found.path.open("rb") as stream:
        reader = HashingReader(stream, on_progress)
        try:
            num_rows = int(_scan(found).select(pl.len()).collect().item())
            for batch in _batches(spec, found, carried, reader):
                num_decoded += batch.height
                if on_progress is not None:
                    on_progress(0)  # digested before; what it is called for here is to be called
        except _BROKEN as exc:
            raise InputError(
                f"{found.path}: cannot be decoded after row {num_decoded}: a damaged page, or a text that is not UTF-8",
            ) from exc
        digest = reader.finish(found)
    if num_decoded != num_rows:
        raise InputError(f"{found.path}: the footer says {num_rows} rows, {num_decoded} were decoded")
    return ScannedFile(digest, num_rows, 0, (), (), tuple(schema))


def _batches(
    spec: ReadSpec,
    found: FoundFile,
    carried: Mapping[str, pl.DataType],
    reader: HashingReader,
) -> Iterator[pl.DataFrame]:
    needed = {*spec.text, *carried}
    stretches = find_stretches(found.path, needed)
    if any(stretch.is_huge for stretch in stretches):
        for frame in stream_batches(found.path, needed):
            yield _select(spec, frame.lazy(), carried).collect()
        return
    for stretch in stretches:
        reader.advance(stretch.end_byte)
        yield from _select(
            spec, _scan(found).slice(stretch.start, stretch.stop - stretch.start), carried
        ).collect_batches(
            chunk_size=_BATCH_ROWS,
            maintain_order=True,
            lazy=True,
            engine="streaming",
        )


def read_parquet_rows(
    spec: ReadSpec,
    file: InputFile,
    rows: np.ndarray,
    carried: Mapping[str, pl.DataType],
) -> Iterator[Piece]:
    """Read wanted rows of one file, some row groups at a time.

    Args:
        spec: Which columns make the text.
        file: The file, as the first pass froze it.
        rows: (wanted,) int64, ascending record numbers.
        carried: The columns to carry, with their types.

    Yields:
        The wanted rows in order, some at a time.

    Raises:
        InputError: The file is not what it was.
    """
    needed = {*spec.text, *carried}
    try:
        stretches = find_stretches(file.found.path, needed)
        if any(stretch.is_huge for stretch in stretches):
            chosen: Iterator[pl.DataFrame] = (
                _select(spec, frame.lazy(), carried).collect() for frame in stream_rows(file.found.path, needed, rows)
            )
        else:
            bounds = np.searchsorted(rows, [stretch.stop for stretch in stretches[:-1]])
            chosen = _read_parts(spec, file.found, np.split(rows, bounds), carried)
        own_names = [pl.col(_column(index)).alias(name) for index, name in enumerate(carried)]
        for frame in chosen:
            for part in frame.iter_slices(_BATCH_ROWS):
                yield Piece(part[_TEXT].to_list(), {}, part.select(own_names))
    except _BROKEN as exc:
        raise InputError(f"{file.found.path}: rows {rows[0]} to {rows[-1]} cannot be decoded any more") from exc


def _read_parts(
    spec: ReadSpec,
    found: FoundFile,
    parts: Sequence[np.ndarray],
    carried: Mapping[str, pl.DataType],
) -> Iterator[pl.DataFrame]:
    for wanted in parts:
        if not len(wanted):
            continue
        start, stop = int(wanted[0]), int(wanted[-1]) + 1
        frame = _select(spec, _scan(found).slice(start, stop - start), carried).collect()
        if frame.height != stop - start:
            raise InputError(f"{found.path}: has no rows {start} to {stop - 1} any more")
        yield frame if len(wanted) == frame.height else frame[wanted - start]


_TEXT = "text"


def _column(index: int) -> str:
    return f"carried_{index}"  # a name of ours, for a carried column may itself be called like the text


def _select(
    spec: ReadSpec,
    frame: pl.LazyFrame,
    carried: Mapping[str, pl.DataType],
) -> pl.LazyFrame:
    """Select the text and the carried columns, each in its one type."""
    # By exact name: pl.col takes `*` and `^...$` for patterns.
    parts = [cs.by_name(name).as_expr().cast(pl.String) for name in spec.text]
    return frame.select(
        pl.concat_str(parts, separator=spec.separator, ignore_nulls=True).alias(_TEXT),
        *(
            cs.by_name(name).as_expr().cast(dtype).alias(_column(index))
            for index, (name, dtype) in enumerate(carried.items())
        ),
    )


def _scan(found: FoundFile) -> pl.LazyFrame:
    return pl.scan_parquet(found.path, glob=False, hive_partitioning=False)
