"""Parts of one run: which shards a task takes, and how it learns which task it is.

A task takes the shards whose index is its own modulo the total. Parts are disjoint and together everything, whatever
the number of shards; any later run, with another total or none, finishes what is left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from batchzs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchzs.plan import Shard

_Shard = TypeVar("_Shard", bound="Shard")
#: Far above any scheduler's arrays.
_MAX_TOTAL = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """Part `number` of `total`, counted from 1.

    >>> [index for index in range(7) if Task(2, 3).holds(index)]
    [1, 4]
    """

    number: int
    total: int
    #: What the scheduler calls the first part: arrays are numbered from 0 or from 1.
    first_id: int = 1

    def holds(self, shard_index: int) -> bool:
        """Whether a shard is of this part."""
        return shard_index % self.total == self.number - 1

    def part_of(self, shards: Sequence[_Shard]) -> list[_Shard]:
        """The shards of this part."""
        return [shard for shard in shards if self.holds(shard.index)]

    @property
    def name(self) -> str:
        """The part's name in file names; names sort as numbers.

        >>> Task(3, 16).name
        'task-03-of-16'
        """
        return f"task-{self.number:0{len(str(self.total))}d}-of-{self.total}"

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def task_named(name: str) -> Task | None:
    """Read a part's name in file names; None where it is none.

    >>> task_named("task-03-of-16") == Task(3, 16), task_named("task-17-of-16"), task_named("task-1")
    (True, None, None)
    """
    found = re.fullmatch(r"task-([0-9]+)-of-([0-9]+)", name, re.ASCII)
    task = Task(int(found[1]), int(found[2])) if found and int(found[2]) else None
    return task if task is not None and 1 <= task.number <= task.total else None


def parse_task(text: str) -> Task:
    """Read `--task`.

    Raises:
        UsageError: it is not i/n with i from 1 to n.

    >>> parse_task("3/16")
    Task(number=3, total=16, first_id=1)
    """
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", text, re.ASCII)
    number, total = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= total <= _MAX_TOTAL:
        raise UsageError(f"--task: found {text!r}, expected a part and the number of parts, such as 3/16, from 1/16 on")
    return Task(number, total)


def slurm_task(environ: Mapping[str, str], recorded: tuple[int, int] | None) -> Task | None:
    """Find the part that a task of a Slurm array is; None outside an array.

    Args:
        environ: the process's environment.
        recorded: how many parts the run was begun with, and what the scheduler called the first one; None before.

    Raises:
        UsageError: the array does not say how many parts there are, or says another number than the run was begun with.

    >>> array = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "10"}
    >>> slurm_task(array | {"SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "9"}, None)
    Task(number=8, total=10, first_id=0)
    """
    names = ("ID", "COUNT", "MIN", "MAX")
    values = [environ.get(f"SLURM_ARRAY_TASK_{name}", "") for name in names]
    if not all(value.isdecimal() for value in values):
        return None
    own_id, count, lowest, highest = map(int, values)
    is_whole = highest - lowest + 1 == count and lowest in (0, 1)
    if recorded is None:
        if not is_whole:
            raise UsageError(
                f"this Slurm array of {count} tasks from {lowest} to {highest} does not say how many parts the run "
                "has: begin with --array=0-15, say, or give each its part with --task"
            )
        recorded = (count, lowest)
    total, first_id = recorded
    number = own_id - first_id + 1
    looks_like_all = is_whole and lowest == first_id and count > 1  # one alone is sent again
    if not 1 <= number <= total or (looks_like_all and count != total):
        raise UsageError(
            f"this Slurm array has {count} tasks from {lowest} to {highest}, and the run was begun with {total} from "
            f"{first_id} on: submit --array={first_id}-{first_id + total - 1} or some of these, or give each its part "
            "with --task"
        )
    return Task(number, total, first_id)
