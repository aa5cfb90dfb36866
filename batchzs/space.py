"""How much disk a run will take, said before it starts: finding out at four in the morning is late.

An estimate. What batchzs adds is counted as if nothing compressed, which floats hardly do; carried columns are taken to
need as much again as the input files that they come from.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

from batchzs.logs import fields

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.job import JobConfig

logger = logging.getLogger(__name__)

#: Positions, statuses, counts and the best label of a row.
_BYTES_PER_ROW = 24
_BYTES_PER_FLOAT = 4
#: A label's place in the dictionary and its score, in a list of the top N.
_BYTES_PER_TOP_LABEL = 8


def estimated_bytes(job: JobConfig, num_rows: int, input_bytes: int) -> int:
    """Estimate what so many rows of output take on disk, with the journal of one shard.

    Args:
        job: says which columns there are.
        num_rows: rows that are still to be written.
        input_bytes: the size of the input that these rows come from.
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
    return num_rows * per_row + journal_bytes + (input_bytes if job.input.keep else 0)


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

    >>> format_bytes(999), format_bytes(1_500_000), format_bytes(24e9)
    ('1 kB', '1.5 MB', '24.0 GB')
    """
    if size_bytes < 1e6:
        return f"{max(1, round(size_bytes / 1e3))} kB"
    for unit, factor in (("MB", 1e6), ("GB", 1e9)):
        if size_bytes < 1000 * factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes / 1e12:.1f} TB"
