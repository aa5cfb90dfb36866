"""An output's rows counted: labels, scores, margins, lengths, statuses, and the few rows worth a look.

Polars counts (`counting`): ten million rows take seconds, and memory does not grow with them. Nothing here looks at the
input; texts are joined elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from batchzs.quarantine import BadRow
from batchzs.report.binning import NUM_SCORE_BINS, Bin, length_bins, quantiles
from batchzs.report.counting import Counts, count_rows
from batchzs.report.scan import CertaintyKind, certainty_kind, deciding_threshold, kept_scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from batchzs.finished import FinishedRun
    from batchzs.job import JobConfig
    from batchzs.plan import Shard


@dataclass(frozen=True, slots=True)
class LabelRows:
    """One label, and the rows that got it: the best one, and at or above the threshold where a row has one label."""

    name: str
    num_rows: int
    num_reaching: int  # rows in which it reaches the threshold: of several labels a row may have, not only the best
    mean_score: float | None
    score_bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UncertainRow:
    """A scored row that a small change of its scores would decide otherwise."""

    source_file: str
    source_row: int
    label: str | None
    certainty: float
    candidates: tuple[tuple[str, float], ...]  # the labels that it lies between, with their scores
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """The scored texts' own tokens, uncut; None where nothing is scored."""

    bins: tuple[Bin, ...]  # marked: truncated
    median: int | None
    percentile_95: int | None
    longest: int | None


@dataclass(frozen=True, slots=True)
class Aggregates:
    """What the shards that are there hold."""

    num_rows: int
    statuses: dict[str, int]
    labels: tuple[LabelRows, ...]  # most rows first; of equally many, the job's order
    num_unlabelled: int  # scored rows without a label: none reaches the threshold
    score_bins: tuple[int, ...]  # of each scored row's best score
    certainty_kind: CertaintyKind
    certainty_bins: tuple[int, ...]
    lengths: Lengths
    num_truncated: int
    num_rescored: int
    least_certain: tuple[UncertainRow, ...]
    quarantined: tuple[BadRow, ...]  # the first ones of each kind


def aggregate(run: FinishedRun, shards: Sequence[Shard], num_shown: int) -> Aggregates:
    """Count an output's rows.

    Args:
        run: the output.
        shards: those that are there, in their order.
        num_shown: so many of the least certain rows, and of each kind of quarantined ones.

    Raises:
        DifferenceError: a shard is damaged, and named.
    """
    job = run.job
    counts = count_rows(run, shards, num_shown)
    statuses: Counter[str] = Counter()
    for status, num_rows in counts.groups.select("status", "len").iter_rows():
        statuses[status] += num_rows
    longest, num_unlabelled = counts.extremes.select("longest", "unlabelled").row(0)
    return Aggregates(
        num_rows=statuses.total(),
        statuses=dict(sorted(statuses.items())),
        labels=_labels(job, counts),
        num_unlabelled=num_unlabelled or 0,
        score_bins=_bins(counts.scores.select("bin", "len").iter_rows()),
        certainty_kind=certainty_kind(job),
        certainty_bins=_bins(counts.certainty.select("bin", "len").iter_rows()),
        lengths=_lengths(counts.tokens, longest),
        num_truncated=int(counts.groups["truncated"].sum()),
        num_rescored=int(counts.groups["rescored"].sum()),
        least_certain=_least_certain(job, counts.least_certain),
        quarantined=tuple(
            BadRow(*row)
            for row in counts.quarantined.select("source_file", "source_row", "status", "reason").iter_rows()
        ),
    )


def _labels(job: JobConfig, counts: Counts) -> tuple[LabelRows, ...]:
    of_ok = counts.groups.filter(pl.col("status") == "ok", pl.col("label").is_not_null())
    best = {label: (num_rows, total) for label, num_rows, total in of_ok.select("label", "len", "score").iter_rows()}
    given = dict(counts.given.select("labels", "len").iter_rows())
    bins: dict[str, list[tuple[int, int]]] = {}
    for label, index, num_rows in counts.scores.select("label", "bin", "len").iter_rows():
        bins.setdefault(label, []).append((index, num_rows))
    labels = []
    for name in (label.name for label in job.labels):
        num_rows, total = best.get(name, (0, 0.0))
        mean_score = total / num_rows if num_rows else None
        labels.append(LabelRows(name, num_rows, given.get(name, 0), mean_score, _bins(bins.get(name, ()))))
    return tuple(sorted(labels, key=lambda label: (-label.num_reaching, -label.num_rows)))  # stable: the job's order


def _bins(counted: Iterable[tuple[int | None, int]]) -> tuple[int, ...]:
    bins = [0] * NUM_SCORE_BINS
    for index, num_rows in counted:
        if index is not None:
            bins[index] += num_rows
    return tuple(bins)


def _lengths(tokens: pl.DataFrame, longest: int | None) -> Lengths:
    counts: Counter[int] = Counter()
    truncated: Counter[int] = Counter()
    for num_tokens, is_truncated, num_rows in tokens.select("num_tokens", "truncated", "len").iter_rows():
        counts[num_tokens] += num_rows
        truncated[num_tokens] += num_rows if is_truncated else 0
    if not counts:
        return Lengths((), None, None, None)
    median, percentile_95 = quantiles(counts, [0.5, 0.95])
    return Lengths(length_bins(counts, truncated), median, percentile_95, longest)


def _least_certain(job: JobConfig, frame: pl.DataFrame) -> tuple[UncertainRow, ...]:
    names = [label.name for label in job.labels]
    candidates: list[tuple[tuple[str, float], ...]] = []
    if "scores" in frame.columns and len(frame):
        values = kept_scores(frame["scores"], job)
        kind = certainty_kind(job)
        distances = np.abs(values - np.float32(deciding_threshold(job))) if kind == "threshold" else -values
        chosen = np.argsort(distances, axis=1, kind="stable")[:, : 2 if kind == "margin" else 1]
        for row, columns in enumerate(chosen.tolist()):
            of_row = names if job.resolved_scores == "all" else [entry["label"] for entry in frame["scores"][row]]
            candidates.append(tuple((of_row[column], float(values[row, column])) for column in columns))
    else:
        scores = frame.select("label", "score").iter_rows()
        candidates += [() if label is None else ((label, score),) for label, score in scores]
    return tuple(
        UncertainRow(file, row, label, certainty, found)
        for (file, row, label, certainty), found in zip(
            frame.select("source_file", "source_row", "label", "certainty").iter_rows(), candidates, strict=True
        )
    )
