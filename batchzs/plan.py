"""Rows to shards: which rows of which files each shard holds.

Pure. A shard is a function of the frozen input, the number of rows a shard and the selection, so that every attempt
and every task cuts the same ones. It may span many small files, and be part of a large one.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from batchzs.inputs.rows import RowSpan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of the input's rows are scored: all, the first `limit`, or a random `sample` drawn with `seed`."""

    limit: int | None = None
    sample: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Shard:
    """The rows of one output file, in input order."""

    index: int
    first_row: int  # ordinal of its first row among all selected rows
    spans: tuple[RowSpan, ...]
    generation: int = 1  # of the input's files

    @property
    def num_rows(self) -> int:
        """Rows of the shard."""
        return sum(span.num_rows for span in self.spans)


def plan_shards(row_counts: Sequence[int], shard_rows: int, selection: Selection) -> list[Shard]:
    """Cut the selected rows into shards of `shard_rows`, the last one shorter.

    Args:
        row_counts: rows of each input file.
        shard_rows: rows of a shard, at least 1.
        selection: which rows.

    Returns:
        Shards in order; an input without rows gives one shard without rows, so that the output has its schema.

    >>> for shard in plan_shards([3, 0, 4], 5, Selection()):
    ...     print(shard.first_row, [(span.file_index, span.start, span.stop) for span in shard.spans])
    0 [(0, 0, 3), (2, 0, 2)]
    5 [(2, 2, 4)]
    """
    stops = list(accumulate(row_counts))  # of each file, in ordinals over the whole input
    num_rows = stops[-1] if stops else 0
    if selection.sample is not None and selection.sample < num_rows:
        # A seeded draw of ordinals, not a key for anything secret.
        ordinals = sorted(random.Random(selection.seed).sample(range(num_rows), selection.sample))  # noqa: S311
        shards = [
            _shard(number, first, _runs(ordinals[first : first + shard_rows]), stops)
            for number, first in enumerate(range(0, len(ordinals), shard_rows))
        ]
    else:
        selected = num_rows if selection.limit is None else min(selection.limit, num_rows)
        shards = [
            _shard(number, first, [(first, min(first + shard_rows, selected))], stops)
            for number, first in enumerate(range(0, selected, shard_rows))
        ]
    return shards or [Shard(0, 0, ())]


def plan_generations(generations: Sequence[Sequence[int]], shard_rows: int, selection: Selection) -> list[Shard]:
    """Cut files that came one generation after the other: each generation into shards of its own, numbered through.

    Args:
        generations: of each generation the rows of each of its files.
        shard_rows: rows of a shard, at least 1.
        selection: which rows of the first generation; of the others it is all.

    Returns:
        Shards in order. Those of earlier generations do not depend on later ones.

    >>> for shard in plan_generations([[3], [2, 2]], 2, Selection()):
    ...     print(shard.index, shard.first_row, [(one.file_index, one.start, one.stop) for one in shard.spans])
    0 0 [(0, 0, 2)]
    1 2 [(0, 2, 3)]
    2 3 [(1, 0, 2)]
    3 5 [(2, 0, 2)]
    """
    first, *added = generations
    shards = plan_shards(first, shard_rows, selection)
    num_files = len(first)
    for number, row_counts in enumerate(added, start=2):
        own = [shard for shard in plan_shards(row_counts, shard_rows, Selection()) if shard.num_rows]
        num_rows = shards[-1].first_row + shards[-1].num_rows
        shards += [
            replace(
                shard,
                index=len(shards) + place,
                first_row=num_rows + shard.first_row,
                spans=tuple(replace(span, file_index=num_files + span.file_index) for span in shard.spans),
                generation=number,
            )
            for place, shard in enumerate(own)
        ]
        num_files += len(row_counts)
    return shards


def spread_rows(shards: Sequence[Shard], num_rows: int) -> list[RowSpan]:
    """Pick rows evenly over all shards, each as a span of its own; all rows where there are fewer.

    >>> [(span.start, span.stop) for span in spread_rows(plan_shards([7], 4, Selection()), 3)]
    [(0, 1), (2, 3), (4, 5)]
    """
    total = sum(shard.num_rows for shard in shards)
    spans = [span for shard in shards for span in shard.spans]
    stops = list(accumulate(span.num_rows for span in spans))
    picked = []
    for number in range(min(num_rows, total)):
        ordinal = number * total // min(num_rows, total)
        place = bisect_right(stops, ordinal)
        span = spans[place]
        row = span.start + ordinal - (stops[place] - span.num_rows)
        picked.append(RowSpan(span.file_index, row, row + 1))
    return picked


def _shard(index: int, first_row: int, runs: Iterable[tuple[int, int]], stops: Sequence[int]) -> Shard:
    """Turn runs of row ordinals over the whole input into spans of single files."""
    spans = []
    for run_start, run_stop in runs:
        start = run_start
        while start < run_stop:
            file_index = bisect_right(stops, start)  # the file whose rows begin at or before, and end after
            stop = min(run_stop, stops[file_index])
            before = stops[file_index - 1] if file_index else 0
            spans.append(RowSpan(file_index, start - before, stop - before))
            start = stop
    return Shard(index, first_row, tuple(spans))


def _runs(ordinals: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Put neighbouring ordinals together.

    >>> list(_runs([3, 4, 5, 9]))
    [(3, 6), (9, 10)]
    """
    start = 0
    for position in range(1, len(ordinals) + 1):
        if position == len(ordinals) or ordinals[position] != ordinals[position - 1] + 1:
            yield ordinals[start], ordinals[position - 1] + 1
            start = position
