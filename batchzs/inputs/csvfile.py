"""CSV and TSV files: the two passes over one file.

The first pass reads every record with the line-aware reader and lets Polars read each block as well. Where Polars
gives the very same fields, the second pass may use it for that block; where it does not (quotes inside unquoted
fields, pola-rs/polars#21519 and #22395; blank lines; damaged records), the block is noted and read line by line
again. Polars reads one whole block of bytes with all its columns, never a lazy scan or a projection of a file: those
have returned fewer rows without an error.

Every column is a string; nothing is inferred.
"""

from __future__ import annotations

import io
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from batchzs.errors import InputError
from batchzs.inputs.csvrecords import CsvDialect, CsvRecords
from batchzs.inputs.pieces import BLOCK_BYTES, BLOCK_RECORDS, BadRowTally, Piece, RowProblem, ScannedFile
from batchzs.inputs.rows import BAD_ENCODING
from batchzs.inputs.textlines import HashingReader, LineFeed, TextCodec, detect_codec, encoding_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from batchzs.inputs.csvrecords import CsvBlock
    from batchzs.inputs.rows import FoundFile, InputFile, SeekPoint
    from batchzs.inputs.spec import ReadSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """What the beginning of a file tells."""

    codec: TextCodec
    names: tuple[str, ...]  # the columns
    offset_bytes: int  # of the first byte after byte-order mark and header
    num_lines: int  # physical lines before that byte


def read_layout(spec: ReadSpec, found: FoundFile) -> CsvLayout:
    """Read a file's header; without one, count the first record's fields.

    Raises:
        InputError: There is no record at all, the header is damaged, or two columns have one name.
    """
    codec = detect_codec(found.path, spec.encoding)
    with found.path.open("rb") as stream:
        reader = HashingReader(stream, None)
        reader.read(codec.mark_bytes)
        feed, records = _records(spec, found, codec, reader)
        feed.start_at(codec.mark_bytes, 0)
        first = records.read_first()
        if first is None:
            what = "header" if spec.header else "record that would tell the number of columns"
            raise InputError(f"{found.path}: the file has no {what}")
        if not spec.header:
            names = tuple(f"column_{index}" for index in range(len(first)))
            return CsvLayout(codec, names, codec.mark_bytes, 0)
        names = tuple(name or "" for name in first)
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            raise InputError(f"{found.path}: the header names {', '.join(map(repr, repeated))} more than once")
        return CsvLayout(codec, names, feed.offset, feed.num_lines)


def scan_csv(
    spec: ReadSpec,
    found: FoundFile,
    layout: CsvLayout,
    needed: Sequence[str],
    on_progress: Callable[[int], None] | None,
) -> ScannedFile:
    """Read one file whole: digest, records, blocks, damage.

    Args:
        spec: How the file is written.
        found: The file.
        layout: What `read_layout` told of it.
        needed: The columns that the second pass will read, text and carried ones.
        on_progress: Called with the number of bytes read since the last call.

    Raises:
        InputError: A quote is not closed, a bad row where none is allowed, or the file is of another kind.
    """
    seek_points: list[SeekPoint] = []
    bad_blocks: list[int] = []
    num_rows = num_blank_lines = 0
    indices = [layout.names.index(name) for name in needed]
    with found.path.open("rb") as stream:
        reader = HashingReader(stream, on_progress)
        reader.read(layout.offset_bytes)
        feed, records = _records(spec, found, layout.codec, reader)
        feed.start_at(layout.offset_bytes, layout.num_lines)
        tally = BadRowTally(spec, BAD_ENCODING, lambda: encoding_hint(feed.broken_line))
        while not feed.exhausted:
            block = records.read_block(num_rows, BLOCK_RECORDS, BLOCK_BYTES, num_fields=len(layout.names))
            tally.add_block(block.problems, len(block.records))
            num_blank_lines += block.num_blank_lines
            if not block.records:
                continue
            if block.problems or not _polars_agrees(spec, found, block, indices, len(layout.names)):
                bad_blocks.append(len(seek_points))
            seek_points.append(block.start)
            num_rows += len(block.records)
        tally.log()
        digest = reader.finish(found)
    if num_blank_lines:
        logger.info("%s: skipped %d blank lines", found.name, num_blank_lines)
    return ScannedFile(digest, num_rows, tally.num_bad, tuple(seek_points), tuple(bad_blocks), layout.names)


def read_csv_rows(spec: ReadSpec, file: InputFile, rows: np.ndarray, carried: Sequence[str]) -> Iterator[Piece]:
    """Read wanted rows of one file, block by block.

    Args:
        spec: How the file is written.
        file: The file, as the first pass froze it.
        rows: (wanted,) int64, ascending record numbers.
        carried: The columns to carry.

    Yields:
        The wanted rows of each block that has any.

    Raises:
        InputError: The file is not what it was.
    """
    codec = detect_codec(file.found.path, spec.encoding)
    starts = np.array([point.row for point in file.seek_points], dtype=np.int64)
    blocks = np.searchsorted(starts, rows, side="right") - 1
    bad_blocks = frozenset(file.bad_blocks)
    with file.found.path.open("rb") as stream:
        for in_block in np.split(rows, np.flatnonzero(np.diff(blocks)) + 1):
            block = int(np.searchsorted(starts, in_block[0], side="right")) - 1
            point = file.seek_points[block]
            later = file.seek_points[block + 1] if block + 1 < len(file.seek_points) else None
            stream.seek(point.offset_bytes)
            data = stream.read((later.offset_bytes if later else file.found.size_bytes) - point.offset_bytes)
            num_rows = (later.row if later else file.num_rows) - point.row
            frame = None
            problems: dict[int, RowProblem] = {}
            if block not in bad_blocks:
                frame = _polars_block(data, codec, spec, file)
            if frame is None or frame.height != num_rows:
                frame, problems = _line_aware_block(data, codec, spec, file, point)
            if frame.height != num_rows:
                raise InputError(f"{file.found.path}: the records from line {point.line} on are not what they were")
            yield _piece(spec, file, frame, problems, wanted=in_block - point.row, carried=carried)


def _records(
    spec: ReadSpec,
    found: FoundFile,
    codec: TextCodec,
    stream: HashingReader | io.BytesIO,
) -> tuple[LineFeed, CsvRecords]:
    feed = LineFeed(stream, codec, name=found.name)
    return feed, CsvRecords(feed, _dialect(spec, found), name=found.name, encoding=spec.encoding)


def _dialect(spec: ReadSpec, found: FoundFile) -> CsvDialect:
    return CsvDialect(spec.delimiter or ("\t" if found.format == "tsv" else ","), spec.quote)


def _polars_agrees(spec: ReadSpec, found: FoundFile, block: CsvBlock, indices: list[int], num_fields: int) -> bool:
    """Say whether Polars reads a block exactly as the line-aware reader did, in the needed columns."""
    frame = _polars_frame("".join(block.texts).encode(), _dialect(spec, found), num_fields)
    return frame is not None and frame.select(map(str, indices)).equals(_frame(block.records, indices))


def _polars_block(data: bytes, codec: TextCodec, spec: ReadSpec, file: InputFile) -> pl.DataFrame | None:
    try:
        utf8 = data if codec.name == "utf-8" else data.decode(codec.name).encode()
    except UnicodeDecodeError:
        return None
    return _polars_frame(utf8, _dialect(spec, file.found), len(file.field_names))


def _polars_frame(data: bytes, dialect: CsvDialect, num_fields: int) -> pl.DataFrame | None:
    """Let Polars read one block; None where it cannot."""
    if not dialect.delimiter.isascii() or not (dialect.quote or "").isascii():
        return None  # Polars takes single bytes
    try:
        return pl.read_csv(
            data,
            has_header=False,
            schema={str(index): pl.String for index in range(num_fields)},
            separator=dialect.delimiter,
            quote_char=dialect.quote,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None


def _line_aware_block(
    data: bytes,
    codec: TextCodec,
    spec: ReadSpec,
    file: InputFile,
    point: SeekPoint,
) -> tuple[pl.DataFrame, dict[int, RowProblem]]:
    feed, records = _records(spec, file.found, codec, io.BytesIO(data))
    feed.start_at(point.offset_bytes, point.line - 1)
    num_fields = len(file.field_names)
    block = records.read_block(point.row, len(data) + 1, len(data) + 1, num_fields=num_fields)
    return _frame(block.records, list(range(num_fields))), block.problems


def _frame(records: Sequence[Sequence[str | None]], indices: list[int]) -> pl.DataFrame:
    return pl.DataFrame(
        {str(index): pl.Series([record[index] for record in records], dtype=pl.String) for index in indices},
    )


def _piece(  # noqa: PLR0913 - one block's parts, put together in one place
    spec: ReadSpec,
    file: InputFile,
    frame: pl.DataFrame,
    problems: dict[int, RowProblem],
    *,
    wanted: np.ndarray,
    carried: Sequence[str],
) -> Piece:
    """Take a block's wanted rows, and make texts and carried columns of them."""
    column = {name: str(index) for index, name in enumerate(file.field_names)}
    chosen = frame[wanted]
    if spec.null_values:
        chosen = chosen.with_columns(pl.all().replace(dict.fromkeys(spec.null_values)))
    texts = chosen.select(
        pl.concat_str([column[name] for name in spec.text], separator=spec.separator, ignore_nulls=True).alias("text"),
    )["text"].to_list()
    places = {row: place for place, row in enumerate(wanted.tolist())} if problems else {}
    kept = {places[row]: problem for row, problem in problems.items() if row in places}
    for place in kept:
        texts[place] = ""
    return Piece(texts, kept, chosen.select([pl.col(column[name]).alias(name) for name in carried]))
