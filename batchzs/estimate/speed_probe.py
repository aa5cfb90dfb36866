"""How fast this device scores a job's own texts, measured for some seconds, and what that makes of the whole job.

Loads the model; writes nothing. Rows that are too close to call in low precision, which a run scores again in fp32, are
not among what is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.engine import Engine, ScoringCounts
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import OK, InputSet
from batchzs.plan import spread_rows
from batchzs.resources import engine_settings, load_pair_model, place, place_workers, resolve, settle_batch_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.estimate.estimate import PlannedJob
    from batchzs.test_hook import TestHook

#: About how long the round takes that is measured.
PROBE_S = 8.0
_MAX_TEXTS = 4096
_FIRST_TEXTS = 8


@dataclass(frozen=True, slots=True)
class TaskTime:
    """How long a number of tasks would take, each on a device like this one."""

    num_tasks: int
    most_shards: int  # of a task
    time_s: float


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured."""

    device: str
    precision: str
    num_devices: int
    tokens_per_s: float
    pairs_per_s: float
    measured_s: float
    num_pairs: int
    load_s: float
    rescores_close: bool  # whether a run would score close rows again, which is not measured


def probe_speed(planned: PlannedJob, hook: TestHook) -> Speed:
    """Load the job's model and score some of its rows.

    Raises:
        MachineError: the device is not there or cannot be used.
        ModelError: the weights are damaged or incomplete.
    """
    job, opened = planned.job, planned.opened
    placement = place(job, hook)
    started_s = time.monotonic()
    resolved = resolve(job, placement, hook)
    loaded = load_pair_model(opened, placement, resolved, hook)
    resolved = settle_batch_tokens(job, resolved, loaded)
    load_s = time.monotonic() - started_s
    num_devices = len(place_workers(job, placement)) if (job.engine.device, placement.kind) == ("all", "cuda") else 1
    settings = engine_settings(job, resolved, opened.classes(loaded.model.num_classes))
    hypotheses = [label.hypothesis for label in job.labels]
    engine = Engine(loaded.model, opened.tokenizer, hypotheses, settings, lambda *_: None)
    counts, measured_s = _measure(engine, texts) if (texts := _texts(planned)) else (ScoringCounts(), 0.0)
    return Speed(
        device=placement.name,
        precision=resolved.precision,
        num_devices=num_devices,
        tokens_per_s=counts.num_tokens / max(measured_s, 1e-6),
        pairs_per_s=counts.num_pairs / max(measured_s, 1e-6),
        measured_s=measured_s,
        num_pairs=counts.num_pairs,
        load_s=load_s,
        rescores_close=job.rescores_close(resolved.precision),
    )


def task_times(shard_rows: Sequence[int], num_tokens: int, speed: Speed, max_tasks: int) -> list[TaskTime]:
    """Reckon how long 1, 2, 4 and so on up to `max_tasks` tasks take: as long as the one with most rows.

    >>> speed = Speed("a CPU", "fp32", 1, 100.0, 2.0, 8.0, 16, load_s=1.0, rescores_close=False)
    >>> [(one.num_tasks, one.most_shards, one.time_s) for one in task_times([10, 10, 5], 2500, speed, 4)]
    [(1, 3, 26.0), (2, 2, 16.0), (4, 1, 11.0)]
    """
    counts = []
    count = 1
    while count < max_tasks:
        counts.append(count)
        count *= 2
    counts.append(max_tasks)
    total = max(sum(shard_rows), 1)
    times = []
    for num_tasks in counts:
        most_rows = max(sum(shard_rows[task::num_tasks]) for task in range(min(num_tasks, len(shard_rows))))
        scoring_s = num_tokens * most_rows / total / max(speed.tokens_per_s * speed.num_devices, 1e-6)
        times.append(TaskTime(num_tasks, -(-len(shard_rows) // num_tasks), speed.load_s + scoring_s))
    return times


def _measure(engine: Engine, texts: Sequence[str]) -> tuple[ScoringCounts, float]:
    """Score more and more texts until that takes long enough; the last round counts, in which batches are full."""
    num_texts = min(_FIRST_TEXTS, len(texts))
    engine.score(texts[:num_texts])  # what the first call prepares, later ones find ready
    while True:
        started_s = time.monotonic()
        counts = engine.score(texts[:num_texts]).counts
        round_s = time.monotonic() - started_s
        if round_s > PROBE_S / 2 or num_texts == len(texts):
            return counts, round_s
        num_texts = min(len(texts), num_texts * max(2, min(16, int(PROBE_S / max(round_s, 1e-3)))))


def _texts(planned: PlannedJob) -> list[str]:
    """Some of the job's readable texts, spread over its rows, in an order in which any first part is spread too."""
    spans = spread_rows(planned.shards, max(1, min(_MAX_TEXTS, 400_000 // len(planned.job.labels))))
    rows = read_rows(planned.spec, InputSet(planned.inputs.files, ()), spans)
    texts = [text for text, status in zip(rows.texts, rows.statuses, strict=True) if status == OK and text.strip()]
    stride = 61  # a prime near the root of the most texts
    return [text for start in range(stride) for text in texts[start::stride]]
