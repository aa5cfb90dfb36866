"""A run's numbers as a text file for Prometheus: `state/metrics.prom`, which node_exporter's textfile collector reads.

Whoever holds the output, or a part of it, writes a file of its own, whole under a temporary name: when it begins, every
so often while it scores, and when it ends. A file that cannot be written costs a warning and no run.

Knows nothing of Prometheus but its text format (version 0.0.4).
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchzs.durable import publish_bytes
from batchzs.errors import BatchzsError, InterruptedRunError, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from batchzs.prepare import RunContext
    from batchzs.progress import Progress
    from batchzs.records import Summary

logger = logging.getLogger(__name__)

#: Between two files: Prometheus asks about twice as often as this at most.
INTERVAL_S = 30.0

#: Every metric, with what its HELP line says. Files of several runs are read together, so these are always the same.
HELP = (
    ("batchzs_rows", "Rows that the run, or this part of it, is to score."),
    ("batchzs_rows_done", "Rows scored, the share of the shard under way included, over all attempts."),
    ("batchzs_rows_quarantined", "Rows quarantined, in complete shards."),
    ("batchzs_pairs", "Pairs of text and label scored, in complete shards."),
    ("batchzs_tokens", "Tokens of pairs scored, in complete shards."),
    ("batchzs_tokens_per_second", "Tokens of pairs scored per second of the last attempt that scored."),
    ("batchzs_start_time_seconds", "When the last attempt began, since the epoch."),
    ("batchzs_last_update_time_seconds", "When these numbers were last written, since the epoch."),
    ("batchzs_last_success_time_seconds", "When an attempt last ended with code 0, since the epoch."),
    ("batchzs_last_exit_code", "The exit code of the last attempt that ended."),
)
_SAMPLE = re.compile(r"^(batchzs_[a-z_]+)\{.*\} ([0-9.]+)$", re.MULTILINE)


def format_metrics(values: Mapping[str, float], labels: Mapping[str, str]) -> str:
    r"""Write metrics in Prometheus' text format.

    Args:
        values: numbers by metric; what has none is left out.
        labels: what tells this run's from others.

    >>> print(format_metrics({"batchzs_rows": 6000}, {"output": 'a "b"\\c'}), end="")
    # HELP batchzs_rows Rows that the run, or this part of it, is to score.
    # TYPE batchzs_rows gauge
    batchzs_rows{output="a \"b\"\\c"} 6000
    """
    named = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    lines = [
        f"# HELP {name} {text}\n# TYPE {name} gauge\n{name}{{{named}}} {_number(values[name])}\n"
        for name, text in HELP
        if name in values
    ]
    return "".join(lines)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"


class MetricsFile:
    """Counts what a run tells of its advance, passes it on, and writes the file when it is due.

    What an attempt does not get to know stays as the last one left it.

    Args:
        path: the file.
        temporary_folder: where it is written before it gets its name.
        labels: what tells this run's metrics from others.
        shown: who else is told.
        clock: gives seconds since the epoch.
    """

    def __init__(
        self,
        path: Path,
        temporary_folder: Path,
        labels: Mapping[str, str],
        shown: Progress,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._temporary_folder = temporary_folder
        self._labels = labels
        self._shown = shown
        self._clock = clock
        self._values = _read_values(path)
        self._rows_done = 0.0
        self._num_tokens = 0  # of this attempt, the shard under way included
        self._scoring_since_s: float | None = None
        self._exit_code: int | None = None
        self._can_write = True
        self._values["batchzs_start_time_seconds"] = clock()
        self._write()

    def start(self, num_rows: int, num_done: int) -> None:
        """Begin scoring; what is told of complete shards from here on counts from nothing."""
        self._rows_done = float(num_done)
        self._scoring_since_s = self._clock()
        self._values |= dict.fromkeys(("batchzs_rows_quarantined", "batchzs_pairs", "batchzs_tokens"), 0)
        self._values |= {"batchzs_rows": num_rows, "batchzs_rows_done": num_done}
        self._write()
        self._shown.start(num_rows, num_done)

    def advance(self, rows: float, tokens: int) -> None:
        """Count, and write the file when it is due."""
        self._rows_done += rows
        self._num_tokens += tokens
        if self._clock() - self._values["batchzs_last_update_time_seconds"] >= INTERVAL_S:
            self._write()
        self._shown.advance(rows, tokens)

    def publish(self, num_pairs: int, num_tokens: int) -> None:
        """Count the work of shards that are complete."""
        self._values["batchzs_pairs"] += num_pairs
        self._values["batchzs_tokens"] += num_tokens
        self._shown.publish(num_pairs, num_tokens)

    def budget(self, limit_tokens: int, num_backoffs: int) -> None:
        """Pass it on."""
        self._shown.budget(limit_tokens, num_backoffs)

    def quarantine(self, num_rows: int) -> None:
        """Count."""
        self._values["batchzs_rows_quarantined"] += num_rows
        self._shown.quarantine(num_rows)

    def close(self) -> None:
        """Pass it on."""
        self._shown.close()

    def conclude(self, summary: Summary, exit_code: int) -> None:
        """Take the closing numbers, of the whole run or of this part, and the code that the command will end with."""
        self._rows_done = float(summary.num_rows)
        self._exit_code = exit_code
        self._values |= {
            "batchzs_rows": summary.num_rows,
            "batchzs_rows_done": summary.num_rows,
            "batchzs_rows_quarantined": summary.num_quarantined,
            "batchzs_pairs": summary.num_pairs,
            "batchzs_tokens": summary.num_tokens,
        }

    def end(self, exit_code: int | None = None) -> None:
        """Write the file for the last time: with this code, or the one of `conclude`."""
        code = self._exit_code if exit_code is None else exit_code
        if code is not None:
            self._values["batchzs_last_exit_code"] = code
            if code == 0:
                self._values["batchzs_last_success_time_seconds"] = self._clock()
        self._write()

    def _write(self) -> None:
        now_s = self._clock()
        self._values["batchzs_last_update_time_seconds"] = now_s
        if self._scoring_since_s is not None:
            self._values["batchzs_rows_done"] = round(self._rows_done)
            if self._num_tokens:
                elapsed_s = max(now_s - self._scoring_since_s, 1e-3)
                self._values["batchzs_tokens_per_second"] = self._num_tokens / elapsed_s
        content = format_metrics(self._values, self._labels).encode("utf-8", errors="backslashreplace")
        try:
            publish_bytes(self._path, content, self._temporary_folder)
        except MachineError as exc:
            if self._can_write:
                logger.warning("no metrics: %s", exc)
            self._can_write = False


def _read_values(path: Path) -> dict[str, float]:
    """The numbers of an earlier attempt, as far as they can be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    known = {name for name, _ in HELP}
    found = [(name, value) for name, value in _SAMPLE.findall(text) if name in known]
    try:
        return {name: float(value) if "." in value else int(value) for name, value in found}
    except ValueError:
        return {}


@contextmanager
def recording_metrics(context: RunContext) -> Iterator[MetricsFile]:
    """Keep an attempt's metrics while the block runs; its lock is held, so that nobody else writes the same file."""
    paths, task = context.paths, context.options.task
    labels = {"output": str(paths.output), **({} if task is None else {"task": str(task)})}
    path = paths.metrics if task is None else paths.task_metrics(task)
    metrics = MetricsFile(path, paths.temporary, labels, context.progress)
    try:
        yield metrics
    except BatchzsError as exc:
        metrics.end(exc.exit_code)
        raise
    except BaseException as exc:
        is_asked = isinstance(exc, KeyboardInterrupt)
        metrics.end(InterruptedRunError.exit_code if is_asked else BatchzsError.exit_code)
        raise
    metrics.end()
