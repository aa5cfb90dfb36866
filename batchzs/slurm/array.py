"""From a job to tasks in Slurm's queue: what is unfinished, the scripts for it, and `sbatch`.

What stands in the scripts is `script`'s, what is unfinished `finish`'s. Nothing here waits for a task or watches
one.
"""

from __future__ import annotations

import logging
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.durable import make_folders, publish_bytes, refuse_links
from batchzs.errors import MachineError
from batchzs.finish import unfinished_parts
from batchzs.logs import fields, log_to_file
from batchzs.resume import describe_indices
from batchzs.slurm.script import array_script, finish_script

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.job import JobConfig
    from batchzs.paths import RunPaths
    from batchzs.slurm.run_arguments import RunArguments
    from batchzs.slurm.script import Program, SlurmOptions

logger = logging.getLogger(__name__)

#: What Slurm says, in part, and what a user can do about it here.
_HINTS = (
    ("invalid job array", "fewer --tasks: `scontrol show config` says how far an array may go (MaxArraySize)"),
    ("node configuration", "no node has what is asked for: fewer --gpus, or another --sbatch --partition=..."),
    ("gres", "--gpus N or --sbatch --gres=... ask for other GPUs, --gpus 0 or engine.device: cpu for none"),
    ("partition", "name one with --sbatch --partition=..."),
    ("account", "name one with --sbatch --account=..."),
    ("time limit", "give one with --sbatch --time=..."),
)


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """What is to be submitted of a run."""

    paths: RunPaths
    options: SlurmOptions
    parts: tuple[int, ...]  # the unfinished ones, from 1
    array_script: str | None  # None: every shard is there
    finish_script: str

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to do, not even the end."""
        return self.array_script is None and self.paths.success.exists() and self.paths.summary.exists()


@dataclass(frozen=True, slots=True)
class WrittenScripts:
    """The files that scripts were written to."""

    array: Path | None  # None: every shard is there
    finish: Path


@dataclass(frozen=True, slots=True)
class Submission:
    """The jobs that Slurm has taken."""

    array_id: str | None
    finish_id: str


def plan_array(
    paths: RunPaths, job: JobConfig, arguments: RunArguments, options: SlurmOptions, program: Program
) -> ArrayPlan:
    """See what is unfinished and write the scripts for it; the folder of Slurm's logs is made.

    Args:
        paths: the output.
        job: the job, read with the same options.
        arguments: what the tasks are told of it.
        options: what is asked of Slurm.
        program: how batchzs is started.

    Raises:
        UsageError: something cannot be written into a script.
        OtherJobError: another job began this output.
        MachineError: the folder cannot be made.
        DifferenceError: the output's state is damaged.
    """
    selection, new_files = arguments.selection, arguments.new_files
    parts = tuple(unfinished_parts(paths, job, selection, options.num_tasks, new_files=new_files))
    finish_words = [*arguments.job_words(), "--tasks", str(options.num_tasks)]
    plan = ArrayPlan(
        paths=paths,
        options=options,
        parts=parts,
        array_script=array_script(options, paths, program, arguments.run_words(), parts) if parts else None,
        finish_script=finish_script(options, paths, program, finish_words),
    )
    refuse_links(paths.state, *paths.folders)
    make_folders(paths.slurm, paths.temporary)  # a task whose log cannot be opened fails without a word
    return plan


def write_scripts(plan: ArrayPlan, path: Path) -> WrittenScripts:
    """Write the array's script, and the closing step's beside it.

    Args:
        plan: what is to be submitted.
        path: the array's script; the other one has the same name with -finish.

    Raises:
        MachineError: a file cannot be written.
    """
    finish_path = path.with_name(path.name + "-finish")
    try:
        if plan.array_script is not None:
            path.write_text(plan.array_script, encoding="utf-8")
        finish_path.write_text(plan.finish_script, encoding="utf-8")
    except OSError as exc:
        raise MachineError(f"{exc.filename}: cannot be written: {exc.strerror}") from exc
    return WrittenScripts(path if plan.array_script is not None else None, finish_path)


def submit_array(plan: ArrayPlan) -> Submission:
    """Submit the array, and the closing step that Slurm starts when every task of it has ended, however it ended.

    Raises:
        MachineError: Slurm is not there, or refuses; whether the array is submitted by then is said.
    """
    paths = plan.paths
    log_to_file(paths.slurm_submit_log)
    array_id, dependency = None, []
    if plan.array_script is not None:
        array_id = _submit(paths, paths.slurm_array_script, plan.array_script)
        dependency = [f"--dependency=afterany:{array_id}"]
        _log(f"submitted array {array_id}: {describe_parts(plan)}", array=array_id, parts=len(plan.parts))
    try:
        finish_id = _submit(paths, paths.slurm_finish_script, plan.finish_script, *dependency)
    except MachineError as exc:
        if array_id is None:
            raise
        raise MachineError(
            f"{exc}. The array is submitted all the same, as {array_id}: `batchzs finish` on this job can be run by "
            "hand when it has ended"
        ) from exc
    _log(f"submitted the closing step {finish_id}", closing=finish_id)
    return Submission(array_id, finish_id)


def describe_parts(plan: ArrayPlan) -> str:
    """Say in a few words which parts are to be submitted."""
    num_tasks = plan.options.num_tasks
    if len(plan.parts) == num_tasks:
        return f"all {num_tasks} parts"
    return f"{len(plan.parts)} of {num_tasks} parts are unfinished: {describe_indices(plan.parts)}"


def _log(message: str, **values: object) -> None:
    logger.info("%s", message, extra=fields("submitted", **values))


def _submit(paths: RunPaths, path: Path, script: str, *options: str) -> str:
    """Keep a script and submit it; see that Slurm gives it an id."""
    publish_bytes(path, script.encode(), paths.temporary)
    try:
        ended = subprocess.run(  # noqa: S603 - a fixed program, and a file of ours
            ["sbatch", "--parsable", *options, path],  # noqa: S607 - where it lies differs from cluster to cluster
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as exc:
        raise MachineError(
            "sbatch: not found on PATH: submit where Slurm is, on a login node, or write the script with --to FILE"
        ) from exc
    except OSError as exc:
        raise MachineError(f"sbatch: cannot be started: {exc.strerror}") from exc
    said = " ".join(os.fsdecode(ended.stderr).split())
    job_id = os.fsdecode(ended.stdout).strip().partition(";")[0]  # a cluster's name may follow
    if ended.returncode != 0 or not job_id.isdecimal():
        hint = next((hint for sign, hint in _HINTS if sign in said.lower()), None)
        raise MachineError(f"{path}: Slurm refuses it: {said or 'without a word'}{f'; {hint}' if hint else ''}")
    return job_id
