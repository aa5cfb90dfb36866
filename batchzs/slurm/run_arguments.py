"""The options of `run` that make a run what it is, written out for a script that starts it later, from elsewhere.

Nothing here is about Slurm, and nothing is quoted for a shell.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchzs.job_checks import apply_overrides, resolve_paths, value_at
from batchzs.located import Place
from batchzs.yaml_lines import parse_yaml

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from batchzs.plan import Selection


@dataclass(frozen=True, slots=True)
class RunArguments:
    """What a user says of a run beside the job file; an option added to `run` has its place here."""

    job: Path
    overrides: tuple[str, ...]
    selection: Selection
    date: dt.date | None = None  # the day in the job's paths
    offline: bool = False
    new_files: bool = False
    log_format: str = "plain"

    def job_words(self) -> list[str]:
        """The job and what is put over it: what every command on this job is given."""
        words = [str(self.job.absolute())]
        for override in absolute_overrides(self.overrides):
            words += ["--set", override]
        words += ["--date", self.date.isoformat()] if self.date is not None else []
        return words + (["--log-format", self.log_format] if self.log_format != "plain" else [])

    def run_words(self) -> list[str]:
        """The arguments of `batchzs run` that bring the same run about."""
        words = self.job_words()
        for name in ("limit", "sample"):
            value = getattr(self.selection, name)
            words += [f"--{name}", str(value)] if value is not None else []
        words += ["--seed", str(self.selection.seed)] if self.selection.sample is not None else []
        flags = (("--offline", self.offline), ("--new-files", self.new_files))
        return words + [flag for flag, is_given in flags if is_given]


def absolute_overrides(overrides: Sequence[str]) -> list[str]:
    """Write the paths in `--set` options out, so that they mean the same in any working directory.

    Args:
        overrides: the options' arguments, of a job that was read with them and found right.

    >>> absolute_overrides(["engine.device=cpu", "output.path=/out/news"])
    ['engine.device=cpu', 'output.path=/out/news']
    """
    return [_absolute(override) for override in overrides]


def _absolute(override: str) -> str:
    job = parse_yaml("{}", Place("--set", Path()))
    apply_overrides(job, [override])
    key, _, _ = override.partition("=")
    path = tuple(key.strip().split("."))
    _, before = value_at(job, path)
    before = deepcopy(before)
    resolve_paths(job)
    _, after = value_at(job, path)
    # JSON is YAML too, and says what is a text.
    return override if after == before else f"{key.strip()}={json.dumps(after, ensure_ascii=False)}"
