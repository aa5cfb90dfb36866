"""The first pass: read every input file once, so that a bad file is found before the model loads.

Gives each file its digest, its number of records, the places where blocks of records begin, and the carried columns
their types. Keeps no row: the second pass reads them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from batchzs.errors import InputError
from batchzs.inputs.csvfile import read_layout, scan_csv
from batchzs.inputs.dtypes import dtype_to_text
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
) -> InputSet:
    """Read, check and count all files.

    Args:
        spec: How the files are written, and which columns are needed.
        files: The files, as discovery found them.
        on_progress: Called with the number of bytes read since the last call.

    Returns:
        The frozen input.

    Raises:
        InputError: Anything that stays in no single record, or any bad record with `on_bad_rows: fail`.
    """
    if not files:
        raise InputError("there are no input files")
    _refuse_repeated(spec)
    freeze_format = {"parquet": _freeze_parquet, "csv": _freeze_csv, "tsv": _freeze_csv, "jsonl": _freeze_jsonl}
    try:
        scanned, carried = freeze_format[files[0].format](spec, files, on_progress)
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
    return InputSet(files=frozen, carried=tuple(columns))


_Frozen = tuple[list["ScannedFile"], "Mapping[str, pl.DataType]"]


def _refuse_repeated(spec: ReadSpec) -> None:
    for role, names in (("text", spec.text), ("keep", spec.keep)):
        if names != "all" and len(set(names)) != len(names):
            raise InputError(f"input.{role} names a column more than once: {', '.join(names)}")


def _freeze_csv(spec: ReadSpec, files: Sequence[FoundFile], on_progress: Callable[[int], None] | None) -> _Frozen:
    layouts = [read_layout(spec, found) for found in files]
    keep = _kept(spec, files, [layout.names for layout in layouts])
    for found, layout in zip(files, layouts, strict=True):
        require_columns(found, layout.names, spec.text, role="input.text")
        require_columns(found, layout.names, keep, role="input.keep")
    needed = list(dict.fromkeys([*spec.text, *keep]))
    scanned = [scan_csv(spec, found, layout, needed, on_progress) for found, layout in zip(files, layouts, strict=True)]
    return scanned, {name: pl.String() for name in keep}


def _freeze_jsonl(spec: ReadSpec, files: Sequence[FoundFile], on_progress: Callable[[int], None] | None) -> _Frozen:
    types = JsonTypes(spec)
    scanned = [scan_jsonl(spec, found, types, on_progress) for found in files]
    types.require_text(spec)
    return scanned, types.columns()


def _freeze_parquet(spec: ReadSpec, files: Sequence[FoundFile], on_progress: Callable[[int], None] | None) -> _Frozen:
    schemas = [(found, read_schema(found)) for found in files]
    for found, schema in schemas:
        check_text_columns(spec, found, schema)
    carried = carried_columns(_kept(spec, files, [tuple(schema) for _, schema in schemas]), schemas)
    scanned = [scan_parquet_file(spec, found, schema, carried, on_progress) for found, schema in schemas]
    return scanned, carried


def _kept(spec: ReadSpec, files: Sequence[FoundFile], names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the carried columns; with `keep: all`, those of the first file, which all others must have too."""
    if spec.keep != "all":
        return spec.keep
    for found, own in zip(files, names, strict=True):
        additional = [name for name in own if name not in names[0]]
        if additional:
            raise InputError(f"{found.path}: has a column {additional[0]!r} that {files[0].path} lacks (keep: all)")
    return names[0]
