"""What a job asks for in vain: settings that stay as they were when its run was begun.

Another value of these is no other run, so it is not refused (`fingerprint`); but it is not passed over in silence.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.logs import fields
from batchzs.resources import LABELS_PER_CHUNK

if TYPE_CHECKING:
    from batchzs.job import JobConfig
    from batchzs.records import Resolved, RunRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptSetting:
    """A key whose value now has no effect."""

    key: str
    asked: str  # as the job has it
    used: str


def kept_settings(job: JobConfig, begun: RunRecord, used: Resolved) -> list[KeptSetting]:
    """Find the keys that ask for something else than is done.

    Args:
        job: as it is now.
        begun: what the run's first attempt settled.
        used: what this attempt takes; some of it is its own, as on another kind of device.
    """
    engine = job.engine
    kept = []
    if job.resolved_shard_rows != used.shard_rows:
        kept.append(KeptSetting("output.shard_rows", str(job.output.shard_rows), str(used.shard_rows)))
    chunk = LABELS_PER_CHUNK if engine.labels_per_chunk == "auto" else engine.labels_per_chunk
    if chunk != used.labels_per_chunk:
        kept.append(KeptSetting("engine.labels_per_chunk", str(engine.labels_per_chunk), str(used.labels_per_chunk)))
    # What `auto` would come to now is not measured: it asks for something else where a number was asked for at first.
    asked = engine.max_batch_tokens
    same = _asked_at_first(begun, "max_batch_tokens") == "auto" if asked == "auto" else asked == used.max_batch_tokens
    if not same and used.device_kind == begun.resolved.device_kind:
        kept.append(KeptSetting("engine.max_batch_tokens", str(asked), str(used.max_batch_tokens)))
    # On all devices of a CPU machine workers are processes, and as many as are asked for.
    if engine.workers != "auto" and engine.workers > used.workers and engine.device != "all":
        kept.append(KeptSetting("engine.workers", str(engine.workers), str(used.workers)))
    return kept


def say_what_is_kept(job: JobConfig, begun: RunRecord, used: Resolved) -> None:
    """Warn of each key that asks for something else than is done; the arguments are those of `kept_settings`."""
    for one in kept_settings(job, begun, used):
        logger.warning(
            "%s: the job asks for %s, and %s stays, with which this run was begun: for %s begin anew with --restart, "
            "or in another output",
            one.key,
            one.asked,
            one.used,
            one.asked,
            extra=fields("setting_kept", key=one.key, asked=one.asked, used=one.used),
        )


def _asked_at_first(begun: RunRecord, key: str) -> object:
    engine = begun.job.get("engine")
    return engine.get(key) if isinstance(engine, dict) else None
