"""How `run` or `finish` ended, for people and as JSON: the summary, and where a task ended, what else is missing.

The numbers are `summary`'s; here is what they cover, and how long the command took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchzs.summary import format_summary

if TYPE_CHECKING:
    from batchzs.run import Outcome
    from batchzs.tasks import Task


def format_ending(outcome: Outcome, task: Task | None) -> list[str]:
    """Write for people how a command ended.

    Args:
        outcome: its numbers.
        task: the part that it did; None for a whole run.
    """
    lines = [format_summary(outcome.summary, outcome.wall_s)]
    if outcome.num_elsewhere:
        lines.append(f"{'part':<12}{task} is complete; shards of other parts not there yet: {outcome.num_elsewhere:,}")
    return lines


def ending_to_json(outcome: Outcome, task: Task | None) -> dict[str, Any]:
    """The same as values for JSON: the summary's keys as in summary.json, and some of this command's.

    Args:
        outcome: its numbers.
        task: the part that it did; None for a whole run.
    """
    is_whole = task is None or outcome.has_finished
    return {
        **outcome.summary.model_dump(mode="json"),
        "wall_s": None if outcome.wall_s is None else round(outcome.wall_s, 3),
        "is_finished": not outcome.num_elsewhere,
        "covers": "job" if is_whole else "part",
        "part": None
        if task is None
        else {
            "number": task.number,
            "total": task.total,
            "is_complete": True,  # a part that is not ends with an error
            "num_shards_missing_elsewhere": outcome.num_elsewhere,
        },
    }
