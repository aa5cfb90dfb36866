"""JSON Lines: the two passes over one file, with json.loads for every wanted line, so that nothing is inferred.

One object per line; blank lines are no records. A key that a record lacks is null. A text value that is no string, a
line that is no JSON object (NaN and Infinity are no JSON), and text that is not valid Unicode quarantine their row
alone. Types of carried columns are those of all values of all files; where these have no type in common the column is
a string, with values that are no strings written as JSON.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import polars as pl

from batchzs.errors import InputError
from batchzs.inputs.pieces import BLOCK_BYTES, BLOCK_RECORDS, BadRowTally, Piece, RowProblem, ScannedFile, list_names
from batchzs.inputs.rows import BAD_ENCODING, BAD_RECORD, BAD_TYPE, SeekPoint
from batchzs.inputs.textlines import HashingReader, LineFeed, detect_codec, encoding_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from batchzs.inputs.rows import FoundFile, InputFile
    from batchzs.inputs.spec import ReadSpec

_BLANK = " \t\r\n"  # JSON's white space
#: A file with more keys than this has ids for keys, and they are no columns.
MAX_KEYS = 10_000
#: Writing a value back as JSON recurses, and Python's recursion has an end that depends on who calls.
_MAX_DEPTH = 200

_STR, _BOOL, _INT, _LONG_INT, _FLOAT, _OTHER = 1, 2, 4, 8, 16, 32
_KIND = {type(None): 0, str: _STR, bool: _BOOL, float: _FLOAT}
_KIND_OF_TYPE: dict[pl.DataType, int] = {pl.Boolean(): _BOOL, pl.Int64(): _INT, pl.Float64(): _FLOAT}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_decode = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


class JsonTypes:
    """Learns the types of carried keys over all records of all files."""

    def __init__(self, spec: ReadSpec) -> None:
        self._keep = spec.keep
        self._kinds: dict[str, int] = {}
        self._seen: dict[str, None] = {}

    def start_with(self, names: Iterable[str], types: Mapping[str, pl.DataType]) -> None:
        """Take the keys and the carried keys' types of files that were read before into account."""
        self._seen.update(dict.fromkeys(names))
        self._kinds.update({key: _KIND_OF_TYPE.get(dtype, _STR) for key, dtype in types.items()})

    def add(self, record: dict[str, Any]) -> None:
        """Take one record's values into account."""
        if not record.keys() <= self._seen.keys():
            self._seen.update(dict.fromkeys(record))
        for key in record if self._keep == "all" else self._keep:
            if key in record:
                value = record[key]
                self._kinds[key] = self._kinds.get(key, 0) | _kind(value)

    def columns(self) -> dict[str, pl.DataType]:
        """Return the carried columns, in the job's order or in that of first appearance; strings without any record.

        Raises:
            InputError: No record of any file has one of the keys.
        """
        keys = list(self._seen) if self._keep == "all" else self._keep
        for key in keys:
            if self._seen and key not in self._kinds:
                raise InputError(
                    f"input.keep: no record has the key {key!r}; keys: {list_names(list(self._seen))}", key="input.keep"
                )
        return {key: _dtype(self._kinds.get(key, 0)) for key in keys}

    def require_text(self, spec: ReadSpec) -> None:
        """Refuse an input of which no record has one of the text keys; one without any record passes."""
        for key in spec.text:
            if self._seen and key not in self._seen:
                raise InputError(
                    f"input.text: no record has the key {key!r}; keys: {list_names(list(self._seen))}", key="input.text"
                )


def _kind(value: object) -> int:
    if type(value) is not int:
        return _KIND.get(type(value), _OTHER)
    if -(2**53) <= value <= 2**53:  # what a float holds exactly
        return _INT
    return _INT | _LONG_INT if -(2**63) <= value < 2**63 else _OTHER


def _dtype(kinds: int) -> pl.DataType:
    """Return the one type of a column from the kinds of its values.

    >>> _dtype(_INT), _dtype(_INT | _FLOAT), _dtype(_INT | _LONG_INT | _FLOAT)
    (Int64, Float64, String)
    """
    if kinds == _BOOL:
        return pl.Boolean()
    if kinds in (_INT, _INT | _LONG_INT):
        return pl.Int64()
    if kinds in (_FLOAT, _INT | _FLOAT):
        return pl.Float64()
    return pl.String()


def scan_jsonl(
    spec: ReadSpec,
    found: FoundFile,
    types: JsonTypes,
    on_progress: Callable[[int], None] | None,
) -> ScannedFile:
    """Read one file whole: digest, records, blocks, damage; and add what it has to `types`.

    Raises:
        InputError: A bad row where none is allowed, or the file is of another kind.
    """
    codec = detect_codec(found.path, spec.encoding)
    seek_points: list[SeekPoint] = []
    problems: dict[int, RowProblem] = {}
    names: dict[str, None] = {}
    num_rows = 0
    with found.path.open("rb") as stream:
        reader = HashingReader(stream, on_progress)
        reader.read(codec.mark_bytes)
        feed = LineFeed(reader, codec, name=found.name)
        feed.start_at(codec.mark_bytes, 0)
        parser = _LineParser(spec, found, feed)
        tally = BadRowTally(spec, BAD_ENCODING, lambda: encoding_hint(feed.broken_line))
        offset = codec.mark_bytes
        for line in feed.lines():
            text = line.strip(_BLANK)
            if text:
                in_block = num_rows - seek_points[-1].row if seek_points else BLOCK_RECORDS
                if in_block >= BLOCK_RECORDS or offset - seek_points[-1].offset_bytes >= BLOCK_BYTES:
                    if seek_points:
                        tally.add_block(problems, in_block)
                    problems, in_block = {}, 0
                    seek_points.append(SeekPoint(num_rows, offset, feed.num_lines))
                record, problem = parser.parse(text)
                if problem is not None:
                    problems[in_block] = problem
                if record is not None:
                    types.add(record)
                    if not record.keys() <= names.keys():
                        names.update(dict.fromkeys(record))
                        _refuse_many(found, names)
                num_rows += 1
            offset = feed.offset
            feed.start_block()
            feed.start_record()
        tally.add_block(problems, num_rows - seek_points[-1].row if seek_points else 0)
        tally.log()
        digest = reader.finish(found)
    if names and not any(key in names for key in spec.text):
        wanted, there = list_names(spec.text), list_names(list(names))
        raise InputError(f"{found.path}: no record has a text key ({wanted}); keys: {there}", key="input.text")
    return ScannedFile(digest, num_rows, tally.num_bad, tuple(seek_points), (), tuple(names))


def _refuse_many(found: FoundFile, names: dict[str, None]) -> None:
    if len(names) > MAX_KEYS:
        raise InputError(f"{found.path}: more than {MAX_KEYS} keys: are they ids, not columns?")


class _LineParser:
    """Turns one line into an object, or says what is wrong with it."""

    def __init__(self, spec: ReadSpec, found: FoundFile, feed: LineFeed) -> None:
        self._spec = spec
        self._name = found.name
        self._feed = feed

    def parse(self, text: str) -> tuple[dict[str, Any] | None, RowProblem | None]:
        """Return the object, if the line has one, and the problem, if there is one."""
        where = f"{self._name}:{self._feed.num_lines}"
        if self._feed.broken_at is not None:
            reason = f"{where}: the byte at offset {self._feed.broken_at} is not {self._spec.encoding}"
            return None, RowProblem(BAD_ENCODING, reason)
        record = _object(text)
        if isinstance(record, str):
            return None, RowProblem(BAD_RECORD, f"{where}: {record}")
        if "\\u" in text:
            broken = {key for key, value in record.items() if not self._is_unicode(key, value)}
            record = {key: None if key in broken else value for key, value in record.items() if _is_text(key)}
            if any(self._is_needed(key) for key in broken):
                reason = f"{where}: an escaped half of a surrogate pair is no character"
                return record, RowProblem(BAD_ENCODING, reason)
        for key in self._spec.text:
            value = record.get(key)
            if value is not None and type(value) is not str:
                reason = f"{where}: {key!r} is {_word(value)}, expected a string"
                return record, RowProblem(BAD_TYPE, reason)
        return record, None

    def _is_needed(self, key: str) -> bool:
        return self._spec.keep == "all" or key in self._spec.keep or key in self._spec.text

    def _is_unicode(self, key: str, value: object) -> bool:
        """Say whether a key, and its value where it is needed, can be written as UTF-8."""
        return _is_text(_json([key, value if self._is_needed(key) else None]))


def _is_text(string: str) -> bool:
    try:
        string.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(text: str) -> dict[str, Any] | str:
    """Return the object that a stripped line holds, or what is wrong with the line."""
    try:
        record, end = _decode(text)
    except json.JSONDecodeError as exc:
        return f"not valid JSON at character {exc.pos + 1}"
    except (ValueError, RecursionError):  # NaN; an integer of thousands of digits; thousands of brackets
        return "not valid JSON"
    if end != len(text):
        return f"more follows after the JSON value, at character {end + 1}"
    if not isinstance(record, dict):
        return f"found {_word(record)}, expected an object"
    if (
        len(text) > 2 * _MAX_DEPTH
        and text.count("{") + text.count("[") > _MAX_DEPTH
        and _is_deeper([record], _MAX_DEPTH)
    ):
        return f"nested more than {_MAX_DEPTH} levels deep"
    return record


def _is_deeper(level: list[Any], depth: int) -> bool:
    """Say whether values nest deeper than allowed, without recursion."""
    for _ in range(depth):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    return any(isinstance(value, dict | list) for value in level)


def _word(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return "a string" if isinstance(value, str) else "a number"


def read_jsonl_rows(
    spec: ReadSpec,
    file: InputFile,
    rows: np.ndarray,
    carried: dict[str, pl.DataType],
) -> Iterator[Piece]:
    """Read wanted rows of one file, block by block.

    Args:
        spec: How the file is written.
        file: The file, as the first pass froze it.
        rows: (wanted,) int64, ascending record numbers.
        carried: The columns to carry, with their types.

    Yields:
        The wanted rows of each block that has any.

    Raises:
        InputError: The file is not what it was.
    """
    codec = detect_codec(file.found.path, spec.encoding)
    starts = np.array([point.row for point in file.seek_points], dtype=np.int64)
    blocks = np.searchsorted(starts, rows, side="right") - 1
    with file.found.path.open("rb") as stream:
        for in_block in np.split(rows, np.flatnonzero(np.diff(blocks)) + 1):
            block = int(np.searchsorted(starts, in_block[0], side="right")) - 1
            point = file.seek_points[block]
            end = file.found.size_bytes
            if block + 1 < len(file.seek_points):
                end = file.seek_points[block + 1].offset_bytes
            stream.seek(point.offset_bytes)
            feed = LineFeed(io.BytesIO(stream.read(end - point.offset_bytes)), codec, name=file.found.name)
            feed.start_at(point.offset_bytes, point.line - 1)
            wanted = in_block - point.row
            piece = _piece(spec, file.found, feed, set(wanted.tolist()), carried)
            if len(piece.texts) != len(wanted):
                raise InputError(f"{file.found.path}: the records from line {point.line} on are not what they were")
            yield piece


def _piece(
    spec: ReadSpec,
    found: FoundFile,
    feed: LineFeed,
    wanted: set[int],
    carried: dict[str, pl.DataType],
) -> Piece:
    parser = _LineParser(spec, found, feed)
    texts: list[str] = []
    problems: dict[int, RowProblem] = {}
    values: dict[str, list[Any]] = {key: [] for key in carried}
    row = 0
    for line in feed.lines():
        text = line.strip(_BLANK)
        if text:
            if row in wanted:
                record, problem = parser.parse(text)
                if problem is not None:
                    problems[len(texts)] = problem
                    texts.append("")
                else:
                    texts.append(_text(spec, record or {}))
                for key, column in values.items():
                    column.append((record or {}).get(key))
            row += 1
        feed.start_block()
        feed.start_record()
    columns = {key: _series(column, carried[key]) for key, column in values.items()}
    return Piece(texts, problems, pl.DataFrame(columns))


def _text(spec: ReadSpec, record: dict[str, Any]) -> str:
    return spec.separator.join([value for key in spec.text if (value := record.get(key)) is not None])


def _series(values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    if dtype == pl.String:
        values = [value if value is None or type(value) is str else _json(value) for value in values]
    elif dtype == pl.Float64:
        values = [None if value is None else float(value) for value in values]
    return pl.Series(values, dtype=dtype)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
