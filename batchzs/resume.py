"""What of a run is done: derived from the shards that are there, never from a note that says so.

A shard counts as done when its file opens, its footer names this run and this shard, and it has the rows that the plan
gives it. Its record is checked against it and made again where it is missing. Anything else is scored again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from batchzs.durable import sync_folder
from batchzs.errors import MachineError, OtherJobError
from batchzs.known_input import KnownInput, next_generation
from batchzs.records import ShardRecord, input_digest_of, read_json, read_record, write_record

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow.parquet as pq
    from pydantic import JsonValue

    from batchzs.job import JobConfig
    from batchzs.paths import RunPaths
    from batchzs.plan import Shard
    from batchzs.records import RunRecord

logger = logging.getLogger(__name__)

_WAYS_OUT = "use another output.path, move the file away, or begin anew with --restart"
_FOREIGN = "move it away, or use another output.path"
#: A shard's name, whichever run wrote it; what is called otherwise in `scores/` is somebody else's.
_SHARD_NAME = re.compile(r"part-[0-9]{5,}\.parquet")


class SettledRun(Protocol):
    """What has to be known of a run to say what of it is done; neither its input nor its model is."""

    @property
    def paths(self) -> RunPaths:
        """The output's names."""

    @property
    def record(self) -> RunRecord:
        """What was settled when it began."""

    @property
    def job(self) -> JobConfig:
        """The job."""

    @property
    def known(self) -> KnownInput:
        """Its files, by generations."""

    @property
    def shards(self) -> Sequence[Shard]:
        """All its shards."""

    @property
    def fingerprint_digest(self) -> str:
        """What each shard carries to say which run it is of."""

    def check_stop(self) -> None:
        """Do nothing, or raise where a stop was asked for."""


def shard_provenance(run: SettledRun, shard: Shard) -> dict[str, JsonValue]:
    """What a shard's metadata says of its making: everything that decides its bytes, and nothing that does not."""
    return {
        "batchzs_version": run.record.batchzs_version,
        "fingerprint": run.fingerprint_digest,
        "shard": shard.index,
        "first_row": shard.first_row,
        "num_rows": shard.num_rows,
        "input": input_digest_of(run.record, run.known.generations, shard.generation),
        "model": run.record.model.hub_id or Path(run.record.model.directory).name,
        "revision": run.record.model.revision,
        "model_files": {file.name: file.sha256 for file in run.record.model.files},
        "labels": [label.name for label in run.job.labels],
        "hypotheses": [label.hypothesis for label in run.job.labels],
        "template": run.record.job["template"],
        "precision": run.record.resolved.precision,
    }


def complete_shards(run: SettledRun, shards: Sequence[Shard]) -> dict[int, ShardRecord]:
    """Find the shards that are done, by index; what lies in their place otherwise is named and will be replaced.

    Args:
        run: the run.
        shards: those of its shards to look at.

    Raises:
        OtherJobError: `scores/` holds a file that is not one of this run's shards.
        InterruptedRunError: a stop was asked for.
    """
    expected = {run.paths.shard(shard.index).name for shard in run.shards}
    strange = [path for path in _files_of_scores(run.paths) if path.name not in expected]
    if strange:  # another task may have taken in new files since this one began
        num_later = num_later_shards(run) or 0
        expected |= {run.paths.shard(len(run.shards) + place).name for place in range(num_later)}
    for path in strange:
        if path.name not in expected:
            raise OtherJobError(f"{path}: is none of this run's {len(expected)} shards: {_WAYS_OUT}")
    done = {}
    for shard in shards:
        run.check_stop()
        path = run.paths.shard(shard.index)
        if not path.exists():
            continue
        problem = shard_problem(path, run, shard)
        record = read_record(run.paths.shard_record(shard.index), ShardRecord)
        if problem is None and record is not None and record.size_bytes != path.stat().st_size:
            problem = f"has {path.stat().st_size} bytes, its record says {record.size_bytes}"
        if problem is not None:
            logger.warning("%s: %s: scoring this shard again", path, problem)
            continue
        if record is None:
            logger.warning("%s: is complete, its record is not there: making it again", path)
            record = _record_again(path, run, shard)
            write_record(run.paths.shard_record(shard.index), record, run.paths.temporary)
        done[shard.index] = record
    return done


def num_later_shards(run: SettledRun) -> int | None:
    """Shards of generations that other tasks have settled since this process began; None where there are none."""
    known, num_shards = run.known, None
    while (one := next_generation(run.paths, known)) is not None:
        known = KnownInput(known.first, (*known.added, one))
        num_shards = (num_shards or 0) + one.generation.num_shards
    return num_shards


def refuse_foreign_shards(paths: RunPaths, fingerprint: str, input_digests: Collection[str]) -> None:
    """See that a new run does not begin among another one's shards.

    Args:
        paths: where the output lies.
        fingerprint: the new run's.
        input_digests: of its input, and of what was added to it since.

    Raises:
        OtherJobError: `scores/` holds a file that is not of a run with this fingerprint, on this input.
    """
    from batchzs.output import read_provenance

    for path in _files_of_scores(paths):
        footer = _footer(path)
        provenance = None if footer is None else read_provenance(footer)
        if provenance is None:
            raise OtherJobError(f"{path}: is a damaged shard, or none of batchzs: {_WAYS_OUT}")
        if provenance.get("fingerprint") != fingerprint:
            raise OtherJobError(f"{path}: was written by another job, whose record is gone: {_WAYS_OUT}")
        if provenance.get("input") not in input_digests:
            raise OtherJobError(f"{path}: was made from another input, whose record is gone: {_WAYS_OUT}")


def remove_run(paths: RunPaths) -> None:
    """Remove what a run made in this output, and nothing else; the log and the lock stay.

    Raises:
        OtherJobError: a file is in the way that no run of batchzs wrote; nothing was removed.
        MachineError: a file cannot be removed.
    """
    from batchzs.output import read_provenance

    raw = read_json(paths.run_record)
    if raw is not None and not (isinstance(raw, dict) and "batchzs_version" in raw):
        raise OtherJobError(f"{paths.run_record}: was not written by batchzs: {_FOREIGN}")
    for path in _files_of_scores(paths):
        footer = _footer(path)
        # A shard that no longer opens may be ours only where a run of ours has begun.
        is_own = raw is not None if footer is None else read_provenance(footer) is not None
        if not is_own:
            raise OtherJobError(f"{path}: was not written by batchzs: {_FOREIGN}")
    try:
        for path in paths.own_files():
            path.unlink(missing_ok=True)
        for folder in (paths.scores, paths.state):
            sync_folder(folder)
    except OSError as exc:
        raise MachineError(f"{exc.filename}: cannot be removed: {exc.strerror}") from exc


def sweep_temporary_files(paths: RunPaths) -> None:
    """Remove the files that killed runs left half written; the output's lock is held, so that nobody writes them now.

    Raises:
        MachineError: a file cannot be removed.
    """
    try:
        for path in paths.temporary.glob("*.tmp"):
            path.unlink(missing_ok=True)
            logger.info("removed %s, which a killed run left half written", path.name)
    except OSError as exc:
        raise MachineError(f"{exc.filename}: cannot be removed: {exc.strerror}") from exc


def describe_indices(indices: Sequence[int]) -> str:
    """Write shard indices for people.

    >>> describe_indices([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _files_of_scores(paths: RunPaths) -> list[Path]:
    """What lies in `scores/`, but for hidden names, which readers of Parquet pass over too (NFS makes such).

    Raises:
        OtherJobError: a file is called like no shard.
    """
    files = [path for path in sorted(paths.scores.iterdir()) if not path.name.startswith((".", "_"))]
    for path in files:
        if not _SHARD_NAME.fullmatch(path.name):
            raise OtherJobError(f"{path}: is no shard of batchzs: {_FOREIGN}")
    return files


def _footer(path: Path) -> pq.FileMetaData | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return None


def shard_problem(path: Path, run: SettledRun, shard: Shard) -> str | None:
    """Why a file is not this shard, complete; None where it is."""
    from batchzs.output import read_provenance

    footer = _footer(path)
    if footer is None:
        return "is no whole Parquet file"
    provenance = read_provenance(footer) or {}
    expected = shard_provenance(run, shard)
    for key in ("fingerprint", "input", "shard", "first_row", "num_rows"):
        if provenance.get(key) != expected[key]:
            return f"its metadata says {key} {provenance.get(key)}, expected {expected[key]}"
    if footer.num_rows != shard.num_rows:
        return f"has {footer.num_rows} rows, expected {shard.num_rows}"
    return None


def _record_again(path: Path, run: SettledRun, shard: Shard) -> ShardRecord:
    """What a lost record can still say: all that the shard's columns hold, and no times."""
    import pyarrow.parquet as pq

    prefix = run.job.output.prefix
    names = [prefix + name for name in ("status", "label", "truncated", "rescored")]
    table = pq.read_table(path, columns=names)
    statuses, labels, truncated, rescored = (table.column(name).to_pylist() for name in names)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return ShardRecord(
        index=shard.index,
        first_row=shard.first_row,
        num_rows=shard.num_rows,
        statuses=dict(Counter(statuses)),
        labels=dict(Counter(label for label in labels if label is not None)),
        num_truncated=sum(truncated),
        num_duplicates=0,
        num_nul_texts=0,
        num_scored_alone=0,
        num_rescored=sum(rescored),
        num_pairs=0,
        num_tokens=0,
        size_bytes=path.stat().st_size,
        sha256=sha256,
        read_s=0.0,
        score_s=0.0,
        exact_s=0.0,
        write_s=0.0,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        attempt=0,
        host=os.uname().nodename,
        device="unknown",
        device_name="unknown (record lost)",
        precision=run.record.resolved.precision,
        path="unknown",
        threads=run.record.resolved.threads,
        max_batch_tokens=run.record.resolved.max_batch_tokens,
        splits=(),
    )
