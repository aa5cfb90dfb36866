"""The true labels of an output's rows: from a column that was carried along, or from the input by position.

What stands there is made text and stripped; nothing, and the empty text, mean that a row's truth is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from batchzs.errors import DifferenceError, InputError, UsageError
from batchzs.finished import input_file_now
from batchzs.inputs.dtypes import dtype_from_text, dtype_to_text
from batchzs.inputs.parquetfile import carried_columns, read_schema
from batchzs.inputs.pieces import list_names
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import CarriedColumn, InputSet
from batchzs.prepare import read_spec
from batchzs.verify.shard import BROKEN

if TYPE_CHECKING:
    from batchzs.finished import FinishedRun
    from batchzs.plan import Shard


@dataclass(frozen=True, slots=True)
class TruthColumn:
    """Where an output's true labels are."""

    run: FinishedRun
    name: str
    inputs: InputSet | None  # to read from, this column carried; None: it is in the shards

    def of(self, shard: Shard) -> pl.Series:
        """A shard's true labels: strings, null where not known.

        Raises:
            InputError: the input is not what it was.
            DifferenceError: the shard is damaged.
        """
        if self.inputs is None:
            path = self.run.paths.shard(shard.index)
            try:
                column = pl.Series(self.name, pq.read_table(path, columns=[self.name], partitioning=None).column(0))
            except BROKEN as exc:
                raise DifferenceError(
                    f"{path}: cannot be read as a shard of this run ({type(exc).__name__}): `batchzs verify` says more"
                ) from exc
        else:
            spec = replace(read_spec(self.run.job), keep=(self.name,))
            column = read_rows(spec, self.inputs, shard.spans).carried[self.name]
        text = column.cast(pl.String).str.strip_chars()
        return text.set(text == "", None).alias("truth")


def open_truth(run: FinishedRun, name: str) -> TruthColumn:
    """Find the column with the true labels.

    Args:
        run: the output.
        name: of the column.

    Raises:
        UsageError: there is none of this name, or it cannot hold a label a row.
        InputError: it was not carried, and the input is not what it was.
    """
    carried = {column.name: dtype_from_text(column.dtype) for column in run.inputs.carried}
    if name in carried:
        _refuse_type(name, carried[name])
        return TruthColumn(run, name, None)
    lacking = next((file for file in run.inputs.files if name not in file.field_names), None)
    if lacking is not None:
        known = list_names(list(dict.fromkeys([*carried, *lacking.field_names])))
        raise UsageError(
            f"--truth: there is no column {name!r}, neither among those carried along nor in {lacking.found.path}; "
            f"expected one of: {known}"
        )
    try:
        files = tuple(input_file_now(file) for file in run.inputs.files)
    except InputError as exc:
        raise InputError(
            f"--truth: {name!r} was not carried along, so it is read from the input, and there: {exc}"
        ) from exc
    dtype: pl.DataType = pl.String()
    if files and files[0].found.format == "parquet":
        dtype = carried_columns([name], [(file.found, read_schema(file.found)) for file in files])[name]
    _refuse_type(name, dtype)
    return TruthColumn(run, name, InputSet(files, (CarriedColumn(name, dtype_to_text(dtype)),)))


def _refuse_type(name: str, dtype: pl.DataType) -> None:
    if not (dtype.is_integer() or isinstance(dtype, pl.String | pl.Boolean | pl.Null)):
        raise UsageError(
            f"--truth: column {name!r} is of type {dtype}, expected one label a row: texts or whole numbers"
        )
