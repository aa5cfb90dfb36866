"""Where a job's key is written, for errors that are found only with the input or the model at hand.

The job file is read once more for it: whatever has happened to it meanwhile costs the place and not the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchzs.errors import UsageError
from batchzs.job_checks import apply_overrides
from batchzs.yaml_lines import read_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def placed(message: str, key: str, path: Path, overrides: Sequence[str]) -> str:
    """Put where a key is written before a message, as in messages about the job file.

    Args:
        message: what is wrong; it is not changed otherwise, but for the key where it does not name that.
        key: dotted; a key that is not written has its section's line.
        path: the job file.
        overrides: arguments of `--set`, which may have written it.
    """
    if key not in message:
        message = f"{key}: {message}"
    try:
        job = read_yaml(path)
        if isinstance(job.value, dict):
            apply_overrides(job, overrides)
    except UsageError:
        return message
    return f"{job.place(tuple(key.split('.')))}: {message}"
