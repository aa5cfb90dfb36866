"""A look at an input before there is a job: its first rows, read as they seem to be written.

Reads some blocks of one file. What it guesses is for `init` to write down; a run reads by the job alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from batchzs.errors import InputError
from batchzs.first_job.guess import Column, guess_delimiter, guess_encoding, guess_header, split_records
from batchzs.inputs.discovery import FORMAT_BY_SUFFIX, find_files
from batchzs.inputs.spec import ReadSpec

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.inputs.rows import InputFormat

_HEAD_BYTES = 2**18
_BLOCK_BYTES = 2**15
_NUM_BLOCKS = 8
_SAMPLE_ROWS = 1000
_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What an input seems to be.

    format: null in the job where the file's ending says it. delimiter, header, quoted: of CSV.
    """

    path: Path
    format: InputFormat
    names_format: bool  # whether the job has to say the format
    encoding: str
    delimiter: str
    header: bool
    quoted: bool
    columns: tuple[Column, ...]

    @property
    def num_rows(self) -> int:
        """Rows that were looked at."""
        return max((len(column.values) for column in self.columns), default=0)


def look_at(path: Path) -> LookedAt:
    """Look at a file, or at the first file of a directory.

    Raises:
        InputError: it is not there, or its content is none that batchzs reads.
    """
    file = _first_file(path) if path.is_dir() else path
    try:
        blocks = _read_blocks(file)
    except OSError as exc:
        raise InputError(f"{file}: cannot be read: {exc.strerror}") from exc
    if not blocks[0]:
        raise InputError(f"{file}: the file has no bytes at all")
    by_name = FORMAT_BY_SUFFIX.get(file.suffix.lower())
    if blocks[0].startswith(_PARQUET_MAGIC) or by_name == "parquet":
        columns = _parquet_columns(file)
        return LookedAt(path, "parquet", by_name != "parquet", "utf-8", ",", header=True, quoted=True, columns=columns)
    encoding = guess_encoding(blocks)
    if encoding is None:
        raise InputError(
            f"{file}: is neither Parquet nor text in UTF-8, UTF-16 with a byte order mark, GB18030 or Big5: convert it"
        )
    text = blocks[0].decode("utf-8-sig" if encoding == "utf-8" else encoding, errors="ignore")
    if by_name == "jsonl" or (by_name is None and text.lstrip().startswith("{")):
        columns = _json_columns(file, text)
        return LookedAt(path, "jsonl", by_name != "jsonl", encoding, ",", header=True, quoted=True, columns=columns)
    found = "\t" if by_name == "tsv" else guess_delimiter(text)
    # Lines of text without fields are read with a delimiter that none of them has.
    is_plain = found is None and by_name is None
    delimiter = found or ("\t" if is_plain else ",")
    records = split_records(text, delimiter, None if is_plain else '"')[: _SAMPLE_ROWS + 1]
    if not records:
        raise InputError(f"{file}: has no line with text")
    header = guess_header(records) or (not is_plain and len(records[0]) == 1)
    file_format: InputFormat = "tsv" if by_name == "tsv" or (by_name is None and found == "\t") else "csv"
    return LookedAt(
        path,
        file_format,
        by_name != file_format,
        encoding,
        delimiter,
        header=header,
        quoted=not is_plain,
        columns=_csv_columns(records, header=header),
    )


def _first_file(folder: Path) -> Path:
    spec = ReadSpec(
        path=str(folder),
        format=None,
        text=(),
        separator="\n",
        keep=(),
        partitions="drop",
        encoding="utf-8",
        delimiter=None,
        quote='"',
        header=True,
        null_values=(),
        on_bad_rows="quarantine",
    )
    return find_files(spec, exclude=())[0].path


def _read_blocks(path: Path) -> list[bytes]:
    """The beginning, and blocks spread over the rest, each from a line's begin on."""
    with path.open("rb") as file:
        blocks = [file.read(_HEAD_BYTES)]
        size = path.stat().st_size
        for number in range(1, _NUM_BLOCKS):
            offset = number * size // _NUM_BLOCKS
            if offset > _HEAD_BYTES:
                file.seek(offset)
                _, _, block = file.read(_BLOCK_BYTES).partition(b"\n")
                blocks.append(block)
    return blocks


def _parquet_columns(path: Path) -> tuple[Column, ...]:
    try:
        frame = pl.scan_parquet(path, glob=False).head(_SAMPLE_ROWS).collect()
    except (pl.exceptions.PolarsError, OSError) as exc:
        raise InputError(f"{path}: cannot be read as Parquet: {exc}") from exc
    return tuple(
        Column(
            series.name,
            tuple(None if value is None else str(value) for value in series.to_list()),
            is_text=series.dtype in (pl.String, pl.Categorical, pl.Enum),
        )
        for series in frame
    )


def _json_columns(path: Path, text: str) -> tuple[Column, ...]:
    rows = []
    for line in text.split("\n")[:_SAMPLE_ROWS]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # a damaged record, or the last one, cut
            continue
        if isinstance(row, dict):
            rows.append(row)
    if not rows:
        raise InputError(f"{path}: none of its first lines is a JSON object: it is no JSON Lines file")
    names = dict.fromkeys(name for row in rows for name in row)
    return tuple(
        Column(
            name,
            tuple(None if row.get(name) is None else str(row[name]) for row in rows),
            is_text=all(isinstance(row.get(name), str | None) for row in rows),
        )
        for name in names
    )


def _csv_columns(records: list[list[str]], *, header: bool) -> tuple[Column, ...]:
    names = records[0] if header else [f"column_{place}" for place in range(len(records[0]))]
    rows = records[1:] if header else records
    return tuple(
        Column(name, tuple(row[place] if place < len(row) else None for row in rows), is_text=True)
        for place, name in enumerate(names)
    )
