"""Two outputs over the same rows: which labels changed, from what to what, and which rows moved most.

Rows are matched by file and row number. Both plans say where each row lies, so no table of rows is built: the first
output is gone through shard by shard, and of the second the shards that hold the same rows are read. Memory is that of
a few shards' needed columns, however the two were cut.

How far a row moved:

    both keep all scores    the largest change of one label's score, over the labels that both have
    else, the same label    how far its score changed
    else                    the smaller of the two best scores: how sure both were of different labels
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from batchzs.compare.rows import MatchedRows, match_rows
from batchzs.errors import DifferenceError, UsageError
from batchzs.finished import is_there
from batchzs.progress import LINE_INTERVAL_S

if TYPE_CHECKING:
    from batchzs.finished import FinishedRun

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moved:
    """A row and how far it moved."""

    source_file: str
    source_row: int
    old_label: str | None
    new_label: str | None
    old_score: float | None
    new_score: float | None
    moved: float
    text: str | None = None  # as the input has it; None where it was not read


@dataclass(slots=True)
class Comparison:
    """What two outputs have in common and what not."""

    old: FinishedRun
    new: FinishedRun
    compares_scores: bool  # both keep all scores
    compares_sets: bool  # both are multi-label: `labels` counts
    num_rows: int = 0
    num_differing: int = 0  # rows with another label, or other labels
    num_other_best: int = 0  # with another best label
    num_other_status: int = 0
    num_scored_old: int = 0
    num_scored_new: int = 0
    old_labels: Counter[str | None] = field(default_factory=Counter)
    new_labels: Counter[str | None] = field(default_factory=Counter)
    changes: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)  # of the best label
    largest_move: float = 0.0
    moves: float = 0.0  # sum over the rows that both scored
    num_moves: int = 0
    most_moved: list[Moved] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)  # files whose texts could not be read, and why
    seconds: float = 0.0

    @property
    def mean_move(self) -> float | None:
        """How far a row moved on average."""
        return self.moves / self.num_moves if self.num_moves else None


def refuse_unfinished(run: FinishedRun) -> None:
    """See that every shard is there.

    Raises:
        UsageError: some are not.
    """
    missing = sum(not is_there(run.paths.shard(shard.index)) for shard in run.shards)
    if missing:
        raise UsageError(
            f"{run.paths.output}: is not finished ({missing} of {len(run.shards)} shards are not there): run its job "
            "to the end first"
        )


def compare_runs(old: FinishedRun, new: FinishedRun, num_moved: int) -> Comparison:
    """Compare two finished outputs.

    Args:
        old: one.
        new: the other.
        num_moved: how many of the rows that moved most are kept.

    Raises:
        UsageError: they are over other rows, or not finished.
        DifferenceError: a shard is damaged.
    """
    started_s = last_line_s = time.monotonic()
    for run in (old, new):
        refuse_unfinished(run)
    result = Comparison(
        old,
        new,
        compares_scores=all(run.job.resolved_scores == "all" for run in (old, new)),
        compares_sets=all(run.job.multi_label for run in (old, new)),
    )
    for rows in match_rows(old, new, _columns(result)):
        _count(result, rows, num_moved)
        if time.monotonic() - last_line_s >= LINE_INTERVAL_S:
            last_line_s = time.monotonic()
            logger.info("%s rows compared", f"{result.num_rows:,}")
    result.seconds = time.monotonic() - started_s
    return result


def refuse_differences(result: Comparison) -> None:
    """Do nothing where both outputs give every row the same label.

    Raises:
        DifferenceError: they do not.
    """
    if result.num_differing:
        raise DifferenceError(
            f"{result.num_differing:,} of {result.num_rows:,} rows have other labels in {result.new.paths.output} than "
            f"in {result.old.paths.output}"
        )


def _columns(result: Comparison) -> list[str]:
    return [
        *("source_row", "label", "score", "status"),
        *(["labels"] if result.compares_sets else []),
        *(["scores"] if result.compares_scores else []),
    ]


def _count(result: Comparison, rows: MatchedRows, num_moved: int) -> None:
    old, new = rows.old, rows.new
    is_other = old["label"].ne_missing(new["label"])
    differs = is_other
    if result.compares_sets:
        differs = is_other | old["labels"].list.sort().ne_missing(new["labels"].list.sort())
    result.num_rows += old.height
    result.num_differing += int(differs.sum())
    result.num_other_best += int(is_other.sum())
    result.num_other_status += int((old["status"] != new["status"]).sum())
    result.num_scored_old += int((old["status"] == "ok").sum())
    result.num_scored_new += int((new["status"] == "ok").sum())
    for counter, frame in ((result.old_labels, old), (result.new_labels, new)):
        counter.update(_label_counts(frame, is_list=result.compares_sets))
    pairs = pl.DataFrame({"old": old["label"], "new": new["label"]}).filter(is_other).group_by("old", "new").len()
    result.changes.update({(before, after): count for before, after, count in pairs.iter_rows()})
    moved = _moves(result, old, new, is_other.to_numpy())
    scored = np.isfinite(moved)
    result.moves += float(moved[scored].sum())
    result.num_moves += int(scored.sum())
    result.largest_move = max(result.largest_move, float(moved[scored].max(initial=0.0)))
    _keep_most_moved(result, rows, moved, num_moved)


def _label_counts(frame: pl.DataFrame, *, is_list: bool) -> dict[str | None, int]:
    """How many scored rows have each label; null: none."""
    scored = frame.filter(pl.col("status") == "ok")
    column = scored["labels"].explode() if is_list else scored["label"]
    counts = column.rename("label").value_counts(name="rows")
    return dict(zip(counts["label"].to_list(), counts["rows"].to_list(), strict=True))


def _moves(result: Comparison, old: pl.DataFrame, new: pl.DataFrame, is_other: np.ndarray) -> np.ndarray:
    """(rows,) float64: how far each row moved; NaN where not both scored it."""
    both = ((old["status"] == "ok") & (new["status"] == "ok")).to_numpy()
    moved = np.full(old.height, np.nan)
    if result.compares_scores:
        shared = _shared_labels(result)
        if shared[0]:
            before, after = (
                _score_matrix(frame, both, len(run.job.labels))[:, places]
                for frame, run, places in ((old, result.old, shared[0]), (new, result.new, shared[1]))
            )
            moved[both] = np.abs(before - after).max(axis=1)
            return moved
    before, after = (frame["score"].to_numpy().astype(np.float64) for frame in (old, new))
    distances = np.where(is_other, np.minimum(before, after), np.abs(before - after))
    moved[both] = distances[both]
    return moved


def _shared_labels(result: Comparison) -> tuple[list[int], list[int]]:
    """Where the labels that both have stand in each."""
    places = {label.name: index for index, label in enumerate(result.new.job.labels)}
    shared = [(index, places[label.name]) for index, label in enumerate(result.old.job.labels) if label.name in places]
    return [one for one, _ in shared], [other for _, other in shared]


def _score_matrix(frame: pl.DataFrame, both: np.ndarray, num_labels: int) -> np.ndarray:
    """(rows that both scored, labels) float64."""
    values: np.ndarray = frame["scores"].filter(pl.Series(both)).explode().to_numpy().astype(np.float64)
    return values.reshape(-1, num_labels)


def _keep_most_moved(result: Comparison, rows: MatchedRows, moved: np.ndarray, num_moved: int) -> None:
    scored = np.flatnonzero(np.isfinite(moved) & (moved > 0))
    if not num_moved or not len(scored):
        return
    order = scored[np.argsort(-moved[scored], kind="stable")[:num_moved]]
    for index in order.tolist():
        name, row = rows.position(index)
        before, after = rows.old.row(index, named=True), rows.new.row(index, named=True)
        result.most_moved.append(
            Moved(name, row, before["label"], after["label"], before["score"], after["score"], float(moved[index]))
        )
    # Stable, so that of rows that moved equally far the first in the input stays first.
    result.most_moved = sorted(result.most_moved, key=lambda one: -one.moved)[:num_moved]
