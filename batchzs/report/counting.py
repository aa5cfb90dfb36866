"""Rows counted by Polars' streaming engine, some shards at a time, and what they give added up.

Some at a time because the engine, asked several questions of one scan, keeps rows for those that lag behind: over a
whole output that takes gigabytes.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from batchzs.errors import DifferenceError
from batchzs.inputs.rows import BAD_ENCODING, BAD_RECORD, BAD_TYPE
from batchzs.output import NON_FINITE
from batchzs.report.scan import binned, scan_rows
from batchzs.verify.shard import BROKEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from batchzs.finished import FinishedRun
    from batchzs.plan import Shard

#: Longer texts count as this long, so that a million different lengths need no memory; the longest is found exactly.
LONG_TOKENS = 1 << 16

_BAD_STATUSES = (BAD_RECORD, BAD_ENCODING, BAD_TYPE, NON_FINITE)
_BROKEN = (*BROKEN, pl.exceptions.PolarsError)
#: Rows alike in these are taken for the same text: a thousand copies of one would hide all others.
_ALIKE = ["certainty", "score", "label", "num_tokens"]
#: Rows that are counted at once: enough that starting costs nothing beside them.
_ROWS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class Counts:
    """What is counted, each as a frame; `len` is a number of rows, and `ok` rows are meant where nothing is said."""

    groups: pl.DataFrame  # all rows by status and label: len, score (their sum), truncated, rescored
    scores: pl.DataFrame  # by label and bin of the best score: len
    certainty: pl.DataFrame  # by bin of the certainty: len
    tokens: pl.DataFrame  # by num_tokens and truncated: len
    given: pl.DataFrame  # by label that a row got; where rows have several, each one's: len
    extremes: pl.DataFrame  # one row: longest, unlabelled
    least_certain: pl.DataFrame  # the rows themselves, least certain first; of those that are alike the first
    quarantined: pl.DataFrame  # the first rows of each kind, in order


def count_rows(run: FinishedRun, shards: Sequence[Shard], num_shown: int) -> Counts:
    """Count the rows of shards.

    Args:
        run: the output.
        shards: those that are there.
        num_shown: so many of the least certain rows, and of each kind of quarantined ones.

    Raises:
        DifferenceError: a shard is damaged, and named.
    """
    total = _counted(run, [], num_shown)
    for some in _at_once(shards):
        try:
            counted = _counted(run, some, num_shown)
        except _BROKEN as exc:
            raise _damage(run, some, exc) from exc
        total = _added(total, counted, num_shown)
    return total


def _at_once(shards: Sequence[Shard]) -> Iterator[list[Shard]]:
    some: list[Shard] = []
    for shard in shards:
        some.append(shard)
        if sum(one.num_rows for one in some) >= _ROWS_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _damage(run: FinishedRun, shards: Sequence[Shard], fault: Exception) -> DifferenceError:
    """Which of some shards is damaged."""
    path, what = run.paths.scores, "its shards cannot be read together"
    for shard in shards:
        try:
            _counted(run, [shard], 1)
        except _BROKEN as exc:
            path, what, fault = run.paths.shard(shard.index), "is no sound shard of this run", exc
            break
    return DifferenceError(f"{path}: {what} ({type(fault).__name__}): `batchzs verify` says more")


def _counted(run: FinishedRun, shards: Sequence[Shard], num_shown: int) -> Counts:
    rows = scan_rows(run, shards)
    scored = rows.filter(pl.col("status") == "ok")
    has_several = run.job.multi_label
    num_taken = 4 * max(num_shown, 1)
    given = scored.select(pl.col("labels").explode() if has_several else pl.col("label").alias("labels"))
    bad = [
        rows.filter(pl.col("status") == status)
        .select("position", "source_file", "source_row", "status", "reason")
        .bottom_k(max(num_shown, 1), by="position")
        for status in _BAD_STATUSES
    ]
    queries = [
        rows.group_by("status", "label").agg(
            pl.len(), pl.col("score").cast(pl.Float64).sum(), pl.col("truncated").sum(), pl.col("rescored").sum()
        ),
        scored.group_by("label", binned("score").alias("bin")).agg(pl.len()),
        scored.group_by(binned("certainty").alias("bin")).agg(pl.len()),
        scored.group_by(pl.col("num_tokens").clip(upper_bound=LONG_TOKENS), "truncated").agg(pl.len()),
        given.filter(pl.col("labels").is_not_null()).group_by("labels").agg(pl.len()),
        scored.select(
            pl.col("num_tokens").max().alias("longest"),
            (pl.col("labels").list.len() == 0 if has_several else pl.col("label").is_null()).sum().alias("unlabelled"),
        ),
        _least_certain(scored, num_taken),
        pl.concat(bad),
    ]
    counts = Counts(*pl.collect_all(queries, engine="streaming"))
    # Where so many rows are alike that too few others are left, more of them are looked at.
    found = counts.least_certain
    while len(found) == num_taken and found.n_unique(_ALIKE) < num_shown:
        num_taken *= 16
        found = _least_certain(scored, num_taken).collect(engine="streaming")
    return replace(counts, least_certain=found)


def _least_certain(scored: pl.LazyFrame, num_rows: int) -> pl.LazyFrame:
    return scored.filter(pl.col("certainty").is_not_null()).bottom_k(num_rows, by=["certainty", "position"])


def _added(one: Counts, other: Counts, num_shown: int) -> Counts:
    groups, scores, certainty, tokens, given, extremes, least_certain, quarantined = (
        pl.concat(pair) for pair in zip(astuple(one), astuple(other), strict=True)
    )
    return Counts(
        groups=groups.group_by("status", "label").sum(),
        scores=scores.group_by("label", "bin").sum(),
        certainty=certainty.group_by("bin").sum(),
        tokens=tokens.group_by("num_tokens", "truncated").sum(),
        given=given.group_by("labels").sum(),
        extremes=extremes.select(pl.col("longest").max(), pl.col("unlabelled").sum()),
        least_certain=least_certain.sort("certainty", "position")
        .unique(_ALIKE, keep="first", maintain_order=True)
        .head(num_shown),
        quarantined=quarantined.sort("position").filter(pl.int_range(pl.len()).over("status") < num_shown),
    )
