"""What lies in `state/` as JSON: the run's record, one record a shard, and their types.

Every record is a frozen pydantic model, written whole under a temporary name. A record that cannot be read counts as
absent: what is done is derived from the shards themselves.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from batchzs.durable import publish_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Raised when a record's meaning changes, so that an older batchzs does not misread a newer run.
FORMAT_VERSION = 1

#: Shards are numbered with five digits, and names sort as numbers only while all have as many.
MAX_SHARDS = 100_000

#: Statuses of rows that are no damage: everything else is quarantine.
SOUND_STATUSES = ("ok", "empty")


def count_quarantined(statuses: Mapping[str, int]) -> int:
    """Count the rows that are neither scored nor empty.

    >>> count_quarantined({"ok": 5, "empty": 2, "bad_record": 3, "non_finite": 1})
    4
    """
    return sum(count for status, count in statuses.items() if status not in SOUND_STATUSES)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelFile(_Record):
    """One of the checkpoint's files; size and time tell whether the digest still holds without reading it."""

    name: str
    size_bytes: int
    mtime_ns: int
    sha256: str


class ModelRecord(_Record):
    """Which checkpoint a run scores with."""

    directory: str
    hub_id: str | None
    revision: str | None
    files: tuple[ModelFile, ...]
    num_classes: int
    entailment_id: int
    contradiction_id: int
    neutral_id: int | None


class Resolved(_Record):
    """What `auto` came to at the first run; batches are planned from it ever after."""

    device_kind: Literal["cpu", "cuda"]
    precision: Literal["fp32", "fp16", "bf16"]
    threads: int
    workers: int
    shard_rows: int
    max_batch_tokens: int
    labels_per_chunk: int
    #: Rows whose label hangs on no more than this are scored again in fp32; None: none is.
    rescore_margin: float | None = None


class FingerprintRecord(_Record):
    """What makes a run the same run, in three parts; see `batchzs.fingerprint`."""

    scores: dict[str, JsonValue]
    layout: dict[str, JsonValue]
    decision: dict[str, JsonValue]


class OtherLabel(_Record):
    """A label for rows that none of the job's fits: below a score, or with two best scores too near each other."""

    name: str
    below: float | None
    margin: float | None


class PriorsRecord(_Record):
    """The mean scores that a decision's scores were corrected by; see `batchzs.decide.priors`."""

    kind: Literal["batch", "content-free"]
    output: str | None  # where content-free texts were scored
    num_rows: int
    values: dict[str, float]  # by label of the run


class DecidedRecord(_Record):
    """What an output that `batchzs decide` wrote was made from, and what was decided beside its job's settings."""

    source: str  # the output with the logits
    source_fingerprint: str
    source_shards: str  # SHA-256 over its shards' checksums
    merge: dict[str, tuple[str, ...]]
    other: OtherLabel | None
    priors: PriorsRecord | None
    margin: float | None  # scores of low precision: how far apart two may change places; None: exact
    close_column: str | None


class RunRecord(_Record):
    """What a run is, settled when it first began; its numbers are those of the files that it was begun with."""

    format_version: int
    batchzs_version: str
    created_at: str
    job: dict[str, JsonValue]
    fingerprint: FingerprintRecord
    resolved: Resolved
    model: ModelRecord
    input_digest: str
    num_rows: int
    num_shards: int
    #: Where a task settled the run: how many tasks there are, and what the scheduler calls the first one.
    num_tasks: int | None = None
    first_task_id: int | None = None
    #: The day in the job's paths.
    day: str | None = None
    #: For each label, how many tokens of a text fit beside its hypothesis; empty in records that came before it.
    text_rooms: tuple[int, ...] = ()
    test_hook: dict[str, JsonValue]
    #: Where labels were decided again from another output's logits.
    decided: DecidedRecord | None = None


class Generation(_Record):
    """Files that were added to the input of a run together, and the shards that their rows are cut into."""

    number: int  # 2 for the first that were added: the files that the run was begun with are generation 1
    num_files: int
    num_rows: int
    num_shards: int = Field(ge=0, le=MAX_SHARDS)
    input_digest: str  # of all files up to these: what the shards of this generation carry
    begun_at: str


class SplitRecord(_Record):
    """A batch that did not fit into memory."""

    shape: str
    batch_tokens: int
    limit_tokens: int


class ShardRecord(_Record):
    """What one finished shard holds and what it took."""

    index: int
    first_row: int
    num_rows: int
    statuses: dict[str, int]
    labels: dict[str, int]
    num_truncated: int
    num_duplicates: int
    num_nul_texts: int
    num_scored_alone: int
    num_rescored: int
    num_pairs: int
    num_tokens: int
    size_bytes: int
    sha256: str
    read_s: float
    score_s: float
    exact_s: float
    write_s: float
    finished_at: str
    attempt: int
    host: str
    device: str
    device_name: str
    precision: str
    path: str
    threads: int
    max_batch_tokens: int
    splits: tuple[SplitRecord, ...]


class Summary(_Record):
    """Every number of the closing summary, over all attempts."""

    output: str
    day: str | None = None
    num_rows: int
    num_shards: int
    statuses: dict[str, int]
    labels: dict[str, int]
    num_unlabelled: int
    num_empty: int
    num_quarantined: int
    quarantined_share: float
    max_bad_share: float
    num_truncated: int
    num_duplicates: int
    num_nul_texts: int
    num_scored_alone: int
    num_rescored: int
    num_pairs: int
    num_tokens: int
    num_splits: int
    read_s: float
    device_s: float
    exact_s: float
    write_s: float
    pairs_per_s: float
    tokens_per_s: float
    devices: tuple[str, ...]
    num_attempts: int
    created_at: str
    finished_at: str
    resolved: Resolved
    test_hook: dict[str, JsonValue]


def input_digest_of(run: RunRecord, added: Sequence[Generation], number: int) -> str:
    """The digest of all files up to a generation, of which the run's own is number 1."""
    return run.input_digest if number == 1 else added[number - 2].input_digest


AnyRecord = TypeVar("AnyRecord", bound=_Record)


def write_record(path: Path, record: _Record, temporary_folder: Path) -> None:
    """Write a record, all or nothing.

    Raises:
        MachineError: the disk is in the way.
    """
    publish_bytes(path, record_content(record), temporary_folder)


def record_content(record: _Record) -> bytes:
    """A record as it lies in its file."""
    return json.dumps(record.model_dump(mode="json"), ensure_ascii=False, indent=1).encode() + b"\n"


def read_record(path: Path, kind: type[AnyRecord]) -> AnyRecord | None:
    """Read a record; None where it is absent, torn, or not of this kind."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def read_json(path: Path) -> Any | None:
    """Read a JSON file; None where it is absent or torn."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
