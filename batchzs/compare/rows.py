"""The rows of two outputs put side by side by file and row number, without a table of all rows.

Each output's plan says which rows it holds and in which order; from both follows where each row of the first lies in
the second. That they hold the same rows is seen from the plans, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from batchzs.errors import DifferenceError, UsageError
from batchzs.verify.shard import BROKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from batchzs.finished import FinishedRun
    from batchzs.plan import Shard

#: Shards of the second output kept at hand: a shard of the first may span several, and they come in order.
_KEPT_SHARDS = 2
#: Above any row number: a row's key is its file's number times this, plus its own.
_ROWS_A_FILE = 1 << 40


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Rows that both outputs hold, side by side, under the columns' names without prefix."""

    old: pl.DataFrame
    new: pl.DataFrame
    file_names: Sequence[str]
    keys: np.ndarray  # (rows,) int64

    def position(self, index: int) -> tuple[str, int]:
        """A row's file and its number there."""
        file, row = divmod(int(self.keys[index]), _ROWS_A_FILE)
        return self.file_names[file], row


def match_rows(old: FinishedRun, new: FinishedRun, columns: Sequence[str]) -> Iterator[MatchedRows]:
    """Put the rows side by side, a shard of the first output at a time.

    Args:
        old: one output.
        new: the other; its shards may be cut otherwise and its files come in another order.
        columns: to read, without prefix, `source_row` among them.

    Raises:
        UsageError: they hold other rows.
        DifferenceError: a shard is damaged.
    """
    names = [file.found.name for file in old.inputs.files]
    numbers = {name: number for number, name in enumerate(names)}
    names += [file.found.name for file in new.inputs.files if file.found.name not in numbers]
    numbers = {name: number for number, name in enumerate(names)}
    places = _Places(new, numbers)
    _refuse_other_rows(old, new, numbers, places)
    shard_stops = np.cumsum([shard.num_rows for shard in new.shards])

    @lru_cache(maxsize=_KEPT_SHARDS)
    def new_shard(index: int) -> pl.DataFrame:
        return _read(new, new.shards[index], columns)

    for shard in old.shards:
        keys = _keys(old, shard, numbers)
        ordinals = places.of(keys)
        yield MatchedRows(_read(old, shard, columns), _gather(new_shard, shard_stops, ordinals), names, keys)


class _Places:
    """Where each row lies in an output: its ordinal among all rows; -1 where it does not hold it."""

    def __init__(self, run: FinishedRun, numbers: dict[str, int]) -> None:
        spans = [
            (span, numbers[run.inputs.files[span.file_index].found.name])
            for shard in run.shards
            for span in shard.spans
        ]
        lengths = np.array([span.num_rows for span, _ in spans], dtype=np.int64)
        starts = np.array([number * _ROWS_A_FILE + span.start for span, number in spans], dtype=np.int64)
        order = np.argsort(starts, kind="stable")
        self._starts, self._lengths = starts[order], lengths[order]
        self._ordinals = (np.cumsum(lengths) - lengths)[order]
        self.num_rows = int(lengths.sum())

    def of(self, keys: np.ndarray) -> np.ndarray:
        """(rows,) int64."""
        if not len(self._starts):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.maximum(np.searchsorted(self._starts, keys, side="right") - 1, 0)
        within = keys - self._starts[at]
        return np.where((within >= 0) & (within < self._lengths[at]), self._ordinals[at] + within, -1)


def _keys(run: FinishedRun, shard: Shard, numbers: dict[str, int]) -> np.ndarray:
    """(rows,) int64: a shard's rows as the plan has them."""
    if not shard.spans:
        return np.empty(0, dtype=np.int64)
    lengths = np.array([span.num_rows for span in shard.spans], dtype=np.int64)
    starts = np.array(
        [numbers[run.inputs.files[span.file_index].found.name] * _ROWS_A_FILE + span.start for span in shard.spans],
        dtype=np.int64,
    )
    before = np.cumsum(lengths) - lengths
    keys: np.ndarray = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)
    return keys


def _refuse_other_rows(old: FinishedRun, new: FinishedRun, numbers: dict[str, int], places: _Places) -> None:
    num_old = sum(shard.num_rows for shard in old.shards)
    num_both = sum(int((places.of(_keys(old, shard, numbers)) >= 0).sum()) for shard in old.shards)
    if num_both == num_old == places.num_rows:
        return
    raise UsageError(
        f"{old.paths.output} and {new.paths.output} are not over the same rows: {num_both:,} are in both, "
        f"{num_old - num_both:,} in the first alone, {places.num_rows - num_both:,} in the second alone (rows are the "
        "same where file, below the input's root, and row number are); run both jobs over the same input, with the "
        "same --limit or --sample"
    )


def _gather(shard_frame: Callable[[int], pl.DataFrame], shard_stops: np.ndarray, ordinals: np.ndarray) -> pl.DataFrame:
    """Take rows by their ordinals, in their order."""
    if not len(ordinals):
        return shard_frame(0).head(0)
    shards = np.searchsorted(shard_stops, ordinals, side="right")
    # Runs of rows in one shard: few, as both outputs go through their files in order.
    cuts = np.flatnonzero(np.diff(shards)) + 1
    pieces = []
    for part, index in zip(np.split(ordinals, cuts), shards[np.concatenate([[0], cuts])].tolist(), strict=True):
        rows = part - (shard_stops[index - 1] if index else 0)
        frame = shard_frame(index)
        is_run = bool((np.diff(rows) == 1).all())
        pieces.append(frame.slice(int(rows[0]), len(rows)) if is_run else frame[rows])
    return pl.concat(pieces)


def _read(run: FinishedRun, shard: Shard, columns: Sequence[str]) -> pl.DataFrame:
    path = run.paths.shard(shard.index)
    try:
        table = pq.read_table(path, columns=[run.column(name) for name in columns], partitioning=None)
    except BROKEN as exc:
        raise DifferenceError(
            f"{path}: cannot be read as a shard of this run ({type(exc).__name__}): `batchzs verify` says more"
        ) from exc
    frame = pl.DataFrame(table.rename_columns(list(columns)))
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(np.arange(one.start, one.stop) for one in shard.spans)])
    if frame.height != shard.num_rows or not np.array_equal(frame["source_row"].to_numpy(), rows):
        raise DifferenceError(f"{path}: does not hold the rows that the plan gives it: `batchzs verify` says more")
    return frame
