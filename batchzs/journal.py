"""Progress inside a shard: an append-only file of logits, batch after batch in planned order.

A record is a length, a checksum, and the logits of one or more whole batches; it is synced before it counts. Whatever
tears the last record (a kill, a power failure, a full disk) costs that record only: reading stops at the first one
whose checksum does not hold, and writing goes on from there. The checksum covers how much is recorded before, so that
a record holds in its own place alone: two runs that share an output without knowing (a file system without locks) may
write over each other's records. The file begins with a key that says which shard of which run, planned how, it belongs
to; under any other key it is worth nothing and is begun anew.

    header   magic (8 bytes), key (32 bytes)
    record   payload length (uint32), CRC-32 of the payload (uint32) begun with the bytes of logits before it, payload
    payload  seconds of scoring since the record before (float64), logits (float32), all little-endian

The format is batchzs's own, so that a record costs its logits and twelve bytes and can be synced by itself.
"""

from __future__ import annotations

import logging
import os
import struct
import time
import zlib
from typing import IO, TYPE_CHECKING, Self

import numpy as np

from batchzs.durable import open_no_link, sync_folder
from batchzs.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

logger = logging.getLogger(__name__)

MAGIC = b"batchzs\x02"
KEY_BYTES = 32
_HEADER_BYTES = len(MAGIC) + KEY_BYTES
_RECORD = struct.Struct("<II")
_SECONDS = struct.Struct("<d")


class NoJournal:
    """Keeps nothing: a shard is scored in one go or from its beginning."""

    recovered_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End without writing anything."""

    def recover(self, num_classes: int) -> np.ndarray:
        """Nothing is left from before: (0, classes) float32."""
        return np.empty((0, num_classes), dtype=np.float32)

    def add(self, logits: np.ndarray) -> None:
        """Keep nothing."""


class ShardJournal:
    """The journal of one shard under way; use it in a `with` block, which writes down what is pending at its end.

    Args:
        path: the journal's file, made if it is not there.
        key: 32 bytes that name shard, run and plan.
        interval_s: how much scoring may be lost: a record is written before more than this is pending.
        clock: gives seconds.
        reach: told when a record is half written, and when it is written and not synced (see `batchzs.test_hook`).

    Raises:
        MachineError: the file cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        key: bytes,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
        reach: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._interval_s = interval_s
        self._clock = clock
        self._reach = reach
        self._pending: list[np.ndarray] = []
        self._has_failed = False
        self._last_record_s = self._last_batch_s = clock()
        self.recovered_s = 0.0
        self.longest_write_s = 0.0  # of a record, synced
        self._recovered: list[bytes] = []
        self._num_logit_bytes = 0  # recorded so far
        try:
            self._file = self._open(key)
        except OSError as exc:
            raise self._error(exc) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Where a record could not be written, what ends the run is that error, on its way already.
            if not self._has_failed:
                self.write_pending()
        finally:
            self._file.close()

    def recover(self, num_classes: int) -> np.ndarray:
        """Take the logits that earlier attempts left.

        Returns:
            (pairs, classes) float32, for the first pairs of the plan, ending where a batch ends.
        """
        logits = np.frombuffer(b"".join(self._recovered), dtype="<f4").reshape(-1, num_classes)
        self._recovered = []
        self._last_record_s = self._last_batch_s = self._clock()
        return logits.astype(np.float32)

    def add(self, logits: np.ndarray) -> None:
        """Take one whole batch's logits, (pairs, classes) float32, and write a record when one is due.

        Due is before another batch as long as this one could carry what is pending past the interval.
        """
        self._pending.append(logits)
        now_s = self._clock()
        batch_s, self._last_batch_s = now_s - self._last_batch_s, now_s
        if now_s - self._last_record_s + batch_s >= self._interval_s:
            self.write_pending()

    def write_pending(self) -> None:
        """Make everything added so far durable.

        Raises:
            MachineError: the disk is in the way.
        """
        if not self._pending:
            return
        now_s = self._clock()
        logits = np.concatenate(self._pending).astype("<f4").tobytes()
        payload = _SECONDS.pack(now_s - self._last_record_s) + logits
        try:
            _write_all(self._file, _RECORD.pack(len(payload), self._checksum(payload)))
            self._reach("journal-torn")
            _write_all(self._file, payload)
            self._reach("journal-written")
            os.fsync(self._file.fileno())
        except OSError as exc:
            self._has_failed = True
            raise self._error(exc) from exc
        self.longest_write_s = max(self.longest_write_s, self._clock() - now_s)
        self._pending = []
        self._num_logit_bytes += len(logits)
        self._last_record_s = now_s

    def _open(self, key: bytes) -> IO[bytes]:
        content = self._path.read_bytes() if self._path.exists() else b""
        end = 0
        if content[:_HEADER_BYTES] == MAGIC + key:
            end = self._read_records(content)
        elif content:
            logger.warning("%s: belongs to another plan or is damaged: beginning it anew", self._path)
        if end:
            file = open(self._path, "r+b", buffering=0, opener=open_no_link)  # noqa: SIM115 - closed with the journal
            file.truncate(end)
            file.seek(end)
            return file
        file = open(self._path, "wb", buffering=0, opener=open_no_link)  # noqa: SIM115 - closed with the journal
        try:
            _write_all(file, MAGIC + key)
            sync_folder(self._path.parent)  # a synced record in a file without a name would be lost
        except OSError:
            file.close()
            raise
        return file

    def _read_records(self, content: bytes) -> int:
        """Collect the records whose checksums hold; returns where the last of them ends."""
        end = _HEADER_BYTES
        while len(content) - end >= _RECORD.size:
            length, checksum = _RECORD.unpack_from(content, end)
            payload = content[end + _RECORD.size : end + _RECORD.size + length]
            if len(payload) < max(length, _SECONDS.size) or self._checksum(payload) != checksum:
                break
            self.recovered_s += _SECONDS.unpack_from(payload)[0]
            self._recovered.append(payload[_SECONDS.size :])
            self._num_logit_bytes += length - _SECONDS.size
            end += _RECORD.size + length
        if end < len(content):
            logger.warning("%s: its last record is torn: dropping %d bytes", self._path, len(content) - end)
        return end

    def _checksum(self, payload: bytes) -> int:
        return zlib.crc32(payload, self._num_logit_bytes & 0xFFFF_FFFF)

    def _error(self, exc: OSError) -> MachineError:
        return MachineError(
            f"{self._path}: progress inside the shard cannot be kept: {exc.strerror or exc}. Free space or mend the "
            "permissions; the same command goes on from what is published"
        )


def _write_all(file: IO[bytes], content: bytes) -> None:
    """Write every byte: on a nearly full disk an unbuffered file takes what fits, and raises at the next write only."""
    while content:
        content = content[file.write(content) :]
