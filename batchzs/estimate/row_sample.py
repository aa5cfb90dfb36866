"""Rows to look at where there are too many to look at all: short runs of neighbours, spread over the whole input.

Runs, because reading one row of a text file costs a block of it. Pure.
"""

from __future__ import annotations

import random
from itertools import accumulate
from typing import TYPE_CHECKING

from batchzs.inputs.rows import RowSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.plan import Shard


def sample_runs(shards: Sequence[Shard], num_rows: int, run_rows: int, seed: int = 0) -> list[RowSpan]:
    """Draw about `num_rows` rows: one run of `run_rows` from each of as many equal stretches of the rows.

    Args:
        shards: all rows, in their order.
        num_rows: how many to draw, fewer than there are.
        run_rows: rows of a run; no stretch is shorter.
        seed: of the draw.

    Returns:
        Spans in input order.

    >>> from batchzs.plan import Selection, plan_shards
    >>> spans = sample_runs(plan_shards([50, 50], 30, Selection()), num_rows=20, run_rows=5)
    >>> sum(span.num_rows for span in spans), {span.file_index for span in spans}
    (20, {0, 1})
    """
    spans = [span for shard in shards for span in shard.spans]
    stops = list(accumulate(span.num_rows for span in spans))
    num_runs = max(1, min(num_rows, stops[-1]) // run_rows)
    draw = random.Random(seed)  # noqa: S311 - a sample, not a key for anything secret
    picked = []
    place = 0
    for number in range(num_runs):
        start, end = number * stops[-1] // num_runs, (number + 1) * stops[-1] // num_runs
        first = draw.randrange(start, max(start, end - run_rows) + 1)
        stop = min(first + run_rows, end)
        while first < stop:  # a run may lie across spans
            while stops[place] <= first:
                place += 1
            span = spans[place]
            before = stops[place] - span.num_rows
            last = min(stop, stops[place])
            picked.append(RowSpan(span.file_index, span.start + first - before, span.start + last - before))
            first = last
    return picked
