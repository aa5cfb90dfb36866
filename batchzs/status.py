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

from pydantic import ValidationError

from batchzs.errors import UsageError
from batchzs.progress import format_duration
from batchzs.records import Generation, RunRecord, ShardRecord, count_quarantined, read_json, read_record
from batchzs.tasks import task_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from batchzs.paths import RunPaths

#: The pace is that of the shards published last; earlier ones may have had another device.
_LATEST = 20
_LOG_TAIL_BYTES = 16_384
#: Messages that say why a run is not at work any more.
_ENDING = re.compile(
    r"^[0-9-]{10} [0-9:]{8} (?:error: .*|warning: (?:stopped (?:by|before)|not requeued:) .*|asking Slurm .*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """What is published of a run, or of a task's part of it."""

    num_shards: int | None  # in all; None before the run is settled
    num_shards_done: int
    num_rows_done: int
    tokens_per_s: float | None  # over the latest shards

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return self.num_shards == self.num_shards_done


@dataclass(frozen=True, slots=True)
class Worker:
    """A whole run or a task: whether its process lives, and why it ended where it did not end well."""

    name: str  # "run", or a task's
    holder: str | None  # what its lock file says, where the lock is held
    trouble: str | None  # the last error or stop in its log, where nothing follows it
    progress: Progress

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
    num_rows_journalled: int  # about: scored in shards that are under way, and on disk
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
    added = list(_generations(paths))
    num_rows = None if record is None else _selected_rows(record) + sum(one.num_rows for one in added)
    num_shards = None if record is None else record.num_shards + sum(one.num_shards for one in added)
    workers = _workers(paths, num_shards, done)
    labels: Counter[str] = Counter()
    for shard in done:
        labels.update(shard.labels)
    progress = _progress(done, num_shards)
    num_journalled = 0 if record is None else _rows_journalled(paths, record)
    remaining_s = None
    latest = _latest(done)
    if num_rows is not None and (busy_s := sum(shard.score_s for shard in latest)) > 0:
        num_missing = max(0, num_rows - progress.num_rows_done - num_journalled)
        num_running = sum(worker.is_running for worker in workers if worker.name != "run")
        num_running = num_running or _num_processes(paths)
        remaining_s = num_missing * busy_s / sum(shard.num_rows for shard in latest) / num_running
    return RunStatus(
        output=str(paths.output),
        is_finished=paths.success.exists(),
        num_rows=num_rows,
        num_shards=progress.num_shards,
        num_rows_done=progress.num_rows_done,
        num_rows_journalled=num_journalled,
        num_shards_done=progress.num_shards_done,
        num_quarantined=sum(count_quarantined(shard.statuses) for shard in done),
        labels=dict(labels),
        tokens_per_s=progress.tokens_per_s,
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
        if status.num_rows_journalled:
            lines.append(f"{'under way':<12}about {status.num_rows_journalled:,} more rows are scored and kept")
    lines.append(f"{'quarantined':<12}{status.num_quarantined:,}")
    if status.tokens_per_s is not None:
        lines.append(f"{'speed':<12}{status.tokens_per_s:,.0f} tokens/s a worker, over the latest shards")
    if status.remaining_s is not None and not status.is_finished:
        lines.append(f"{'to go':<12}about {format_duration(status.remaining_s)}{'' if at_work else ' of work'}")
    lines += _worker_lines(status)
    lines.append(f"{'output':<12}{status.output}")
    return lines


def _worker_lines(status: RunStatus) -> list[str]:
    """A line for the run, or for each task that is not done; the others are counted."""
    if status.is_finished and not any(worker.is_running for worker in status.workers):
        return []
    lines = []
    tasks = [worker for worker in status.workers if worker.name != "run"]
    complete = [worker for worker in tasks if worker.progress.is_complete]
    if complete:
        lines.append(f"{'tasks':<12}{len(complete):,} of the {len(tasks):,} that were started are complete")
    for worker in status.workers:
        what = worker.holder or worker.trouble
        if worker.name == "run" and what is not None:
            lines.append(f"{worker.name:<12}{what}")
        elif worker.name != "run" and not worker.progress.is_complete:
            lines.append(f"{worker.name:<12} {_format_progress(worker.progress)}; {what or 'not running'}")
    return lines


def _format_progress(progress: Progress) -> str:
    if progress.num_shards is None:
        return "not counted yet"
    pace = "" if progress.tokens_per_s is None else f", {progress.tokens_per_s:,.0f} tokens/s"
    shards = f"{progress.num_shards_done:,} of {progress.num_shards:,} shards"
    return f"{shards}, {progress.num_rows_done:,} rows{pace}"


def _latest(done: Sequence[ShardRecord]) -> list[ShardRecord]:
    return sorted(done, key=lambda shard: shard.finished_at)[-_LATEST:]


def _progress(done: Sequence[ShardRecord], num_shards: int | None) -> Progress:
    latest = _latest(done)
    busy_s = sum(shard.score_s for shard in latest)
    return Progress(
        num_shards=num_shards,
        num_shards_done=len(done),
        num_rows_done=sum(shard.num_rows for shard in done),
        tokens_per_s=sum(shard.num_tokens for shard in latest) / busy_s if busy_s > 0 else None,
    )


def _rows_journalled(paths: RunPaths, record: RunRecord) -> int:
    """About how many rows are scored in shards under way, by the size of their journals."""
    labels = record.job.get("labels")
    pair_bytes = record.model.num_classes * 4
    row_bytes = pair_bytes * (len(labels) if isinstance(labels, list) and labels else 1)
    num_rows = 0
    for path in paths.journals.glob("part-*.journal"):
        try:
            num_bytes = path.stat().st_size
        except FileNotFoundError:  # its shard was published in between
            continue
        if not paths.shard(int(path.stem.removeprefix("part-"))).exists():
            num_rows += min(num_bytes // row_bytes, record.resolved.shard_rows)
    return num_rows


def _generations(paths: RunPaths) -> Iterator[Generation]:
    """What was added to the run, as its records say; whether it fits the files only `known_input` looks at."""
    number = 2
    while isinstance(raw := read_json(paths.generation(number)), dict):
        try:
            yield Generation.model_validate(raw.get("generation"))
        except ValidationError:
            return
        number += 1


def _selected_rows(record: RunRecord) -> int:
    """Rows of the run: all, or as many as `--limit` or `--sample` asked for."""
    asked = [record.fingerprint.layout.get(name) for name in ("--limit", "--sample")]
    return min([record.num_rows, *(number for number in asked if isinstance(number, int))])


def _num_processes(paths: RunPaths) -> int:
    """How many processes the last attempt of a whole run shares its shards out among: one, but on all devices."""
    try:
        return int(paths.attempt.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 1


def _workers(paths: RunPaths, num_shards: int | None, done: Sequence[ShardRecord]) -> tuple[Worker, ...]:
    found = []
    for path in sorted(paths.tasks.glob("task-*.lock")):
        task = task_named(path.stem)
        if task is None:
            continue
        num_own = None if num_shards is None else sum(map(task.holds, range(num_shards)))
        progress = _progress([shard for shard in done if task.holds(shard.index)], num_own)
        found.append(Worker(path.stem, _holder(path), _trouble(path.with_suffix(".log")), progress))
    if any(worker.is_running for worker in found):
        return tuple(found)  # they hold the run's lock together, and what a whole run once said is over
    return (Worker("run", _holder(paths.lock), _trouble(paths.log), _progress(done, num_shards)), *found)


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
