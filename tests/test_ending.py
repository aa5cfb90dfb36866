"""How a command ended, as text and as JSON: the summary's numbers, and what they cover."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchzs.ending import ending_to_json, format_ending
from batchzs.paths import RunPaths
from batchzs.run import Outcome
from batchzs.summary import format_summary, summarise
from batchzs.tasks import Task
from tests.builders import make_job, run_record, shard_record

SUMMARY = summarise(make_job(), RunPaths(Path("/结果 [1]")), run_record(make_job()), [shard_record()])


@pytest.mark.parametrize(
    ("outcome", "task", "covers", "is_finished"),
    [
        (Outcome(SUMMARY, 1.0, has_finished=True), None, "job", True),
        (Outcome(SUMMARY, None), None, "job", True),
        (Outcome(SUMMARY, 1.0, 3), Task(2, 4), "part", False),
        (Outcome(SUMMARY, 1.0, has_finished=True), Task(2, 4), "job", True),
        (Outcome(SUMMARY, None), Task(2, 4), "part", True),
    ],
    ids=["run", "run again", "part", "last part", "part again"],
)
def test_what_the_numbers_cover(outcome: Outcome, task: Task | None, covers: str, *, is_finished: bool) -> None:
    """A whole run's are the job's, and so are those of the part that wrote the end; any other part's are its own."""
    found = ending_to_json(outcome, task)
    assert (found["covers"], found["is_finished"]) == (covers, is_finished)
    assert (found["part"] is None) == (task is None)
    assert found | outcome.summary.model_dump(mode="json") == found


def test_text_and_json_say_the_same() -> None:
    """Three of the others' shards are missing after 1.23456 s: both have the part, its total and the three."""
    outcome = Outcome(SUMMARY, 1.23456, 3)
    assert format_ending(outcome, Task(2, 4)) == [
        format_summary(SUMMARY, 1.23456),
        "part        2/4 is complete; shards of other parts not there yet: 3",
    ]
    found = ending_to_json(outcome, Task(2, 4))
    assert found["wall_s"] == 1.235
    assert found["part"] == {"number": 2, "total": 4, "is_complete": True, "num_shards_missing_elsewhere": 3}
    assert format_ending(Outcome(SUMMARY, None), None) == [format_summary(SUMMARY, None)]
