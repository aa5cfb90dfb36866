"""What the work took, from the shards' records: speed over time, backoffs, tasks, and who did it.

Pure: records in, numbers out. Times are those that the machines had when they published.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from batchzs.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from batchzs.records import ShardRecord

_Key = TypeVar("_Key")

#: Steps of the time axis in seconds: what clocks and calendars have.
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_MAX_STEPS = 60


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second over time, all workers together."""

    start_s: float  # since 1970, UTC
    step_s: int
    tokens_per_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What a part of the shards took."""

    num_shards: int
    num_rows: int
    num_tokens: int
    num_splits: int
    score_s: float
    last_finished_at: str

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens for each second of scoring."""
        return self.num_tokens / self.score_s if self.score_s > 0 else None


@dataclass(frozen=True, slots=True)
class Scorer:
    """What scored some shards."""

    attempt: int
    host: str
    device: str
    device_name: str
    precision: str
    path: str
    threads: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """A batch that did not fit into memory."""

    shard_index: int
    finished_at: str
    host: str
    shape: str
    batch_tokens: int
    limit_tokens: int


@dataclass(frozen=True, slots=True)
class Work:
    """What the published shards took."""

    total: Share | None  # None where no shard has a record
    speed: Speed | None
    scorers: tuple[tuple[Scorer, Share], ...]
    tasks: tuple[tuple[str, Share | None], ...]  # None: it has published nothing; empty where the run has no tasks
    backoffs: tuple[Backoff, ...]
    num_duplicates: int
    num_scored_alone: int
    num_nul_texts: int
    exact_s: float  # of the scoring, spent on scoring again in fp32


def work_of(records: Sequence[ShardRecord], num_tasks: int | None) -> Work:
    """Sum up records.

    Args:
        records: of the shards that are there.
        num_tasks: the number of tasks that the run was begun with, if it was.
    """
    total = num_tasks or 0
    tasks = [Task(number, total) for number in range(1, total + 1)]
    by_task = _shares(records, lambda record: record.index % max(total, 1))
    return Work(
        total=_share(records) if records else None,
        speed=speed_over_time(records),
        scorers=tuple(sorted(_shares(records, _scorer).items(), key=lambda item: repr(item[0]))),
        tasks=tuple((str(task), by_task.get(task.number - 1)) for task in tasks),
        backoffs=tuple(
            Backoff(record.index, record.finished_at, record.host, *split)
            for record in records
            for split in ((one.shape, one.batch_tokens, one.limit_tokens) for one in record.splits)
        ),
        num_duplicates=sum(record.num_duplicates for record in records),
        num_scored_alone=sum(record.num_scored_alone for record in records),
        num_nul_texts=sum(record.num_nul_texts for record in records),
        exact_s=sum(record.exact_s for record in records),
    )


def speed_over_time(records: Sequence[ShardRecord]) -> Speed | None:
    """Spread each shard's tokens evenly over the seconds before it was published, and add up what falls together.

    Args:
        records: of the shards that are there; those whose time cannot be read are left out.

    Returns:
        At most about sixty steps; None where no time is known.
    """
    spans = []
    for record in records:
        published_s = _seconds(record.finished_at)
        if published_s is not None and record.num_tokens:
            stop_s = published_s - max(record.write_s, 0.0)
            spans.append((stop_s - max(record.score_s, 0.001), stop_s, record.num_tokens))
    if not spans:
        return None
    first_s, last_s = min(span[0] for span in spans), max(span[1] for span in spans)
    # Of what went on inside a shard nothing is known, so that finer steps would show nothing but rounding.
    least_s = max((last_s - first_s) / _MAX_STEPS, median(to_s - from_s for from_s, to_s, _ in spans))
    step_s = next((step for step in _STEPS_S if step >= least_s), _STEPS_S[-1] * (1 + int(least_s / _STEPS_S[-1])))
    start_s = first_s // step_s * step_s
    tokens = [0.0] * (int((last_s - start_s) // step_s) + 1)
    for from_s, to_s, num_tokens in spans:
        rate = num_tokens / (to_s - from_s)
        for place in range(int((from_s - start_s) // step_s), int((to_s - start_s) // step_s) + 1):
            low = max(from_s, start_s + place * step_s)
            high = min(to_s, start_s + (place + 1) * step_s)
            tokens[place] += rate * max(0.0, high - low)
    # The first and the last step are not worked through: what fell into them is held against their worked part.
    rates = []
    for place, amount in enumerate(tokens):
        step_start_s = start_s + place * step_s
        worked_s = min(step_start_s + step_s, last_s) - max(step_start_s, first_s)
        rates.append(amount / max(worked_s, 0.001))
    return Speed(start_s, step_s, tuple(rates))


def _seconds(time: str) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def _scorer(record: ShardRecord) -> Scorer:
    return Scorer(
        record.attempt,
        record.host,
        record.device,
        record.device_name,
        record.precision,
        record.path,
        record.threads,
    )


def _shares(records: Sequence[ShardRecord], key: Callable[[ShardRecord], _Key]) -> dict[_Key, Share]:
    groups: dict[_Key, list[ShardRecord]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return {name: _share(group) for name, group in groups.items()}


def _share(records: Sequence[ShardRecord]) -> Share:
    return Share(
        num_shards=len(records),
        num_rows=sum(record.num_rows for record in records),
        num_tokens=sum(record.num_tokens for record in records),
        num_splits=sum(len(record.splits) for record in records),
        score_s=sum(record.score_s for record in records),
        last_finished_at=max(record.finished_at for record in records),
    )
