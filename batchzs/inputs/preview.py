"""Some rows of an input, read without the first pass: for a look, not for a run.

A first pass reads and digests everything, which for a look would be far too much. Here the files that are looked at are
frozen as far as is needed: of a Parquet file its footer, of a text file its beginning. The rows themselves are then
read as a run reads them. What lies behind is not seen, so damage there is not found, and JSON Lines keys that appear
there first are not known.

The first rows come from the first files. Random rows come from a few random files; where these are all there are, and
have been seen to their ends, the rows are those that a run with the same `--sample` and `--seed` draws.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from batchzs.errors import InputError, UsageError
from batchzs.inputs.csvfile import read_layout
from batchzs.inputs.csvrecords import CsvDialect, CsvRecords
from batchzs.inputs.parquetfile import check_text_columns, read_schema
from batchzs.inputs.pieces import BLOCK_BYTES, BLOCK_RECORDS, BadRowTally, list_names, require_columns
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import BAD_ENCODING, CarriedColumn, InputFile, InputSet, SeekPoint, ShardRows
from batchzs.inputs.textlines import HashingReader, LineFeed, detect_codec, encoding_hint
from batchzs.plan import plan_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.inputs.rows import FoundFile
    from batchzs.inputs.spec import ReadSpec
    from batchzs.plan import Selection

#: Random rows come from so many files at most, and of text files so many bytes are looked at, over all of them: a
#: second or two of reading.
MAX_SAMPLED_FILES = 16
MAX_TEXT_BYTES = 64 * 2**20
_BLANK = " \t\r\n"  # JSON's white space: such a line is no record


@dataclass(frozen=True, slots=True)
class Preview:
    """Some rows, and what they were chosen among."""

    rows: ShardRows
    num_seen_rows: int
    num_seen_files: int
    num_files: int
    is_whole: bool  # whether all rows of the input were there to be chosen


@dataclass(frozen=True, slots=True)
class _Head:
    """A file as far as it was looked at."""

    file: InputFile
    is_whole: bool


def read_preview(spec: ReadSpec, found: Sequence[FoundFile], selection: Selection, column: str | None) -> Preview:
    """Read some rows.

    Args:
        spec: how the files are written, and which columns make the text; what it says of carried columns is not used.
        found: the input's files, as discovery lists them.
        selection: the first rows (`limit`), or random ones (`sample`).
        column: a column to carry, as strings; or None.

    Raises:
        InputError: a file cannot be read as the job says, as far as it was looked at.
        UsageError: there is no such column, or it is of a type that cannot be a label.
    """
    from_folders = [key for key, _ in found[0].partitions]
    own = () if column is None or column in from_folders else (column,)
    spec = replace(spec, keep=own)
    try:
        heads = _heads(spec, found, selection)
    except OSError as exc:
        raise InputError(f"{exc.filename}: cannot be read: {exc.strerror}") from exc
    carried = () if column is None else tuple(CarriedColumn(name, "String") for name in (*own, *from_folders))
    if column is None:
        heads = [replace(head, file=_without_partitions(head.file)) for head in heads]
    input_set = InputSet(tuple(head.file for head in heads), carried)
    (shard,) = plan_shards([head.file.num_rows for head in heads], max(input_set.num_rows, 1), selection)
    return Preview(
        rows=read_rows(spec, input_set, shard.spans),
        num_seen_rows=input_set.num_rows,
        num_seen_files=len(heads),
        num_files=len(found),
        is_whole=len(heads) == len(found) and all(head.is_whole for head in heads),
    )


def _without_partitions(file: InputFile) -> InputFile:
    return replace(file, found=replace(file.found, partitions=()))


def _heads(spec: ReadSpec, found: Sequence[FoundFile], selection: Selection) -> list[_Head]:
    """Look at the files that rows are chosen from, in the input's order."""
    heads: list[_Head] = []
    if selection.sample is None:
        num_wanted = selection.limit or 1
        for file in found:
            heads.append(_head(spec, file, num_wanted, MAX_TEXT_BYTES))
            num_wanted -= heads[-1].file.num_rows
            if num_wanted <= 0:
                break
    else:
        chosen: Sequence[int] = range(len(found))
        if len(found) > MAX_SAMPLED_FILES:
            # A seeded draw of files to look at, not a key for anything secret.
            chosen = sorted(random.Random(selection.seed).sample(chosen, MAX_SAMPLED_FILES))  # noqa: S311
        heads += [_head(spec, found[index], None, MAX_TEXT_BYTES // len(chosen)) for index in chosen]
    if found[0].format == "jsonl":
        _require_keys(spec, heads)
    return heads


def _require_keys(spec: ReadSpec, heads: Sequence[_Head]) -> None:
    """Refuse JSON Lines of which no record that was looked at has one of the keys."""
    keys = list(dict.fromkeys(name for head in heads for name in head.file.field_names))
    num_rows = sum(head.file.num_rows for head in heads)
    for name in spec.text:
        if keys and name not in keys:
            raise InputError(
                f"input.text: none of the first {num_rows} records has the key {name!r}; keys: {list_names(keys)}",
                key="input.text",
            )
    for name in spec.keep:
        if keys:
            _require_column(heads[0].file.found, keys, name)


def _require_column(found: FoundFile, names: Sequence[str], name: str) -> None:
    if name not in names:
        raise UsageError(f"--truth: {found.path} has no column {name!r}; expected one of: {list_names(names)}")


def _head(spec: ReadSpec, found: FoundFile, max_rows: int | None, max_bytes: int) -> _Head:
    """Look at one file, until there are `max_rows` records or `max_bytes` are passed."""
    match found.format:
        case "parquet":
            return _parquet_head(spec, found)
        case "jsonl":
            return _jsonl_head(spec, found, max_rows, max_bytes)
        case "csv" | "tsv":
            return _csv_head(spec, found, max_rows, max_bytes)


def _frozen(found: FoundFile, num_rows: int, seek_points: Sequence[SeekPoint], names: Sequence[str]) -> InputFile:
    """A file as `read_rows` takes it; its blocks are left to the line-aware reader, which needs no second opinion."""
    blocks = tuple(range(len(seek_points)))
    return InputFile(found, "", num_rows, 0, tuple(seek_points), blocks, tuple(names))


def _parquet_head(spec: ReadSpec, found: FoundFile) -> _Head:
    import pyarrow.parquet as pq

    schema = read_schema(found)
    check_text_columns(spec, found, schema)
    for name in spec.keep:
        _require_column(found, list(schema), name)
        if not (schema[name].is_integer() or str(schema[name]).split("(")[0] in _LABEL_TYPES):
            raise UsageError(
                f"--truth: {found.path}: column {name!r} is of type {schema[name]}, expected one label a row: texts or "
                "whole numbers"
            )
    return _Head(_frozen(found, pq.read_metadata(found.path).num_rows, (), list(schema)), is_whole=True)


_LABEL_TYPES = frozenset({"String", "Boolean", "Null", "Categorical", "Enum"})


def _csv_head(spec: ReadSpec, found: FoundFile, max_rows: int | None, max_bytes: int) -> _Head:
    layout = read_layout(spec, found)
    require_columns(found, layout.names, spec.text, role="input.text")
    for name in spec.keep:
        _require_column(found, layout.names, name)
    points: list[SeekPoint] = []
    num_rows = 0
    with found.path.open("rb") as stream:
        reader = HashingReader(stream, None)
        reader.read(layout.offset_bytes)
        feed = LineFeed(reader, layout.codec, name=found.name)
        feed.start_at(layout.offset_bytes, layout.num_lines)
        dialect = CsvDialect(spec.delimiter or ("\t" if found.format == "tsv" else ","), spec.quote)
        records = CsvRecords(feed, dialect, name=found.name, encoding=spec.encoding)
        tally = BadRowTally(spec, BAD_ENCODING, lambda: encoding_hint(feed.broken_line))
        while not feed.exhausted and not _is_enough(num_rows, feed.offset, max_rows, max_bytes):
            max_records = BLOCK_RECORDS if max_rows is None else min(max_rows - num_rows, BLOCK_RECORDS)
            block = records.read_block(num_rows, max_records, BLOCK_BYTES, num_fields=len(layout.names))
            tally.add_block(block.problems, len(block.records))
            if block.records:
                points.append(block.start)
                num_rows += len(block.records)
        return _text_head(found, feed, num_rows, points, layout.names)


def _jsonl_head(spec: ReadSpec, found: FoundFile, max_rows: int | None, max_bytes: int) -> _Head:
    codec = detect_codec(found.path, spec.encoding)
    points: list[SeekPoint] = []
    keys: dict[str, None] = {}
    num_rows = 0
    with found.path.open("rb") as stream:
        reader = HashingReader(stream, None)
        reader.read(codec.mark_bytes)
        feed = LineFeed(reader, codec, name=found.name)
        feed.start_at(codec.mark_bytes, 0)
        offset = codec.mark_bytes
        for line in feed.lines():
            if line.strip(_BLANK):
                if num_rows % BLOCK_RECORDS == 0 or offset - points[-1].offset_bytes >= BLOCK_BYTES:
                    points.append(SeekPoint(num_rows, offset, feed.num_lines))
                num_rows += 1
                keys.update(dict.fromkeys(_keys(line)))
            offset = feed.offset
            feed.start_block()
            feed.start_record()
            if _is_enough(num_rows, offset, max_rows, max_bytes):
                break
        return _text_head(found, feed, num_rows, points, list(keys))


def _keys(line: str) -> list[str]:
    """The keys of a line's object; none where it is damaged, which is found when it is read."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(record) if isinstance(record, dict) else []


def _is_enough(num_rows: int, offset: int, max_rows: int | None, max_bytes: int) -> bool:
    return (max_rows is not None and num_rows >= max_rows) or offset >= max_bytes


def _text_head(found: FoundFile, feed: LineFeed, num_rows: int, points: list[SeekPoint], names: Sequence[str]) -> _Head:
    is_whole = feed.offset >= found.size_bytes
    if not is_whole:
        # Where the records end that were looked at: a reader stops there as it stops before any block.
        points = [*points, SeekPoint(num_rows, feed.offset, feed.num_lines + 1)]
    return _Head(_frozen(found, num_rows, points, names), is_whole)
