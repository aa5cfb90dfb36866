"""How long this run's own steps take, and from that whether there is time for another one before the deadline.

Each kind of step is expected to take as long as the longest one so far: a time limit that is met costs what is kept by
nobody yet, and stopping a little early costs seconds. Before the first one a guess stands in.

What is promised of each step: a batch that begins is kept before the deadline, and a shard that goes to the disk is
published before it. Everything else that a run does can be dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from batchzs.records import ShardRecord
    from batchzs.stopping import StopFlag

#: `auto` sizes a batch so that it takes no longer; see `resources`.
FIRST_BATCH_S = 5.0
#: fp32 takes so many times as long, on GPUs and on CPUs that multiply bf16 in hardware.
EXACT_FACTOR = 8.0
#: Reading and tokenising a full shard of headlines.
FIRST_READ_S = 5.0
#: A slow file system's share of publishing, and each row's: encoding and compressing.
FIRST_PUBLISH_S = 2.0
FIRST_PUBLISH_ROW_S = 50e-6
#: One publication that hung is forgotten after so many others.
_NUM_PUBLICATIONS = 8


@dataclass(slots=True)
class Pace:
    """The longest steps so far, in seconds; None before the first of its kind."""

    batch_s: float | None = None
    exact_batch_s: float | None = None  # in fp32, where the run's precision is lower
    read_s: float | None = None  # tokenising and planning counted
    sync_s: float = 0.0  # of the journal
    _publications_s: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_PUBLICATIONS))
    _lock: Lock = field(default_factory=Lock)

    def batch(self, seconds: float, *, is_exact: bool) -> None:
        """Count a batch; several workers do at once."""
        with self._lock:
            if is_exact:
                self.exact_batch_s = max(self.exact_batch_s or 0.0, seconds)
            else:
                self.batch_s = max(self.batch_s or 0.0, seconds)

    def read(self, seconds: float) -> None:
        """Count the reading of a shard."""
        self.read_s = max(self.read_s or 0.0, seconds)

    def sync(self, seconds: float) -> None:
        """Count a record's way into the journal."""
        self.sync_s = max(self.sync_s, seconds)

    def publication(self, seconds: float) -> None:
        """Count a shard's way from its logits to its name, in this attempt or an earlier one."""
        self._publications_s.append(seconds)

    def to_score_batch_s(self, *, is_exact: bool) -> float:
        """Until a batch that begins now is in the journal.

        With several workers one batch waits for another one's worker: it takes the time of two.
        """
        usual_s = FIRST_BATCH_S if self.batch_s is None else self.batch_s
        exact_s = EXACT_FACTOR * usual_s if self.exact_batch_s is None else self.exact_batch_s
        return 2 * (exact_s if is_exact else usual_s) + self.sync_s

    def to_begin_shard_s(self) -> float:
        """Until a shard that is read now has its first batch in the journal."""
        read_s = FIRST_READ_S if self.read_s is None else self.read_s
        return read_s + self.to_score_batch_s(is_exact=False)

    def to_publish_s(self, num_rows: int) -> float:
        """Until a shard that is scored has its name."""
        return max(self._publications_s, default=FIRST_PUBLISH_S + FIRST_PUBLISH_ROW_S * num_rows)


def pace_of(records: Iterable[ShardRecord]) -> Pace:
    """What earlier attempts tell: how long their last shards took to publish; devices and batches may differ."""
    pace = Pace()
    for record in sorted(records, key=lambda record: record.finished_at)[-_NUM_PUBLICATIONS:]:
        pace.publication(record.write_s + FIRST_PUBLISH_S)  # the record was written before the shard was synced
    return pace


@dataclass(frozen=True, slots=True)
class TimedBatches:
    """Times batches, and lets none begin that could not be kept any more: a `BatchGate` of the engine's."""

    pace: Pace
    stop: StopFlag
    is_exact: bool

    def before(self) -> None:
        """Do nothing, or end the scoring; see `StopFlag.check_time`."""
        self.stop.check_time(self.pace.to_score_batch_s(is_exact=self.is_exact))

    def after(self, seconds: float) -> None:
        """Count a batch that took so long."""
        self.pace.batch(seconds, is_exact=self.is_exact)
