"""An output's rows counted: labels, scores, margins, lengths, statuses, and the few rows worth a look.

One lazy scan over the shards that are there, in Polars' streaming engine: ten million rows take seconds, and memory
does not grow with them. Nothing here looks at the input; texts are joined elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from batchzs.errors import DifferenceError
from batchzs.inputs.rows import BAD_ENCODING, BAD_RECORD, BAD_TYPE
from batchzs.output import NON_FINITE
from batchzs.quarantine import BadRow
from batchzs.report.binning import NUM_SCORE_BINS, Bin, length_bins, quantiles
from batchzs.report.scan import CertaintyKind, binned, certainty_kind, deciding_threshold, kept_scores, scan_rows
from batchzs.verify_shard import BROKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from batchzs.finished import FinishedRun
    from batchzs.job import JobConfig

#: Longer texts count as this long, so that a million different lengths need no memory; the longest is found exactly.
_LONG_TOKENS = 1 << 16
_BAD_STATUSES = (BAD_RECORD, BAD_ENCODING, BAD_TYPE, NON_FINITE)
_BROKEN = (*BROKEN, pl.exceptions.PolarsError)


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


def aggregate(run: FinishedRun, shards: Sequence[Path], num_shown: int) -> Aggregates:
    """Count an output's rows.

    Args:
        run: the output.
        shards: its shards' files that are there, in their order.
        num_shown: so many of the least certain rows, and of each kind of quarantined ones.

    Raises:
        DifferenceError: a shard is damaged, and named.
    """
    try:
        return _counted(run, shards, num_shown)
    except _BROKEN as exc:
        for path in shards:
            try:
                _counted(run, [path], num_shown)
            except _BROKEN as fault:
                raise _damaged(path, "is no sound shard of this run", fault) from fault
        raise _damaged(run.paths.scores, "its shards cannot be read together", exc) from exc


def _damaged(path: Path, what: str, fault: Exception) -> DifferenceError:
    return DifferenceError(f"{path}: {what} ({type(fault).__name__}): `batchzs verify` says more")


def _counted(run: FinishedRun, shards: Sequence[Path], num_shown: int) -> Aggregates:
    job = run.job
    rows = scan_rows(run, shards)
    scored = rows.filter(pl.col("status") == "ok")
    queries = {
        "groups": rows.group_by("status", "label").agg(
            pl.len(), pl.col("score").cast(pl.Float64).sum(), pl.col("truncated").sum(), pl.col("rescored").sum()
        ),
        "scores": scored.group_by("label", binned("score").alias("bin")).agg(pl.len()),
        "certainty": scored.group_by(binned("certainty").alias("bin")).agg(pl.len()),
        "tokens": scored.group_by(pl.col("num_tokens").clip(upper_bound=_LONG_TOKENS), "truncated").agg(pl.len()),
        "longest": scored.select(pl.col("num_tokens").max()),
    }
    if num_shown:
        queries["least"] = scored.filter(pl.col("certainty").is_not_null()).bottom_k(
            num_shown, by=["certainty", "position"]
        )
        for status in _BAD_STATUSES:
            queries[status] = (
                rows.filter(pl.col("status") == status)
                .select("position", "source_file", "source_row", "status", "reason")
                .bottom_k(num_shown, by="position")
            )
    if job.multi_label:
        queries["reaching"] = scored.select(pl.col("labels").explode()).group_by("labels").agg(pl.len())
        queries["without"] = scored.select((pl.col("labels").list.len() == 0).sum())
    frames = dict(zip(queries, pl.collect_all(list(queries.values()), engine="streaming"), strict=True))
    groups = frames["groups"]
    statuses: Counter[str] = Counter()
    for status, num_rows in groups.select("status", "len").iter_rows():
        statuses[status] += num_rows
    return Aggregates(
        num_rows=int(groups["len"].sum()),
        statuses=dict(sorted(statuses.items())),
        labels=_labels(job, frames),
        num_unlabelled=_num_unlabelled(job, frames),
        score_bins=_bins(frames["scores"].select("bin", "len").iter_rows()),
        certainty_kind=certainty_kind(job),
        certainty_bins=_bins(frames["certainty"].select("bin", "len").iter_rows()),
        lengths=_lengths(frames["tokens"], frames["longest"].item()),
        num_truncated=int(groups["truncated"].sum()),
        num_rescored=int(groups["rescored"].sum()),
        least_certain=_least_certain(job, frames["least"]) if num_shown else (),
        quarantined=_quarantined(frames) if num_shown else (),
    )


def _labels(job: JobConfig, frames: dict[str, pl.DataFrame]) -> tuple[LabelRows, ...]:
    of_ok = frames["groups"].filter(pl.col("status") == "ok", pl.col("label").is_not_null())
    counts = {label: (num_rows, total) for label, num_rows, total in of_ok.select("label", "len", "score").iter_rows()}
    reaching = dict(frames["reaching"].iter_rows()) if job.multi_label else None
    bins: dict[str, list[tuple[int, int]]] = {}
    for label, index, num_rows in frames["scores"].select("label", "bin", "len").iter_rows():
        bins.setdefault(label, []).append((index, num_rows))
    labels = []
    for name in (label.name for label in job.labels):
        num_rows, total = counts.get(name, (0, 0.0))
        labels.append(
            LabelRows(
                name,
                num_rows,
                num_rows if reaching is None else reaching.get(name, 0),
                total / num_rows if num_rows else None,
                _bins(bins.get(name, ())),
            )
        )
    return tuple(sorted(labels, key=lambda label: (-label.num_reaching, -label.num_rows)))  # stable: the job's order


def _num_unlabelled(job: JobConfig, frames: dict[str, pl.DataFrame]) -> int:
    if job.multi_label:
        return int(frames["without"].item() or 0)
    groups = frames["groups"]
    return int(groups.filter(pl.col("status") == "ok", pl.col("label").is_null())["len"].sum())


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
    frame = frame.sort("certainty", "position")
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


def _quarantined(frames: dict[str, pl.DataFrame]) -> tuple[BadRow, ...]:
    chosen = pl.concat([frames[status].sort("position") for status in _BAD_STATUSES])
    return tuple(BadRow(*row) for row in chosen.drop("position").iter_rows())
