"""Some rows of a finished run scored again, in fp32 on the plain path, and held against what is stored.

The plain path shares the checkpoint, the tokenizer and the pairs with the run; the network is transformers', padded,
on the CPU. So a difference lies in the forward pass, in the precision, in the device, or in the file.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from batchzs.engine import Engine, EngineSettings
from batchzs.errors import ModelError, UsageError
from batchzs.finished import input_file_now
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import OK, RowSpan
from batchzs.models.opening import open_model
from batchzs.prepare import read_spec
from batchzs.scoring import scores_from_logits
from batchzs.verify.columns import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from batchzs.finished import FinishedRun
    from batchzs.inputs.rows import InputSet
    from batchzs.models.device import Precision
    from batchzs.plan import Shard

#: How far a stored score may lie from the plain path's before rounding no longer explains it.
SCORE_TOLERANCES: Mapping[Precision, float] = {
    # Sums in another order: tests find less than 1e-5 on one CPU; another device's multiplication gets ten times that.
    "fp32": 1e-4,
    # bf16 keeps 8 bits of each number: up to 0.019 on 1,500 sample news with the sample model's two layers, on a CPU;
    # five times that leaves room for models of twelve layers and more.
    "bf16": 0.1,
    # fp16 keeps 11 bits, so its rounding is an eighth of bf16's.
    "fp16": 0.0125,
}
#: The plain path's batches, padding counted, and labels at once: small, so that a large model fits beside them.
_MAX_BATCH_TOKENS = 4096
_LABELS_PER_CHUNK = 64


@dataclass(slots=True)
class Rescored:
    """How far stored scores lie from the plain path's."""

    precision: Precision
    num_rows: int = 0
    largest_difference: float = 0.0
    num_flipped: int = 0  # rows whose best label is another one
    worst: Finding | None = None  # where the largest difference is, if it is more than rounding explains

    @property
    def tolerance(self) -> float:
        """The difference that rounding explains."""
        return SCORE_TOLERANCES[self.precision]


@dataclass(frozen=True, slots=True)
class Rescorer:
    """What scoring again needs, found to be what the run scored with."""

    run: FinishedRun
    inputs: InputSet
    engine: Engine


def open_rescorer(run: FinishedRun) -> Rescorer:
    """See that input and model are those of the run, and load the model.

    Raises:
        UsageError: the run used a stand-in.
        InputError: an input file is gone or has changed.
        ModelError: the model is gone or has changed.
    """
    job = run.job
    if "stand_in" in run.record.test_hook:
        raise UsageError(
            f"{run.paths.output}: was made with the test hook's stand-in in place of a model: --rescore has nothing to "
            "score with; leave it out"
        )
    decided = run.record.decided
    if decided is not None and (decided.merge or decided.priors is not None):
        raise UsageError(
            f"{run.paths.output}: its scores were merged or corrected after scoring, so that no model gives them: use "
            f"--rescore on {decided.source}"
        )
    inputs = replace(run.inputs, files=tuple(input_file_now(file) for file in run.inputs.files))
    try:
        opened = open_model(job, run.record.model, offline=True)
    except UsageError as exc:  # the job did fit the model once
        raise ModelError(f"the model is not the one that this run scored with: {exc}") from exc
    before = {file.name: file.sha256 for file in run.record.model.files}
    now = {file.name: file.sha256 for file in opened.files}
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if changed:
        raise ModelError(
            f"{opened.checkpoint.directory}: is not the model that this run scored with ({', '.join(changed)} "
            "changed): put it back as it was, or leave --rescore out"
        )
    from batchzs.models.plain import load_plain_model  # transformers takes seconds to import

    settings = EngineSettings(
        max_length=job.engine.max_length,
        truncate=job.engine.truncate,
        max_batch_tokens=_MAX_BATCH_TOKENS,
        labels_per_chunk=_LABELS_PER_CHUNK,
        num_workers=1,
    )
    hypotheses = [label.hypothesis for label in job.labels]
    engine = Engine(load_plain_model(opened.checkpoint), opened.tokenizer, hypotheses, settings, lambda *_: None)
    return Rescorer(run, inputs, engine)


def rescore_rows(rescorer: Rescorer, num_ok: Mapping[int, int], num_rows: int, seed: int) -> Rescored:
    """Score random rows again.

    Args:
        rescorer: the run with its input and its model.
        num_ok: how many scored rows each shard holds; shards that cannot be trusted to hold their rows are left out.
        num_rows: how many rows to draw; all where there are fewer.
        seed: of the draw.

    Raises:
        InputError: the input cannot be read.
    """
    run = rescorer.run
    result = Rescored(run.record.resolved.precision)
    for shard, ordinals in _draw(run.shards, num_ok, num_rows, seed):
        names = ["status", "label", "score", *(["scores"] if run.job.resolved_scores != "none" else [])]
        table = pq.read_table(run.paths.shard(shard.index), columns=[run.column(name) for name in names])
        table = table.rename_columns(names)
        rows = np.flatnonzero(np.array(table.column("status").to_pylist(), dtype=object) == OK)[ordinals]
        spans = _spans_of(shard, rows)
        texts = read_rows(read_spec(run.job), rescorer.inputs, spans).texts
        plain = scores_from_logits(
            rescorer.engine.score(texts).logits, run.classes, as_multi_label=run.job.scored_as_multi_label
        )
        _compare(run, shard, rows, plain, stored=table.take(rows), result=result)
    return result


def _draw(
    shards: Sequence[Shard], num_ok: Mapping[int, int], num_rows: int, seed: int
) -> list[tuple[Shard, list[int]]]:
    """Draw rows among all scored ones; for each shard that has any, their ordinals among its scored rows."""
    counts = [num_ok.get(shard.index, 0) for shard in shards]
    bounds = list(accumulate(counts, initial=0))
    # A seeded draw of rows to check, not a key for anything secret.
    drawn = sorted(random.Random(seed).sample(range(bounds[-1]), min(num_rows, bounds[-1])))  # noqa: S311
    places = np.searchsorted(drawn, bounds).tolist()
    return [
        (shard, [ordinal - bound for ordinal in drawn[start:stop]])
        for shard, bound, (start, stop) in zip(shards, bounds, pairwise(places), strict=False)
        if start < stop
    ]


def _spans_of(shard: Shard, rows: np.ndarray) -> list[RowSpan]:
    """Where rows of a shard (ascending) lie in the input, by the plan."""
    ends = np.cumsum([span.num_rows for span in shard.spans])
    spans = []
    for row, place in zip(rows.tolist(), np.searchsorted(ends, rows, side="right").tolist(), strict=True):
        span = shard.spans[place]
        start = span.start + row - int(ends[place] - span.num_rows)
        spans.append(RowSpan(span.file_index, start, start + 1))
    return spans


def _compare(  # noqa: PLR0913 - one shard's rows from both sides
    run: FinishedRun, shard: Shard, rows: np.ndarray, plain: np.ndarray, *, stored: pa.Table, result: Rescored
) -> None:
    names = [label.name for label in run.job.labels]
    known, best = _stored_scores(stored, names, plain)
    differences = np.nan_to_num(np.abs(known - plain), nan=0.0)
    result.num_rows += len(rows)
    result.num_flipped += int((best != plain.argmax(axis=1)).sum())
    if differences.max() <= result.largest_difference:
        return
    result.largest_difference = float(differences.max())
    if result.largest_difference > result.tolerance:
        row, label = np.unravel_index(int(differences.argmax()), differences.shape)
        result.worst = Finding(
            run.name(run.paths.shard(shard.index)),
            f"holds {known[row, label]:.6f} for {names[label]}, scored again in fp32 it is {plain[row, label]:.6f}: "
            f"further apart than {result.tolerance:g}, which rounding in {result.precision} explains",
            int(rows[row]),
            run.column("scores" if "scores" in stored.column_names else "score"),
        )


def _stored_scores(stored: pa.Table, names: Sequence[str], plain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gather the scores that some rows hold.

    Args:
        stored: the rows' columns.
        names: the job's labels.
        plain: (rows, labels) scores; they say which label it is where a row has a score and no label.

    Returns:
        (rows, labels) float32, NaN where a row holds none; and (rows,) the index of each row's best label.
    """
    index = {name: place for place, name in enumerate(names)}
    known = np.full(plain.shape, np.nan, dtype=np.float32)
    best = plain.argmax(axis=1)
    for row, values in enumerate(stored.to_pylist()):
        entries = values.get("scores") or [values]
        named = [entry for entry in entries if isinstance(entry, dict)]
        if named:  # below the threshold the label is null
            scores = {index[one["label"]]: one["score"] for one in named if one["label"] in index}
            scores = scores or {int(best[row]): named[0]["score"]}
        else:
            scores = dict(enumerate(entries[: len(names)]))
        for place, score in scores.items():
            known[row, place] = np.nan if score is None else score
        best[row] = max(scores, key=lambda place, scores=scores: scores[place] or 0.0)  # type: ignore[misc]
    return known, best
