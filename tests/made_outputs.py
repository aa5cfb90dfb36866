"""Outputs made without a run: any job, any logits, any damage, in the files that a run would have written.

What looks at outputs is tested on these, in all their shapes; that real runs write such files is tested elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from batchzs.engine import ScoringCounts, TextLogits
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.frozen import input_set_to_json
from batchzs.inputs.rows import ShardRows
from batchzs.models.classes import ClassIndices
from batchzs.output import label_shard, write_shard
from batchzs.paths import RunPaths
from batchzs.prepare import read_spec
from tests.builders import make_job, resolved, run_record, shard_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CLASSES = ClassIndices(0, 2, 1)


@dataclass
class MadeOutput:
    """An output, and what went into it."""

    paths: RunPaths
    texts: Sequence[str]
    logits: np.ndarray  # (texts, labels, 3) float32
    shard_records: list[Any] = field(default_factory=list)


def random_logits(num_texts: int, num_labels: int, seed: int = 0) -> np.ndarray:
    """Make logits."""
    return np.random.default_rng(seed).normal(0, 2, (num_texts, num_labels, 3)).astype(np.float32)


def make_output(
    folder: Path,
    texts: Sequence[str],
    *,
    logits: np.ndarray | None = None,
    bad: Mapping[int, tuple[str, str]] | None = None,
    num_tokens: Sequence[int] | None = None,
    shard_rows: int = 10,
    num_done: int | None = None,
    record_changes: Mapping[str, Any] | None = None,
    shard_changes: Mapping[int, Mapping[str, Any]] | None = None,
    **job_changes: Any,
) -> MadeOutput:
    """Write an output as a run leaves it.

    Args:
        folder: an empty folder; the input is written into it too, as JSON Lines.
        texts: one a row; "" is an empty text.
        logits: (texts, labels, 3); random ones unless given.
        bad: some rows' statuses and reasons.
        num_tokens: of each text; one a character unless given.
        shard_rows: rows of a shard.
        num_done: so many shards are there; all of them, and `_SUCCESS`, unless given.
        record_changes: of the run's record.
        shard_changes: of some shards' records.
        job_changes: as `make_job` takes them.
    """
    bad = bad or {}
    source = folder / "输入 [1].jsonl"
    lines = [json.dumps({"text": text}) for text in texts]
    for row, (status, _) in bad.items():
        if status != "non_finite":  # which is a row that was read well
            lines[row] = f"not JSON: {texts[row]}".replace("\n", " ")
    source.write_text("".join(line + "\n" for line in lines) or "\n", encoding="utf-8")
    output = folder / "结果 <1>"
    job = make_job(
        input={"path": [str(source)], "text": ["text"], "max_bad_share": 1.0}, output__path=str(output), **job_changes
    )
    paths = RunPaths(output)
    for one in paths.folders:
        one.mkdir(parents=True, exist_ok=True)
    spec = read_spec(job)
    inputs = freeze_inputs(spec, find_files(spec, []))
    if logits is None:
        logits = random_logits(len(texts), len(job.labels))
    tokens = np.array([len(text) for text in texts] if num_tokens is None else num_tokens, dtype=np.int32)
    num_shards = max(1, -(-len(texts) // shard_rows))
    record = run_record(
        job,
        resolved=resolved(shard_rows=shard_rows),
        input_digest=inputs.digest,
        num_rows=len(texts),
        num_shards=num_shards,
        **(record_changes or {}),
    )
    paths.run_record.write_text(record.model_dump_json(), encoding="utf-8")
    paths.inputs.write_text(json.dumps(input_set_to_json(inputs)), encoding="utf-8")
    made = MadeOutput(paths, texts, logits)
    for index in range(num_shards if num_done is None else num_done):
        part = slice(index * shard_rows, min((index + 1) * shard_rows, len(texts)))
        rows = range(part.start, part.stop)
        shard = ShardRows(
            texts=["" if row in bad else texts[row] for row in rows],
            statuses=[bad[row][0] if row in bad else "ok" for row in rows],
            reasons=[bad[row][1] if row in bad else None for row in rows],
            carried=pl.DataFrame(),
            source_files=[source.name] * len(rows),
            source_rows=np.arange(part.start, part.stop, dtype=np.int64),
        )
        is_bad = np.array([row in bad and bad[row][0] == "non_finite" for row in rows], dtype=bool)
        scored = TextLogits(
            logits[part], tokens[part], tokens[part] > 500, is_bad, np.zeros(len(rows), dtype=bool), ScoringCounts()
        )
        labelled = label_shard(job, CLASSES, shard, scored)
        with paths.shard(index).open("w+b") as file:
            write_shard(file, labelled.table, {}, "zstd")
        changes = {"index": index, "num_rows": len(rows), **((shard_changes or {}).get(index, {}))}
        one_record = shard_record(**changes)
        paths.shard_record(index).write_text(one_record.model_dump_json(), encoding="utf-8")
        made.shard_records.append(one_record)
    if num_done is None:
        paths.success.touch()
    return made
