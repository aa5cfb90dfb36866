"""Records of text files as they stand there: what a person wants to see of a row that could not be read.

The records are found by their positions, with the seek points of the first pass. Nothing is made of them: no fields,
no types. Bytes that are no text in the job's encoding become U+FFFD.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from batchzs.errors import InputError
from batchzs.inputs.csvrecords import CsvDialect, CsvRecords
from batchzs.inputs.textlines import UNDECODABLE, LineFeed, detect_codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from batchzs.inputs.rows import InputFile
    from batchzs.inputs.spec import ReadSpec

_BLANK = " \t\r\n"  # JSON's white space: such a line is no record


def read_raw_records(spec: ReadSpec, file: InputFile, rows: Sequence[int]) -> dict[int, str]:
    """Read records of one CSV, TSV or JSON Lines file.

    Args:
        spec: How the file is written; as in the first pass.
        file: The frozen file, seen to be unchanged.
        rows: Ascending record numbers.

    Returns:
        Each record's physical lines, without the last line's end.

    Raises:
        InputError: The file is not what it was.
    """
    codec = detect_codec(file.found.path, spec.encoding)
    starts = np.array([point.row for point in file.seek_points], dtype=np.int64)
    blocks = (np.searchsorted(starts, np.array(rows, dtype=np.int64), side="right") - 1).tolist()
    records: dict[int, str] = {}
    try:
        with file.found.path.open("rb") as stream:
            for block in dict.fromkeys(blocks):
                point = file.seek_points[block]
                is_last = block + 1 == len(file.seek_points)
                end = file.found.size_bytes if is_last else file.seek_points[block + 1].offset_bytes
                stream.seek(point.offset_bytes)
                feed = LineFeed(io.BytesIO(stream.read(end - point.offset_bytes)), codec, name=file.found.name)
                feed.start_at(point.offset_bytes, point.line - 1)
                wanted = {row for row, own in zip(rows, blocks, strict=True) if own == block}
                split = _json_lines(feed) if file.found.format == "jsonl" else _csv_records(spec, file, feed)
                for row, text in enumerate(split, point.row):
                    if row in wanted:
                        records[row] = text.rstrip("\r\n").replace(UNDECODABLE, "\ufffd")
                    if row >= max(wanted):
                        break
    except OSError as exc:
        raise InputError(f"{file.found.path}: cannot be read any more: {exc.strerror}") from exc
    if len(records) != len(set(rows)):
        raise InputError(f"{file.found.path}: the records are not where they were")
    return records


def _json_lines(feed: LineFeed) -> Iterator[str]:
    for line in feed.lines():
        if line.strip(_BLANK):
            yield line
        feed.start_block()
        feed.start_record()


def _csv_records(spec: ReadSpec, file: InputFile, feed: LineFeed) -> Iterator[str]:
    delimiter = spec.delimiter or ("\t" if file.found.format == "tsv" else ",")
    records = CsvRecords(feed, CsvDialect(delimiter, spec.quote), name=file.found.name, encoding=spec.encoding)
    while True:
        block = records.read_block(0, 1, file.found.size_bytes + 1, num_fields=len(file.field_names))
        if not block.records:
            return
        yield "".join(block.texts)
