"""Find the input's files: from a file, a directory, a glob or a list of them to an ordered list of files.

Looks at names and metadata only; opens nothing, and needs neither Polars nor pyarrow.

Names that start with `_` or `.` are markers, checksums and half-written files of other tools: skipped and counted,
unless a path or a glob spells them out. A glob's match that is a directory is taken as a directory; with `**`, which
reaches the files by itself, only files count.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from batchzs.counted import counted
from batchzs.errors import InputError
from batchzs.inputs.rows import FoundFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from batchzs.inputs.rows import InputFormat
    from batchzs.inputs.spec import ReadSpec

logger = logging.getLogger(__name__)

FORMAT_BY_SUFFIX: dict[str, InputFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_COMPRESSED_SUFFIXES = frozenset({".gz", ".zst", ".bz2", ".xz"})
_SKIPPED_PREFIXES = ("_", ".")


def find_files(spec: ReadSpec, exclude: Sequence[Path]) -> tuple[FoundFile, ...]:
    """List the input's files in their stated natural order: part-2 before part-10, list items as listed.

    Args:
        spec: Which paths, which format, and whether folder names are kept as columns.
        exclude: Trees that are never input, such as the job's own output.

    Returns:
        The files, each once, all of one format.

    Raises:
        InputError: Nothing is there, or something is there that cannot be read as this job says.
    """
    items = (spec.path,) if isinstance(spec.path, str) else spec.path
    search = _Search(spec.format, tuple(os.path.realpath(path) for path in exclude))
    found: list[Path] = []
    roots: list[str] = []
    for item in items:
        path = str(Path(item).absolute())
        try:
            paths, root = search.item(path)
        except InputError as exc:
            raise InputError(str(exc), key="input.path") from exc
        if not paths:
            raise InputError(f"{item}: no readable files{_skipped_ending(search.num_skipped)}", key="input.path")
        found.extend(_in_order(paths, root))
        roots.append(root)
    if not found:
        raise InputError("the job names no input path")
    if search.num_skipped:
        logger.info("skipped %s under the input, not of data files", counted(search.num_skipped, "name"))
    _refuse_twice(found)
    root = os.path.commonpath(roots)
    files = tuple(_describe(path, root, spec) for path in found)
    _refuse_mixed(files)
    return files


def _in_order(paths: list[Path], root: str) -> list[Path]:
    return sorted(paths, key=lambda path: _natural_key(os.path.relpath(path, root)))


def _skipped_ending(num_skipped: int) -> str:
    return f" ({num_skipped} skipped by name)" if num_skipped else ""


class _Search:
    """Goes through the items of one input and counts what it skips."""

    def __init__(self, file_format: InputFormat | None, exclude: tuple[str, ...]) -> None:
        self._format = file_format
        self._exclude = exclude
        self.num_skipped = 0

    def item(self, path: str) -> tuple[list[Path], str]:
        """Return one item's files, unordered, and the root that their names are relative to."""
        mode = _mode(path)
        if mode is None and glob.has_magic(path):
            return self._glob(path)
        if mode is None:
            raise InputError(f"{path}: there is no such file or directory")
        if stat.S_ISDIR(mode):
            return list(self._walk(path)), path
        if not stat.S_ISREG(mode):
            raise InputError(f"{path}: is not a regular file")
        if self._is_excluded(path):
            raise InputError(f"{path}: lies in the job's own output")
        if _format_of(path, self._format) is None:
            endings = ", ".join(FORMAT_BY_SUFFIX)
            raise InputError(f"{path}: its ending tells no format (known: {endings}); set input.format")
        return [Path(path)], str(Path(path).parent)

    def _glob(self, pattern: str) -> tuple[list[Path], str]:
        parts = PurePosixPath(pattern).parts
        num_literal = 1
        while num_literal < len(parts) and (
            not glob.has_magic(parts[num_literal]) or _mode(str(PurePosixPath(*parts[: num_literal + 1]))) is not None
        ):
            num_literal += 1  # a folder that is really called `news [2024]` is no pattern
        if num_literal == len(parts):
            raise InputError(f"{pattern}: there is no such file or directory")
        root = str(PurePosixPath(*parts[:num_literal]))
        magic = parts[num_literal:]
        spelled_out = any(part.startswith(_SKIPPED_PREFIXES) for part in magic)
        # Path.glob lists only folders for a closing `**` before Python 3.13, and files as well from there on.
        matches = glob.glob(str(PurePosixPath(glob.escape(root), *magic)), recursive=True)  # noqa: PTH207 - see above
        if not matches:
            raise InputError(f"{pattern}: nothing matches")
        paths: list[Path] = []
        for match in matches:
            mode = _mode(match)
            if mode is not None and stat.S_ISDIR(mode):
                if "**" not in magic and not self._skips(os.path.relpath(match, root), spelled_out=spelled_out):
                    paths.extend(self._walk(match))
            elif not self._skips(os.path.relpath(match, root), spelled_out=spelled_out):
                paths.extend(self._keep(match))
        return paths, root

    def _skips(self, relative: str, *, spelled_out: bool) -> bool:
        skipped = not spelled_out and any(part.startswith(_SKIPPED_PREFIXES) for part in relative.split("/"))
        self.num_skipped += skipped
        return skipped

    def _walk(self, top: str) -> Iterator[Path]:
        if self._is_excluded(top):
            return
        for folder, folders, names in os.walk(top, followlinks=True, onerror=_refuse_unreadable):
            kept = [name for name in folders if not name.startswith(_SKIPPED_PREFIXES)]
            self.num_skipped += len(folders) - len(kept)
            folders[:] = [name for name in kept if not self._is_excluded(f"{folder}/{name}")]
            for path in (Path(folder, name) for name in folders):
                if path.is_symlink() and Path(folder).resolve().is_relative_to(path.resolve()):
                    raise InputError(f"{path}: is a link to a folder above itself")
            for name in names:
                if name.startswith(_SKIPPED_PREFIXES):
                    self.num_skipped += 1
                else:
                    yield from self._keep(f"{folder}/{name}")

    def _keep(self, path: str) -> Iterator[Path]:
        """Yield the path if it is a data file; count it as skipped if not."""
        if self._is_excluded(path):
            return
        mode = _mode(path)
        if mode is not None and stat.S_ISREG(mode) and _format_of(path, self._format) is not None:
            yield Path(path)
        else:
            self.num_skipped += 1

    def _is_excluded(self, path: str) -> bool:
        real = os.path.realpath(path)
        return any(real == tree or real.startswith(tree.rstrip("/") + "/") for tree in self._exclude)


def _mode(path: str) -> int | None:
    try:
        return Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        raise InputError(f"{path!a}: cannot be looked at: {exc}") from exc


def _format_of(path: str, stated: InputFormat | None) -> InputFormat | None:
    """Return a file's format, None where nothing tells it; refuse a compressed text file."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes[-2:]]
    if suffixes and suffixes[-1] in _COMPRESSED_SUFFIXES:
        inner = FORMAT_BY_SUFFIX.get(suffixes[0]) if len(suffixes) == 2 else None
        if stated not in (None, "parquet") or inner is not None:
            raise InputError(f"{path}: compressed files are not read; decompress it first")
    if stated is not None:
        return stated
    return FORMAT_BY_SUFFIX.get(suffixes[-1]) if suffixes else None


def _refuse_unreadable(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be listed: {error.strerror}") from error


def _refuse_twice(paths: list[Path]) -> None:
    seen: dict[str, Path] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            raise InputError(f"{path}: is reached twice (also as {seen[real]}); its rows would count double")
        seen[real] = path


def _refuse_mixed(files: tuple[FoundFile, ...]) -> None:
    first = files[0]
    for file in files:
        if file.format != first.format:
            raise InputError(
                f"{first.path} is {first.format} and {file.path} is {file.format}: one input has one format",
            )
    keys = [key for key, _ in first.partitions]
    for file in files:
        if [key for key, _ in file.partitions] != keys:
            own = "/".join(key for key, _ in file.partitions) or "none"
            raise InputError(
                f"{file.path}: its folder names give the keys {own}, those of {first.path}: {'/'.join(keys) or 'none'}",
            )
    if len(set(keys)) != len(keys):
        raise InputError(f"{first.path}: a key occurs twice in its folder names")


def _describe(path: Path, root: str, spec: ReadSpec) -> FoundFile:
    name = os.path.relpath(path, root)
    try:
        str(path).encode()
    except UnicodeEncodeError as exc:
        raise InputError(f"{str(path)!a}: the name is not UTF-8, and would not survive in a column; rename it") from exc
    file_format = _format_of(str(path), spec.format)
    if file_format is None:
        raise InputError(f"{path}: its ending tells no format")
    try:
        status = path.stat()
    except OSError as exc:
        raise InputError(f"{path}: cannot be looked at: {exc.strerror}") from exc
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: no permission to read it")
    if status.st_size == 0:
        raise InputError(f"{path}: the file has no bytes at all")
    return FoundFile(
        path=path,
        name=name,
        format=file_format,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        partitions=_partitions(name) if spec.partitions == "keep" else (),
    )


def _partitions(name: str) -> tuple[tuple[str, str], ...]:
    """Read the key=value folders of a name, undoing Hive's percent escapes and changing nothing else.

    >>> _partitions("day=01/city=a%2Fb/part-0.parquet")
    (('day', '01'), ('city', 'a/b'))
    """
    pairs = (folder.split("=", 1) for folder in name.split("/")[:-1] if "=" in folder)
    try:
        return tuple((unquote(key, errors="strict"), unquote(value, errors="strict")) for key, value in pairs)
    except UnicodeDecodeError as exc:
        raise InputError(f"{name}: the percent escapes of its folder names are not UTF-8") from exc


def _natural_key(name: str) -> tuple[list[list[tuple[int, int, str]]], str]:
    """Order names as people do, folder by folder; names that differ only in leading zeros by their characters.

    >>> sorted(["part-10", "part-2"], key=_natural_key)
    ['part-2', 'part-10']
    """
    key = [
        [(0, int(run), "") if run.isdecimal() else (1, 0, run) for run in re.split(r"([0-9]+)", part) if run]
        for part in name.split("/")
    ]
    return key, name
