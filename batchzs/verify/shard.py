"""One shard's file held against its record, the plan and the job.

Everything is read: the bytes for their checksum, the rows for their order, the columns for their content.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from batchzs.engine import ScoringCounts, TextLogits
from batchzs.finished import is_there
from batchzs.inputs.dtypes import dtype_from_text
from batchzs.inputs.rows import ShardRows
from batchzs.output import label_shard, read_provenance
from batchzs.records import ShardRecord, input_digest_of, read_record
from batchzs.verify.columns import Finding, check_columns, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchzs.finished import FinishedRun
    from batchzs.plan import Shard

#: What reading a damaged Parquet file raises. MemoryError: a damaged length asks for more than there is.
BROKEN = (OSError, pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What one shard's file turned out to be."""

    findings: tuple[Finding, ...]
    record: ShardRecord | None
    is_there: bool = True
    num_bytes: int = 0
    num_rows: int = 0
    num_ok: int | None = None  # scored rows; None where rows or columns are not the job's


def layout_schema(run: FinishedRun) -> pa.Schema:
    """The schema that each shard's file has: that of a shard without rows, written and read back."""
    carried = pl.DataFrame(schema={column.name: dtype_from_text(column.dtype) for column in run.inputs.carried})
    rows = ShardRows([], [], [], carried, [], np.empty(0, dtype=np.int64))
    nothing = np.empty(0, dtype=bool)
    logits = np.empty((0, len(run.job.labels), run.record.model.num_classes), dtype=np.float32)
    scored = TextLogits(logits, np.empty(0, dtype=np.int32), nothing, nothing, nothing, ScoringCounts())
    file = io.BytesIO()
    table = label_shard(run.job, run.classes, rows, scored).table
    if run.record.decided is not None and run.record.decided.close_column is not None:
        table = table.append_column(run.column(run.record.decided.close_column), pa.array([], pa.bool_()))
    pq.write_table(table.replace_schema_metadata(), file)
    return pq.read_schema(io.BytesIO(file.getvalue()))


def check_shard(run: FinishedRun, shard: Shard, schema: pa.Schema) -> ShardReport:
    """Check one shard.

    Args:
        run: the run.
        shard: as planned.
        schema: that of every shard, from `layout_schema`.
    """
    path = run.paths.shard(shard.index)
    name = run.name(path)
    record = read_record(run.paths.shard_record(shard.index), ShardRecord)
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            num_bytes = file.tell()
    except FileNotFoundError:
        return ShardReport((Finding(name, "is missing; run the job again"),), record, is_there=False)
    except OSError as exc:
        return ShardReport((Finding(name, f"cannot be read: {exc.strerror}"),), record)
    findings = list(_file_faults(run, shard, record, num_bytes, sha256))
    try:
        with pq.ParquetFile(path) as parquet:
            footer, found_schema = parquet.metadata, parquet.schema_arrow
        table = pq.read_table(path, partitioning=None)
        table.validate(full=True)  # offsets and UTF-8 too, so that what follows meets no surprise
    except BROKEN as exc:
        findings.append(Finding(name, f"cannot be read as Parquet ({_one_line(exc)}): remove it and run the job again"))
        return ShardReport(tuple(findings), record, num_bytes=num_bytes)
    findings += _provenance_faults(run, shard, footer)
    schema_faults = list(_schema_faults(name, schema, found_schema))
    findings += schema_faults
    if schema_faults:
        return ShardReport(tuple(findings), record, num_bytes=num_bytes, num_rows=table.num_rows)
    row_faults = list(_row_faults(run, shard, table))
    columns = columns_of(run.job, run.classes, run.record.model.num_classes, name, table)
    if isinstance(columns, Finding):
        row_faults.append(columns)
        num_ok = None
    else:
        other = run.record.decided.other if run.record.decided is not None else None
        findings += check_columns(replace(columns, other=other))
        findings += _count_faults(run, shard, record, columns.statuses, table)
        num_ok = int(columns.ok.sum())
    return ShardReport(
        tuple(findings + row_faults),
        record,
        num_bytes=num_bytes,
        num_rows=table.num_rows,
        num_ok=None if row_faults else num_ok,
    )


def _file_faults(
    run: FinishedRun, shard: Shard, record: ShardRecord | None, num_bytes: int, sha256: str
) -> Iterator[Finding]:
    """The record: there, of this shard, and with this file's size and checksum."""
    path = run.paths.shard_record(shard.index)
    if record is None:
        what = "is damaged: remove it and" if is_there(path) else "is missing:"
        yield Finding(
            run.name(path), f"{what} run the job again, which makes it anew; the shard's checksum is not known"
        )
        return
    for key, wanted in (("index", shard.index), ("first_row", shard.first_row), ("num_rows", shard.num_rows)):
        if getattr(record, key) != wanted:
            yield Finding(run.name(path), f"says {key} {getattr(record, key)}, the plan says {wanted}")
    file = run.name(run.paths.shard(shard.index))
    if record.size_bytes != num_bytes:
        yield Finding(file, f"has {num_bytes} bytes, its record says {record.size_bytes}")
    if record.sha256 != sha256:
        yield Finding(file, f"its bytes have SHA-256 {sha256[:12]}..., its record says {record.sha256[:12]}...")


def _provenance_faults(run: FinishedRun, shard: Shard, footer: pq.FileMetaData) -> Iterator[Finding]:
    file = run.name(run.paths.shard(shard.index))
    provenance = read_provenance(footer)
    if provenance is None:
        yield Finding(file, "its footer does not say what made it: expected metadata under the key batchzs")
        return
    expected = {
        "fingerprint": run.fingerprint_digest,
        "shard": shard.index,
        "first_row": shard.first_row,
        "num_rows": shard.num_rows,
        "input": input_digest_of(run.record, run.known.generations, shard.generation),
    }
    for key, wanted in expected.items():
        if provenance.get(key) != wanted:
            yield Finding(file, f"its footer says {key} {provenance.get(key)}, expected {wanted}")


def _schema_faults(file: str, wanted: pa.Schema, found: pa.Schema) -> Iterator[Finding]:
    """Names, order, types; the first fault of each kind says enough."""
    if found.names != wanted.names:
        missing = [name for name in wanted.names if name not in found.names]
        additional = [name for name in found.names if name not in wanted.names]
        what = f"lacks {', '.join(missing)}" if missing else ""
        if additional:
            what += f"{' and ' if what else ''}has {', '.join(additional)} besides"
        yield Finding(file, f"its columns are not the job's: {what or 'their order is another one'}")
        return
    for name in wanted.names:
        types = [_type_text(schema.field(name).type) for schema in (found, wanted)]
        if types[0] != types[1]:
            yield Finding(file, f"has type {types[0]}, expected {types[1]}", column=name)


def _type_text(data_type: pa.DataType) -> str:
    """A type's name, whichever of Arrow's layouts for strings, bytes and lists the libraries' versions prefer."""
    return str(data_type).replace("large_", "").replace("string_view", "string").replace("binary_view", "binary")


def _row_faults(run: FinishedRun, shard: Shard, table: pa.Table) -> Iterator[Finding]:
    """Every planned input row once, in order."""
    file = run.name(run.paths.shard(shard.index))
    if table.num_rows != shard.num_rows:
        yield Finding(file, f"has {table.num_rows} rows, expected {shard.num_rows}")
    files = np.array([run.inputs.files[span.file_index].found.name for span in shard.spans], dtype=object)
    lengths = np.array([span.num_rows for span in shard.spans], dtype=np.int64)
    names = np.repeat(files, lengths)
    rows = np.concatenate(
        [np.empty(0, dtype=np.int64), *(np.arange(span.start, span.stop, dtype=np.int64) for span in shard.spans)]
    )
    num_both = min(len(rows), table.num_rows)
    found_names, found_rows = (
        np.array(table.column(run.column(name))[:num_both].to_pylist(), dtype=object)
        for name in ("source_file", "source_row")
    )
    differing = np.flatnonzero((found_names != names[:num_both]) | (found_rows != rows[:num_both]))
    if len(differing):
        first = differing[0]
        yield Finding(
            file,
            f"holds row {found_rows[first]} of {found_names[first]}, expected row {rows[first]} of {names[first]}"
            + (f" (and {len(differing) - 1} more rows are not in their place)" if len(differing) > 1 else ""),
            int(first),
            run.column("source_row"),
        )


def _count_faults(
    run: FinishedRun, shard: Shard, record: ShardRecord | None, statuses: np.ndarray, table: pa.Table
) -> Iterator[Finding]:
    """What the record counts, counted again."""
    if record is None:
        return
    labels = table.column(run.column("label")).to_pylist()
    counted = {
        "statuses": dict(Counter(statuses.tolist())),
        "labels": dict(Counter(label for label in labels if label is not None)),
        "num_truncated": sum(table.column(run.column("truncated")).to_pylist()),
    }
    for key, count in counted.items():
        if getattr(record, key) != count:
            file = run.name(run.paths.shard_record(shard.index))
            yield Finding(file, f"says {key} {getattr(record, key)}, the shard holds {count}")


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:200] or type(exc).__name__
