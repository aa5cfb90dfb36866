"""Every name that a run has on disk.

`scores/` holds whole Parquet shards and nothing else, so that any tool opens it at any moment; everything else,
temporary files included, lies in `state/`. `_SUCCESS` is there when every shard is, and only then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from batchzs.tasks import Task


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The names below one output directory."""

    output: Path

    @property
    def scores(self) -> Path:
        """The folder of Parquet shards."""
        return self.output / "scores"

    @property
    def success(self) -> Path:
        """The empty file that says that every shard is there."""
        return self.output / "_SUCCESS"

    @property
    def report(self) -> Path:
        """The page about this output, where one was asked for."""
        return self.output / "report.html"

    @property
    def state(self) -> Path:
        """The folder of everything else."""
        return self.output / "state"

    @property
    def run_record(self) -> Path:
        """What the run is: job, fingerprint, resolved settings, model."""
        return self.state / "run.json"

    @property
    def inputs(self) -> Path:
        """The frozen list of input files."""
        return self.state / "inputs.json"

    def staged_inputs(self, digest: str) -> Path:
        """The frozen list until the run's record is there; the name is the content's, so that no other list has it."""
        return self.state / f"inputs-{digest[:16]}.json"

    def all_staged_inputs(self) -> list[Path]:
        """Every such list there is."""
        return sorted(self.state.glob("inputs-*.json"))

    def generation(self, number: int) -> Path:
        """The files that were added to the input as one generation; the first one, in `inputs`, is number 1."""
        return self.state / f"generation-{number:05d}.json"

    @property
    def summary(self) -> Path:
        """Every number of the closing summary."""
        return self.state / "summary.json"

    @property
    def log(self) -> Path:
        """The run log; every attempt appends."""
        return self.state / "run.log"

    def task_log(self, task: Task) -> Path:
        """The log of one part; every attempt appends."""
        return self.tasks / f"{task.name}.log"

    def task_lock(self, task: Task) -> Path:
        """The file whose kernel lock keeps a second run of the same part out."""
        return self.tasks / f"{task.name}.lock"

    @property
    def metrics(self) -> Path:
        """The run's numbers for Prometheus."""
        return self.state / "metrics.prom"

    def task_metrics(self, task: Task) -> Path:
        """The numbers of one part for Prometheus."""
        return self.tasks / f"{task.name}.prom"

    @property
    def plan_lock(self) -> Path:
        """The file whose kernel lock the first task holds while it settles the run."""
        return self.tasks / "plan.lock"

    @property
    def finish_lock(self) -> Path:
        """The file whose kernel lock a task holds while it finishes the run."""
        return self.tasks / "finish.lock"

    @property
    def attempt(self) -> Path:
        """The number of the last attempt that scored."""
        return self.state / "attempt"

    def slurm_day(self, name: str) -> Path:
        """The note of the day that a Slurm job began with."""
        return self.state / f"day.{name}"

    @property
    def lock(self) -> Path:
        """The file whose kernel lock keeps a second run out."""
        return self.state / "run.lock"

    @property
    def shard_records(self) -> Path:
        """The folder of one small record a shard."""
        return self.state / "shards"

    @property
    def journals(self) -> Path:
        """The folder of progress inside shards."""
        return self.state / "journal"

    @property
    def tasks(self) -> Path:
        """The folder of the parts' locks and logs."""
        return self.state / "tasks"

    @property
    def slurm(self) -> Path:
        """The folder of the scripts that Slurm was given, and of what its tasks print."""
        return self.state / "slurm"

    @property
    def slurm_array_script(self) -> Path:
        """The script of the array submitted last."""
        return self.slurm / "array.sbatch"

    @property
    def slurm_finish_script(self) -> Path:
        """The script of the closing step submitted last."""
        return self.slurm / "finish.sbatch"

    @property
    def slurm_submit_log(self) -> Path:
        """What was submitted, and when."""
        return self.slurm / "submit.log"

    @property
    def slurm_finish_log(self) -> Path:
        """What closing steps print; each one appends."""
        return self.slurm / "finish.log"

    def slurm_log_name(self, num_tasks: int) -> str:
        """The name of what a task prints, as Slurm fills it in: `%2a` is the task's number in two digits."""
        return f"task-%{len(str(num_tasks))}a-of-{num_tasks}.log"

    @property
    def temporary(self) -> Path:
        """The folder where files are written before they get their name."""
        return self.state / "tmp"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder that files are written into, beside `state` itself."""
        return (self.scores, self.shard_records, self.journals, self.temporary, self.tasks, self.slurm)

    def shard(self, index: int) -> Path:
        """A shard's Parquet file."""
        return self.scores / f"part-{index:05d}.parquet"

    def shard_record(self, index: int) -> Path:
        """A shard's record."""
        return self.shard_records / f"part-{index:05d}.json"

    def journal(self, index: int) -> Path:
        """The progress inside a shard under way."""
        return self.journals / f"part-{index:05d}.journal"

    def own_files(self) -> Iterator[Path]:
        """Every file there is that a run made, the log and the lock left out: what beginning anew removes."""
        # What says what the rest is goes last: a removal that is cut short leaves no shard without its run.
        yield from (self.success, self.report, self.summary)
        yield from sorted(self.scores.glob("part-[0-9]*.parquet"))
        yield from sorted(self.shard_records.glob("part-[0-9]*.json"))
        yield from sorted(self.journals.glob("part-[0-9]*.journal"))
        yield from sorted(self.temporary.glob("*.tmp"))
        yield from sorted(self.state.glob("generation-[0-9]*.json"), reverse=True)
        yield from self.all_staged_inputs()
        yield from (self.attempt, self.inputs, self.run_record)
