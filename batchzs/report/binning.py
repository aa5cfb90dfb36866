"""Bins: equal ones from 0 to 1 for scores, and growing ones for lengths.

Pure Python. A bin holds its lower edge and not its upper one, except the last bin of scores, which holds 1 too.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Bins from 0 to 1: wide enough to hold rows, narrow enough to show a threshold.
NUM_SCORE_BINS = 50


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows whose length is `start` or more, and below `stop`."""

    start: int
    stop: int
    num_rows: int
    num_marked: int  # of these rows, those that the report sets apart


def score_bin(value: float) -> int:
    """The bin of a value from 0 to 1.

    >>> score_bin(0.0), score_bin(0.019), score_bin(0.02), score_bin(1.0)
    (0, 0, 1, 49)
    """
    return min(int(value * NUM_SCORE_BINS), NUM_SCORE_BINS - 1)


def length_edges() -> Iterator[int]:
    """Yield 0, 1, 2, ... 10, and then ten a decade: lengths of texts differ by factors, not by amounts.

    >>> from itertools import islice
    >>> list(islice(length_edges(), 9, 25))
    [9, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250]
    """
    yield from range(10)
    for power in count():
        yield from (digits * 10**power for digits in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80))


def length_bins(counts: Mapping[int, int], marked: Mapping[int, int]) -> tuple[Bin, ...]:
    """Put counted lengths into bins, from the shortest one's to the longest one's.

    Args:
        counts: how many rows have each length.
        marked: of these, how many are set apart.

    >>> [(one.start, one.stop, one.num_rows, one.num_marked) for one in length_bins({9: 3, 13: 1, 16: 2}, {16: 1})]
    [(9, 10, 3, 0), (10, 12, 0, 0), (12, 15, 1, 0), (15, 20, 2, 1)]
    """
    if not counts:
        return ()
    edges = [0]
    for edge in islice(length_edges(), 1, None):
        edges.append(edge)
        if edge > max(counts):
            break
    rows, apart = [0] * (len(edges) - 1), [0] * (len(edges) - 1)
    for length, num_rows in counts.items():
        place = bisect_right(edges, length) - 1
        rows[place] += num_rows
        apart[place] += marked.get(length, 0)
    first = bisect_right(edges, min(counts)) - 1
    return tuple(Bin(edges[k], edges[k + 1], rows[k], apart[k]) for k in range(first, len(rows)))


def quantiles(counts: Mapping[int, int], shares: Sequence[float]) -> tuple[int, ...]:
    """For each share the least number that at least this share of the rows does not exceed; nothing of nothing.

    >>> quantiles({1: 2, 3: 1, 8: 1}, [0.5, 0.75, 1.0])
    (1, 3, 8)
    """
    return tuple(_quantile(counts, share) for share in shares) if counts else ()


def _quantile(counts: Mapping[int, int], share: float) -> int:
    needed = share * sum(counts.values())
    reached = 0
    number = 0
    for number, num_rows in sorted(counts.items()):  # noqa: B007 - the last one, where rounding lets none reach it
        reached += num_rows
        if reached >= needed:
            break
    return number
