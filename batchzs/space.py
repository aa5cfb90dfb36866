"""How much disk a run will take, said before it starts: finding out at four in the morning is late.

An estimate. What batchzs adds is counted as if nothing compressed, which floats hardly do; carried columns are taken to
need as much again as they take in Parquet files, or as text files take as a whole.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

from batchzs.logs import fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchzs.inputs.rows import InputFile
    from batchzs.job import JobConfig

logger = logging.getLogger(__name__)

#: Positions, statuses, counts and the best label of a row.
_BYTES_PER_ROW = 24
_BYTES_PER_FLOAT = 4
#: A label's place in the dictionary and its score, in a list of the top N.
_BYTES_PER_TOP_LABEL = 8
#: Parquet files whose footers are read: of ten thousand small ones, enough to tell.
_FOOTERS = 100


def estimated_bytes(job: JobConfig, num_rows: int, carried: int) -> int:
    """Estimate what so many rows of output take on disk, with the journal of one shard.

    Args:
        job: says which columns there are.
        num_rows: rows that are still to be written.
        carried: what their carried columns take, as `carried_bytes` says.
    """
    num_labels = len(job.labels)
    per_row = _BYTES_PER_ROW
    if job.resolved_scores == "all":
        per_row += _BYTES_PER_FLOAT * num_labels
    elif job.resolved_scores != "none":
        per_row += _BYTES_PER_TOP_LABEL * job.resolved_scores
    logits_bytes = 3 * _BYTES_PER_FLOAT * num_labels
    if job.resolved_logits:
        per_row += logits_bytes
    journal_bytes = min(num_rows, job.resolved_shard_rows) * logits_bytes
    return num_rows * per_row + journal_bytes + carried


def carried_bytes(job: JobConfig, files: Sequence[InputFile]) -> int:
    """Estimate what the carried columns of whole files take: by Parquet's footers, or as much as a text file.

    Args:
        job: says which columns are carried.
        files: the input, as a first pass found it. Of many, some are looked at and stand for all.
    """
    keep = job.input.keep
    if not keep:
        return 0
    total = sum(file.found.size_bytes for file in files)
    if keep == "all" or any(file.found.format != "parquet" for file in files):
        return total
    some = files[:: -(-len(files) // _FOOTERS) or 1]
    looked_at = sum(file.found.size_bytes for file in some)
    return round(total * sum(_columns_bytes(file.found.path, set(keep)) for file in some) / max(looked_at, 1))


def _columns_bytes(path: Path, names: set[str]) -> int:
    """What columns take in a Parquet file, compressed, with all that is nested in them.

    Where its footer cannot be read any more, the whole file: an estimate stops no run.
    """
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
    except (OSError, ValueError):
        return path.stat().st_size if path.exists() else 0
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    return sum(
        one.total_compressed_size
        for one in columns
        if one.path_in_schema in names or one.path_in_schema.partition(".")[0] in names
    )


def compare_space(folder: Path, needed_bytes: int) -> None:
    """Log what a run will need beside what is free, as a warning where it is more."""
    free_bytes = shutil.disk_usage(folder).free
    level = logging.WARNING if needed_bytes > free_bytes else logging.INFO
    logger.log(
        level,
        "disk: about %s needed, %s free in %s%s",
        format_bytes(needed_bytes),
        format_bytes(free_bytes),
        folder,
        "; the run goes on, ends with 8 when the disk is full, and the same command goes on from there"
        if level == logging.WARNING
        else "",
        extra=fields("disk", needed_bytes=needed_bytes, free_bytes=free_bytes),
    )


def format_bytes(size_bytes: float) -> str:
    """Write a size for people.

    >>> format_bytes(999), format_bytes(1_500_000), format_bytes(552.6e6), format_bytes(24e9)
    ('1 kB', '1.5 MB', '553 MB', '24.0 GB')
    """
    if size_bytes < 1e6:
        return f"{max(1, round(size_bytes / 1e3))} kB"
    for unit, factor in (("MB", 1e6), ("GB", 1e9)):
        number = size_bytes / factor
        if number < 999.5:
            return f"{number:.{1 if number < 100 else 0}f} {unit}"
    return f"{size_bytes / 1e12:.1f} TB"
