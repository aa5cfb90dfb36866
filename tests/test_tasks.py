"""Parts of a run: disjoint, and together everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import UsageError
from batchzs.plan import Selection, plan_shards
from batchzs.tasks import Task, parse_task, slurm_task
from tests.builders import PATIENT


def test_parts_worked_by_hand() -> None:
    """Five shards for two: 0, 2 and 4 are the first one's, 1 and 3 the second one's; a ninth of nine has none."""
    shards = plan_shards([50], 10, Selection())
    assert [[shard.index for shard in Task(number, 2).part_of(shards)] for number in (1, 2)] == [[0, 2, 4], [1, 3]]
    assert Task(9, 9).part_of(shards) == []


@PATIENT
@given(num_shards=st.integers(0, 60), total=st.integers(1, 80))
def test_every_shard_is_of_one_part(num_shards: int, total: int) -> None:
    """Whatever the numbers."""
    held = [
        [index for index in range(num_shards) if Task(number, total).holds(index)] for number in range(1, total + 1)
    ]
    assert sorted(index for part in held for index in part) == list(range(num_shards))
    assert max(map(len, held)) - min(map(len, held)) <= 1


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "1/0", "-1/4", "a/b", "1/2/3", " 1/2", "1/2000000", "１/２"])
def test_what_is_no_part_is_refused(text: str) -> None:
    """The message shows what was found, and an example."""
    with pytest.raises(UsageError, match=r"--task: found .*expected a part and the number of parts, such as 3/16"):
        parse_task(text)


def test_names_sort_as_numbers() -> None:
    """Also where there are ten parts and more."""
    names = [Task(number, 12).name for number in range(1, 13)]
    assert names == sorted(names)


def array(own_id: int, count: int, lowest: int, highest: int) -> dict[str, str]:
    """What Slurm tells a task of an array."""
    values = {"ID": own_id, "COUNT": count, "MIN": lowest, "MAX": highest}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("environ", "recorded", "expected"),
    [
        (array(0, 4, 0, 3), None, Task(1, 4, 0)),
        (array(4, 4, 1, 4), None, Task(4, 4, 1)),
        (array(7, 2, 3, 7), (16, 0), Task(8, 16, 0)),  # what is unfinished, submitted again
        (array(5, 3, 4, 6), (16, 1), Task(5, 16, 1)),
        (array(0, 1, 0, 0), None, Task(1, 1, 0)),
        (array(1, 1, 1, 1), (16, 1), Task(1, 16, 1)),
        ({}, (16, 0), None),
        ({"SLURM_JOB_ID": "77"}, None, None),
    ],
)
def test_the_part_of_a_slurm_task(
    environ: dict[str, str], recorded: tuple[int, int] | None, expected: Task | None
) -> None:
    """From the array's numbers, and from what the run was begun with."""
    assert slurm_task(environ, recorded) == expected


@pytest.mark.parametrize(
    ("environ", "recorded", "message"),
    [
        (array(7, 2, 3, 7), None, "does not say how many parts the run has"),
        (array(5, 3, 4, 6), None, "does not say how many parts the run has"),
        (array(0, 8, 0, 7), (16, 0), "was begun with 16 from 0 on: submit --array=0-15"),
        (array(20, 2, 19, 20), (16, 0), "was begun with 16 from 0 on"),
        (array(0, 2, 0, 3), (16, 1), "was begun with 16 from 1 on"),
    ],
)
def test_an_array_that_does_not_fit_is_refused(
    environ: dict[str, str], recorded: tuple[int, int] | None, message: str
) -> None:
    """Rather than do another part than the user thinks."""
    with pytest.raises(UsageError, match=message):
        slurm_task(environ, recorded)
