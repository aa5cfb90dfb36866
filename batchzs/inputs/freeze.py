"""The first pass: read every input file once, so that a bad file is found before the model loads.

Gives each file its digest, its number of records, the places where blocks of records begin, and the carried columns
their types. Keeps no row: the second pass reads them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from batchzs.errors import InputError
from batchzs.inputs.csvfile import read_layout, scan_csv
from batchzs.inputs.dtypes import dtype_from_text, dtype_to_text
from batchzs.inputs.jsonl import JsonTypes, scan_jsonl
from batchzs.inputs.parquetfile import carried_columns, check_text_columns, read_schema, scan_parquet_file
from batchzs.inputs.pieces import require_columns
from batchzs.inputs.rows import CarriedColumn, InputFile, InputSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from batchzs.inputs.pieces import ScannedFile
    from batchzs.inputs.rows import FoundFile
    from batchzs.inputs.spec import ReadSpec


def freeze_inputs(
    spec: ReadSpec,
    files: Sequence[FoundFile],
    *,
    on_progress: Callable[[int], None] | None = None,
    known: InputSet | None = None,
) -> InputSet:
    """Read, check and count all files.

    Args:
        spec: How the files are written, and which columns are needed.
        files: The files, as discovery found them.
        on_progress: Called with the number of bytes read since the last call.
        known: The frozen input that these files are added to, whose carried columns and types stay as they are.

    Returns:
        The frozen input, of these files alone.

    Raises:
        InputError: Anything that stays in no single record, or any bad record with `on_bad_rows: fail`; or a carried
            column that is not as in `known`.
    """
    if not files:
        raise InputError("there are no input files")
    _refuse_repeated(spec)
    freeze_format = {"parquet": _freeze_parquet, "csv": _freeze_csv, "tsv": _freeze_csv, "jsonl": _freeze_jsonl}
    before = None if known is None else _Before.of(known)
    try:
        scanned, carried = freeze_format[files[0].format](spec, files, on_progress, before)
    except OSError as exc:
        raise InputError(f"{exc.filename}: cannot be read: {exc.strerror}") from exc
    columns = [CarriedColumn(name, dtype_to_text(dtype)) for name, dtype in carried.items()]
    for key, _ in files[0].partitions:
        if key in carried:
            raise InputError(f"{files[0].path}: {key!r} is a carried column and a folder name; set partitions: drop")
        columns.append(CarriedColumn(key, dtype_to_text(pl.String())))
    frozen = tuple(
        InputFile(
            found=found,
            digest=one.digest,
            num_rows=one.num_rows,
            num_bad_rows=one.num_bad_rows,
            seek_points=one.seek_points,
            bad_blocks=one.bad_blocks,
            field_names=one.field_names,
        )
        for found, one in zip(files, scanned, strict=True)
    )
    if known is not None and known.carried != tuple(columns):
        raise InputError(f"{files[0].path}: its carried columns are not those of the files before it")
    return InputSet(files=frozen, carried=tuple(columns))


@dataclass(frozen=True, slots=True)
class _Before:
    """The frozen input that files are added to."""

    first: FoundFile
    field_names: tuple[str, ...]  # of its first file
    all_names: tuple[str, ...]  # of all its files
    types: dict[str, pl.DataType]  # of carried columns that come from files and not from folder names

    @classmethod
    def of(cls, known: InputSet) -> _Before:
        first = known.files[0]
        from_folders = {key for key, _ in first.found.partitions}
        types = {one.name: dtype_from_text(one.dtype) for one in known.carried if one.name not in from_folders}
        names = dict.fromkeys(name for file in known.files for name in file.field_names)
        return cls(first.found, first.field_names, tuple(names), types)


_Frozen = tuple[list["ScannedFile"], "Mapping[str, pl.DataType]"]


def _refuse_repeated(spec: ReadSpec) -> None:
    for role, names in (("text", spec.text), ("keep", spec.keep)):
        if names != "all" and len(set(names)) != len(names):
            raise InputError(f"input.{role} names a column more than once: {', '.join(names)}", key=f"input.{role}")


def _freeze_csv(
    spec: ReadSpec, files: Sequence[FoundFile], on_progress: Callable[[int], None] | None, before: _Before | None
) -> _Frozen:
    layouts = [read_layout(spec, found) for found in files]
    keep = _kept(spec, files, [layout.names for layout in layouts], before)
    for found, layout in zip(files, layouts, strict=True):
        require_columns(found, layout.names, spec.text, role="input.text")
        require_columns(found, layout.names, keep, role="input.keep")
    needed = list(dict.fromkeys([*spec.text, *keep]))
    scanned = [scan_csv(spec, found, layout, needed, on_progress) for found, layout in zip(files, layouts, strict=True)]
    return scanned, {name: pl.String() for name in keep}


def _freeze_jsonl(
    spec: ReadSpec, files: Sequence[FoundFile], on_progress: Callable[[int], None] | None, before: _Before | None
) -> _Frozen:
    types = JsonTypes(spec)
    if before is not None:
        types.start_with(before.all_names, before.types)
    scanned = []
    for found in files:
        scanned.append(scan_jsonl(spec, found, types, on_progress))
        if before is not None:
            _refuse_other_types(found, types.columns(), before)
    types.require_text(spec)
    return scanned, types.columns()


def _freeze_parquet(
    spec: ReadSpec, files: Sequence[FoundFile], on_progress: Callable[[int], None] | None, before: _Before | None
) -> _Frozen:
    schemas = [(found, read_schema(found)) for found in files]
    for found, schema in schemas:
        check_text_columns(spec, found, schema)
    keep = _kept(spec, files, [tuple(schema) for _, schema in schemas], before)
    if before is None:
        carried = carried_columns(keep, schemas)
    else:
        carried = before.types
        for one in schemas:
            _refuse_other_types(one[0], carried_columns(keep, [(before.first, carried), one]), before)
    scanned = [scan_parquet_file(spec, found, schema, carried, on_progress) for found, schema in schemas]
    return scanned, carried


def _refuse_other_types(found: FoundFile, types: Mapping[str, pl.DataType], before: _Before) -> None:
    """Refuse a file with which the carried columns would be others than before."""
    for name, dtype in types.items():
        if name not in before.types:
            raise InputError(f"{found.path}: has {name!r}, which no file before it has (keep: all)")
        if dtype != before.types[name]:
            raise InputError(
                f"{found.path}: column {name!r} (input.keep) would have to be {dtype} with this file, and is "
                f"{before.types[name]} in the output that it is added to"
            )


def _kept(
    spec: ReadSpec, files: Sequence[FoundFile], names: Sequence[tuple[str, ...]], before: _Before | None
) -> tuple[str, ...]:
    """Return the carried columns; with `keep: all`, those of the first file, which all others must have too."""
    if spec.keep != "all":
        return spec.keep
    first, first_names = (files[0], names[0]) if before is None else (before.first, before.field_names)
    for found, own in zip(files, names, strict=True):
        additional = [name for name in own if name not in first_names]
        if additional:
            raise InputError(f"{found.path}: has a column {additional[0]!r} that {first.path} lacks (keep: all)")
    return first_names
