"""How far a run is, from its state alone: what is done, how fast, who is at work, what stopped it.

Reads small files and takes no lock for longer than an instant; the input, the model and the shards themselves are not
looked at, so that it answers at once from any machine that sees the output.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.errors import UsageError
from batchzs.progress import format_duration
from batchzs.records import RunRecord, ShardRecord, count_quarantined, read_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchzs.paths import RunPaths

#: The pace is that of the shards published last; earlier ones may have had another device.
_LATEST = 20
_LOG_TAIL_BYTES = 16_384
#: Messages that say why a run is not at work any more.
_ENDING = re.compile(r"^[0-9-]{10} [0-9:]{8} (?:error: .*|warning: stopped by .*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Worker:
    """A whole run or a task: whether its process lives, and why it ended where it did not end well."""

    name: str  # "run", or a task's
    holder: str | None  # what its lock file says, where the lock is held
    trouble: str | None  # the last error or stop in its log, where nothing follows it

    @property
    def is_running(self) -> bool:
        """Whether a living process holds the lock."""
        return self.holder is not None


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How far a run is."""

    output: str
    is_finished: bool
    num_rows: int | None  # of the run; None before it is settled
    num_shards: int | None
    num_rows_done: int
    num_shards_done: int
    num_quarantined: int
    labels: dict[str, int]
    tokens_per_s: float | None  # of one worker, over the latest shards
    remaining_s: float | None
    workers: tuple[Worker, ...]
    day: str | None = None  # in the job's paths


def read_status(paths: RunPaths) -> RunStatus:
    """Read a run's state.

    Raises:
        UsageError: the folder holds no run of batchzs.
    """
    record = read_record(paths.run_record, RunRecord)
    if record is None and not paths.lock.exists():
        raise UsageError(
            f"{paths.output}: holds no run of batchzs, expected an output.path or a job whose run has begun"
        )
    done = [
        one
        for path in sorted(paths.shard_records.glob("part-*.json"))
        if paths.shard(int(path.stem.removeprefix("part-"))).exists()
        and (one := read_record(path, ShardRecord)) is not None
    ]
    workers = _workers(paths)
    num_rows = None if record is None else _selected_rows(record)
    labels: Counter[str] = Counter()
    for shard in done:
        labels.update(shard.labels)
    num_done = sum(shard.num_rows for shard in done)
    latest = sorted(done, key=lambda shard: shard.finished_at)[-_LATEST:]
    busy_s = sum(shard.score_s for shard in latest)
    num_running = sum(worker.is_running for worker in workers if worker.name != "run") or 1
    remaining_s = None
    if num_rows is not None and busy_s > 0:
        remaining_s = (num_rows - num_done) * busy_s / sum(shard.num_rows for shard in latest) / num_running
    return RunStatus(
        output=str(paths.output),
        is_finished=paths.success.exists(),
        num_rows=num_rows,
        num_shards=None if record is None else record.num_shards,
        num_rows_done=num_done,
        num_shards_done=len(done),
        num_quarantined=sum(count_quarantined(shard.statuses) for shard in done),
        labels=dict(labels),
        tokens_per_s=sum(shard.num_tokens for shard in latest) / busy_s if busy_s > 0 else None,
        remaining_s=remaining_s,
        workers=workers,
        day=None if record is None else record.day,
    )


def format_status(status: RunStatus) -> list[str]:
    """Write a run's status for people."""
    at_work = [worker for worker in status.workers if worker.is_running]
    if status.is_finished:
        state = "finished"
    elif at_work:
        state = "running"
    else:
        state = "not running, not finished: the same command goes on"
    lines = [f"{'state':<12}{state}"]
    if status.day is not None:
        lines.append(f"{'date':<12}{status.day}")
    if status.num_rows is None:
        lines.append(f"{'rows':<12}not counted yet")
    else:
        share = status.num_rows_done / status.num_rows if status.num_rows else 1.0
        lines.append(
            f"{'rows':<12}{status.num_rows_done:,} of {status.num_rows:,} ({share:.1%}), "
            f"{status.num_shards_done:,} of {status.num_shards:,} shards"
        )
    lines.append(f"{'quarantined':<12}{status.num_quarantined:,}")
    if status.tokens_per_s is not None:
        lines.append(f"{'speed':<12}{status.tokens_per_s:,.0f} tokens/s a worker, over the latest shards")
    if status.remaining_s is not None and not status.is_finished:
        lines.append(f"{'to go':<12}about {format_duration(status.remaining_s)}{'' if at_work else ' of work'}")
    for worker in status.workers:
        what = worker.holder or worker.trouble
        if what is not None and not (status.is_finished and not worker.is_running):
            lines.append(f"{worker.name:<12}{what}")
    lines.append(f"{'output':<12}{status.output}")
    return lines


def _selected_rows(record: RunRecord) -> int:
    """Rows of the run: all, or as many as `--limit` or `--sample` asked for."""
    asked = [record.fingerprint.layout.get(name) for name in ("--limit", "--sample")]
    return min([record.num_rows, *(number for number in asked if isinstance(number, int))])


def _workers(paths: RunPaths) -> tuple[Worker, ...]:
    tasks = sorted(paths.tasks.glob("task-*.lock"))
    found = [Worker(path.stem, _holder(path), _trouble(path.with_suffix(".log"))) for path in tasks]
    if any(worker.is_running for worker in found):
        return tuple(found)  # they hold the run's lock together, and what a whole run once said is over
    return (Worker("run", _holder(paths.lock), _trouble(paths.log)), *found)


def _holder(path: Path) -> str | None:
    """What a lock file says, if a living process holds the lock; taken for an instant to see that."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _one_line(os.pread(descriptor, 200, 0)) or "a process that does not say which"
    finally:
        os.close(descriptor)
    return None


def _trouble(log: Path) -> str | None:
    """The last line that says why a run ended, where no later line says that it went on."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            tail = file.read().decode("utf-8", errors="replace")
    except OSError:
        return None
    lines = _ENDING.findall(tail)
    own_lines: Sequence[str] = [line for line in tail.splitlines() if re.match(r"[0-9-]{10} [0-9:]{8} ", line)]
    return lines[-1] if lines and own_lines and own_lines[-1] == lines[-1] else None


def _one_line(content: bytes) -> str:
    return " ".join(content.decode("utf-8", errors="replace").split())
