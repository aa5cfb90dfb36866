"""The output that `batchzs decide` starts from: seen to be fit for it, and what it says of errors and label bias."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchzs.decide.priors import PriorMean
from batchzs.decide.stored_logits import stored_logits
from batchzs.errors import DifferenceError, UsageError
from batchzs.finished import is_there, open_run
from batchzs.records import PriorsRecord, ShardRecord, read_record
from batchzs.resume import shard_problem
from batchzs.scoring import scores_from_logits
from batchzs.verify.rescore import SCORE_TOLERANCES
from batchzs.verify.shard import BROKEN

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from batchzs.decide.decisions import NewLabels
    from batchzs.finished import FinishedRun
    from batchzs.plan import Shard

logger = logging.getLogger(__name__)

_CLOSE = "close"


def open_source(output: Path) -> FinishedRun:
    """Open an output to decide from.

    Raises:
        UsageError: it is not finished, has no logits, or was decided itself.
        BatchzsError: as `open_run`.
    """
    source = open_run(output)
    if source.record.decided is not None:
        raise UsageError(
            f"{output}: was decided from {source.record.decided.source}: decide from that one, which has all logits"
        )
    missing = [shard for shard in source.shards if not is_there(source.paths.shard(shard.index))]
    if missing or not is_there(source.paths.success):
        raise UsageError(
            f"{output}: is not finished ({len(missing)} of {len(source.shards)} shards are not there): run its job to "
            "the end first"
        )
    if not source.job.resolved_logits:
        raise UsageError(
            f"{output}: its logits were not stored, and labels follow from nothing else: set output.logits: true in "
            "the job and run it into another output"
        )
    return source


def read_source_shard(run: FinishedRun, shard: Shard) -> pa.Table:
    """Read a shard, seen to be this run's and whole.

    Raises:
        DifferenceError: it is damaged.
    """
    path = run.paths.shard(shard.index)
    fault = shard_problem(path, run, shard)
    if fault is None:
        try:
            return pq.read_table(path, partitioning=None)
        except BROKEN as exc:
            fault = f"cannot be read ({type(exc).__name__})"
    raise DifferenceError(f"{path}: {fault}: `batchzs verify` says more")


def source_record(run: FinishedRun, shard: Shard) -> ShardRecord:
    """A shard's record.

    Raises:
        DifferenceError: it is lost.
    """
    path = run.paths.shard_record(shard.index)
    record = read_record(path, ShardRecord)
    if record is None:
        raise DifferenceError(f"{path}: is missing or damaged: run the job again, which makes it anew")
    return record


def shards_digest(run: FinishedRun) -> str:
    """SHA-256 over the shards' checksums: which results labels are made from.

    Raises:
        DifferenceError: a shard's record is lost.
    """
    digest = hashlib.sha256()
    for shard in run.shards:
        digest.update(source_record(run, shard).sha256.encode())
    return digest.hexdigest()


def score_margin(source: FinishedRun, labels: NewLabels) -> float | None:
    """How far apart two scores of low precision may be and still change places; None: they are exact.

    Args:
        source: the output.
        labels: says whether every label is scored by itself: a margin holds for the kind of scores it was measured on.
    """
    resolved = source.record.resolved
    if resolved.precision == "fp32":
        return None
    is_same_kind = source.job.scored_as_multi_label == labels.as_multi_label
    if resolved.rescore_margin is not None and is_same_kind:
        return resolved.rescore_margin
    # Not measured, or measured on scores of the other kind, whose errors say nothing of these.
    return 2 * SCORE_TOLERANCES[resolved.precision]


def close_column(source: FinishedRun) -> str:
    """The name of the column that marks rows too close to call: `close`, unless a carried column is called so."""
    taken = {column.name for column in source.inputs.carried}
    name = _CLOSE
    while source.column(name) in taken:
        name += "_"
    if name != _CLOSE:
        logger.warning("a carried column is called %s: rows too close to call are marked in %s", _CLOSE, name)
    return name


def measure_priors(source: FinishedRun, labels: NewLabels, priors_from: Path | None) -> PriorsRecord:
    """Take the mean scores of the labels that take part.

    Args:
        source: the output that is decided.
        labels: which of its labels take part, and how they are scored.
        priors_from: an output over content-free texts; None: the mean is taken over `source` itself.

    Raises:
        UsageError: the other output asked another model or other questions.
        DifferenceError: a shard is damaged.
    """
    names = [source.job.labels[index].name for index in labels.kept]
    of, kept = source, labels.kept
    if priors_from is not None:
        of = open_source(priors_from)
        kept = _same_labels(source, of, labels)
    mean = PriorMean(len(kept))
    for shard in of.shards:
        table = read_source_shard(of, shard)
        num_ok = pc.sum(pc.equal(table.column(of.column("status")), "ok")).as_py() or 0
        logits = stored_logits(of, shard, table, num_ok)
        mean.add(scores_from_logits(logits[:, kept], of.classes, as_multi_label=labels.as_multi_label))
    if not mean.num_rows:
        raise UsageError(f"{of.paths.output}: has no scored row, and priors are means over scored rows")
    return PriorsRecord(
        kind="batch" if priors_from is None else "content-free",
        output=None if priors_from is None else str(of.paths.output),
        num_rows=mean.num_rows,
        values=dict(zip(names, mean.values().tolist(), strict=True)),
    )


def _same_labels(source: FinishedRun, of: FinishedRun, labels: NewLabels) -> list[int]:
    """Where the labels stand in an output of content-free texts, which has to ask the same model the same questions."""
    files = [{file.name: file.sha256 for file in run.record.model.files} for run in (source, of)]
    if files[0] != files[1] or source.classes != of.classes:
        raise UsageError(f"{of.paths.output}: was scored with another model than {source.paths.output}")
    place = {label.hypothesis: index for index, label in enumerate(of.job.labels)}
    kept = []
    for index in labels.kept:
        label = source.job.labels[index]
        if label.hypothesis not in place:
            raise UsageError(
                f"{of.paths.output}: has no label with the hypothesis {label.hypothesis!r} ({label.name}): run the "
                "same job, with its labels and its template, over the content-free texts"
            )
        kept.append(place[label.hypothesis])
    return kept
