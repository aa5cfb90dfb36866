"""What the readers need to know of a job: which files, which columns, and how the files are written.

Types only. The job's own schema holds the defaults and checks its values; here everything is already decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from batchzs.inputs.rows import InputFormat


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The part of a job that finding, freezing and reading input files depends on."""

    path: str | tuple[str, ...]  # absolute: a file, a directory, a glob, or a list of them
    format: InputFormat | None  # None: by the files' endings
    text: tuple[str, ...]  # the columns that make the text, in order
    separator: str  # between the text columns; null parts are skipped
    keep: tuple[str, ...] | Literal["all"]  # the carried columns
    partitions: Literal["drop", "keep"]  # keep: key=value folder names become carried columns
    encoding: str  # a codec name of Python's, for text formats
    delimiter: str | None  # of CSV; None: the format's own, a comma or a tab
    quote: str | None  # of CSV; None: quotes are ordinary characters
    header: bool  # False: the columns of CSV are called column_0, column_1, ...
    null_values: tuple[str, ...]  # of CSV: fields that mean null, compared exactly
    on_bad_rows: Literal["quarantine", "fail"]
