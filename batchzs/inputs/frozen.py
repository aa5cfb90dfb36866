"""The frozen input between runs: as JSON, and held against the files that are there now.

Needs neither Polars nor pyarrow, so that a finished job says so at once. What the files hold is not looked at: the
content digest decides where size or time moved.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from batchzs.errors import InputError
from batchzs.inputs.pieces import list_names
from batchzs.inputs.rows import CarriedColumn, FoundFile, InputFile, InputFormat, InputSet, SeekPoint
from batchzs.inputs.textlines import HashingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_VERSION = 1
_WAYS_OUT = "put it back as it was, use another output.path, or begin anew with --restart"


def input_set_to_json(input_set: InputSet) -> dict[str, Any]:
    """Write a frozen input as values that `json.dumps` takes."""
    record = {
        "version": _VERSION,
        "carried": [[column.name, column.dtype] for column in input_set.carried],
        "files": [
            {
                "path": str(file.found.path),
                "name": file.found.name,
                "format": file.found.format,
                "size_bytes": file.found.size_bytes,
                "mtime_ns": file.found.mtime_ns,
                "partitions": [list(pair) for pair in file.found.partitions],
                "digest": file.digest,
                "num_rows": file.num_rows,
                "num_bad_rows": file.num_bad_rows,
                "seek_points": [[point.row, point.offset_bytes, point.line] for point in file.seek_points],
                "bad_blocks": list(file.bad_blocks),
                "field_names": list(file.field_names),
            }
            for file in input_set.files
        ],
    }
    return {**record, "checksum": _checksum(record)}


def _checksum(record: dict[str, Any]) -> str:
    """SHA-256 over everything but the checksum and the files' paths, which are those of the last run.

    A seek point or a type that is wrong and looks right would have rows read that are not there.
    """
    files = [{key: value for key, value in entry.items() if key != "path"} for entry in record["files"]]
    content = {key: value for key, value in record.items() if key != "checksum"} | {"files": files}
    return hashlib.sha256(json.dumps(content, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def input_set_from_json(record: dict[str, Any]) -> InputSet:
    """Read what `input_set_to_json` wrote.

    Raises:
        InputError: It is something else.
    """
    try:
        if record["version"] != _VERSION:
            raise InputError(f"the frozen input has version {record['version']!r}, this batchzs reads {_VERSION}")
        if record["checksum"] != _checksum(record):
            raise InputError("the frozen input is damaged: it is not what its checksum says")
        carried = tuple(CarriedColumn(_text(name), _text(dtype)) for name, dtype in record["carried"])
        return InputSet(files=tuple(_file(entry) for entry in record["files"]), carried=carried)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise InputError(f"the frozen input is damaged: {type(exc).__name__} {exc}") from exc


def _file(entry: dict[str, Any]) -> InputFile:
    if entry["format"] not in get_args(InputFormat):
        raise ValueError(f"format {entry['format']!r}")
    found = FoundFile(
        path=Path(_text(entry["path"])),
        name=_text(entry["name"]),
        format=entry["format"],
        size_bytes=_count(entry["size_bytes"]),
        mtime_ns=_whole(entry["mtime_ns"]),
        partitions=tuple((_text(key), _text(value)) for key, value in entry["partitions"]),
    )
    points = tuple(SeekPoint(_count(row), _count(offset), _count(line)) for row, offset, line in entry["seek_points"])
    num_rows = _count(entry["num_rows"])
    rows = [point.row for point in points]
    if points and (rows[0] != 0 or rows[-1] >= num_rows or sorted(set(rows)) != rows):
        raise ValueError(f"seek points of {found.name!r}")
    bad_blocks = tuple(_count(block) for block in entry["bad_blocks"])
    if any(block >= len(points) for block in bad_blocks):
        raise ValueError(f"blocks of {found.name!r}")
    return InputFile(
        found=found,
        digest=_text(entry["digest"]),
        num_rows=num_rows,
        num_bad_rows=_count(entry["num_bad_rows"]),
        seek_points=points,
        bad_blocks=bad_blocks,
        field_names=tuple(_text(name) for name in entry["field_names"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"found {value!r}, expected a string")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"found {value!r}, expected a whole number")
    return value


def _count(value: object) -> int:
    count = _whole(value)
    if count < 0:
        raise ValueError(f"found {count}, expected a count")
    return count


def check_unchanged(
    frozen: InputSet, found: Sequence[FoundFile], on_progress: Callable[[int], None] | None = None
) -> InputSet:
    """Hold the frozen input against the files that are there now.

    Args:
        frozen: The input as the first run froze it.
        found: The files as discovery lists them now; their paths may have moved, their names count.
        on_progress: Called with the number of bytes digested since the last call.

    Returns:
        The frozen input with the paths and times of now.

    Raises:
        InputError: A file is missing, additional, or has another content; it is named.
    """
    before = [file.found.name for file in frozen.files]
    now = [file.name for file in found]
    missing = [name for name in before if name not in set(now)]
    if missing:
        raise InputError(
            f"the input lacks files that this output was begun with: {list_names(missing, 5)}: {_WAYS_OUT}"
        )
    additional = [name for name in now if name not in set(before)]
    if additional:
        raise InputError(
            f"the input has files that this output was not begun with: {list_names(additional, 5)}: add them "
            "with --new-files, take them away, use another output.path, or begin anew with --restart"
        )
    if before != now:
        moved = next(new for old, new in zip(before, now, strict=False) if old != new)
        raise InputError(f"the input's files are in another order than when this output was begun: {moved}")
    pairs = zip(frozen.files, found, strict=True)
    return replace(frozen, files=tuple(_unchanged(file, new, on_progress) for file, new in pairs))


def _unchanged(file: InputFile, found: FoundFile, on_progress: Callable[[int], None] | None) -> InputFile:
    old = file.found
    if old.format != found.format:
        raise InputError(f"{found.path}: is read as {found.format} now, and as {old.format} when this output was begun")
    if old.partitions != found.partitions:
        raise InputError(f"{found.path}: its folder names give other columns than when this output was begun")
    same = old.size_bytes == found.size_bytes
    if same and old.mtime_ns != found.mtime_ns:
        same = digest_file(found, on_progress) == file.digest
    if not same:
        raise InputError(f"{found.path}: has changed since this output was begun: {_WAYS_OUT}")
    return replace(file, found=found)


def digest_file(found: FoundFile, on_progress: Callable[[int], None] | None = None) -> str:
    """Return the digest of a file's bytes.

    Raises:
        InputError: It cannot be read.
    """
    try:
        with found.path.open("rb") as stream:
            return HashingReader(stream, on_progress).finish(found)
    except OSError as exc:
        raise InputError(f"{found.path}: cannot be read: {exc.strerror}") from exc
