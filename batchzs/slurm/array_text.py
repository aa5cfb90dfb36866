"""What became of an array's scripts, for people and as JSON. Pure; what Slurm is told is `script`'s."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchzs.slurm.array import Submission, describe_parts

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.slurm.array import ArrayPlan, WrittenScripts


def format_scripts(plan: ArrayPlan, written: WrittenScripts) -> list[str]:
    """Write for people what was written, and how it is submitted."""
    if written.array is None:
        return [f"{'closing':<12}{written.finish}: every shard is there, and the end is not written"]
    return [
        f"{'array':<12}{written.array}: {describe_parts(plan)}",
        f"{'closing':<12}{written.finish}",
        f"{'submit':<12}{_submit_command(written.array, written.finish)}",
    ]


def format_submission(plan: ArrayPlan, submission: Submission) -> list[str]:
    """Write for people what was submitted and how it is followed."""
    if submission.array_id is None:
        lines = [f"{'array':<12}none: every shard is there"]
    else:
        lines = [f"{'array':<12}{submission.array_id}: {describe_parts(plan)}"]
    return [
        *lines,
        f"{'closing':<12}{submission.finish_id}{', after it' if submission.array_id else ''}",
        f"{'logs':<12}{plan.paths.slurm}",
        f"{'watch':<12}batchzs status {shlex.quote(str(plan.paths.output))} --watch 60",
    ]


def array_to_json(plan: ArrayPlan, made: WrittenScripts | Submission | None) -> dict[str, Any]:
    """What is unfinished, the scripts for it and what became of them, as values for JSON.

    Keys are always the same. Of a finished job both scripts are null; the array's alone where only the end is missing.

    Args:
        plan: what is to be submitted.
        made: the files that the scripts were written to, or the jobs that Slurm has taken; None: neither.
    """
    array, closing = _Whereabouts(), _Whereabouts()
    command = None
    if isinstance(made, Submission):
        array = _Whereabouts(plan.paths.slurm_array_script, made.array_id)
        closing = _Whereabouts(plan.paths.slurm_finish_script, made.finish_id)
    elif made is not None:
        array, closing = _Whereabouts(made.array), _Whereabouts(made.finish)
        if made.array is not None:
            command = _submit_command(made.array.absolute(), made.finish.absolute())
    options = plan.options
    return {
        "output": str(plan.paths.output),
        "logs": str(plan.paths.slurm),
        "is_finished": plan.is_finished,
        "num_tasks": options.num_tasks,
        "parts": list(plan.parts),
        "max_running": options.max_running,
        "gpus_per_task": options.num_gpus,
        "sbatch": list(options.extra),
        "finish_sbatch": list(options.finish_extra),
        "array": array.described(plan.array_script),
        "closing": closing.described(None if plan.is_finished else plan.finish_script),
        "submit_command": command,
    }


@dataclass(frozen=True, slots=True)
class _Whereabouts:
    """Where a script is, on disk and in Slurm's queue."""

    path: Path | None = None
    job_id: str | None = None

    def described(self, script: str | None) -> dict[str, str | None] | None:
        if script is None:
            return None
        return {
            "job_id": self.job_id,
            "path": None if self.path is None else str(self.path.absolute()),
            "script": script,
        }


def _submit_command(array: Path, finish: Path) -> str:
    first, second = shlex.quote(str(array)), shlex.quote(str(finish))
    return f"id=$(sbatch --parsable {first}) && sbatch --dependency=afterany:${{id%;*}} {second}"
