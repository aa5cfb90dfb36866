"""What makes a run the same run, so that results of two jobs never mix in one output.

Three parts. *Scores*: what changes a number. *Layout*: what changes which rows and columns there are. *Decision*: what
changes labels while scores stay. Devices, budgets, chunk sizes, log settings and paths as strings are in none of them.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from batchzs.errors import OtherJobError
from batchzs.records import FingerprintRecord

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import JsonValue

    from batchzs.job import JobConfig
    from batchzs.plan import Selection
    from batchzs.records import ModelRecord

#: Hypotheses and labels are shown in a refusal up to this length; beyond it the start is enough to see what changed.
_SHOWN_CHARACTERS = 120


def fingerprint_of(
    job: JobConfig, model: ModelRecord, precision: str, selection: Selection, test_hook: dict[str, JsonValue]
) -> FingerprintRecord:
    """Gather what decides a run's results.

    Args:
        job: the job.
        model: the checkpoint with its files' digests and class indices.
        precision: as resolved.
        selection: which rows are scored.
        test_hook: the test hook's settings; a stand-in's scores are nobody else's.
    """
    return FingerprintRecord(
        scores={
            "model files": {file.name: file.sha256 for file in model.files},
            "model.entailment_id": model.entailment_id,
            "model.contradiction_id": model.contradiction_id,
            "labels": [label.name for label in job.labels],
            "hypotheses": [label.hypothesis for label in job.labels],
            "engine.max_length": job.engine.max_length,
            "engine.truncate": job.engine.truncate,
            "engine.precision": precision,
            "engine.rescore_close": job.rescores_close(precision),
            "input.text": list(job.input.text),
            "input.separator": job.input.separator,
            "test hook": {key: test_hook[key] for key in ("stand_in", "nan_every", "nan_ends") if key in test_hook},
        },
        layout={
            "input.encoding": job.input.encoding,
            "input.csv": job.input.csv.model_dump(mode="json"),
            "input.keep": job.input.keep if job.input.keep == "all" else list(job.input.keep),
            "input.partitions": job.input.partitions,
            "input.on_bad_rows": job.input.on_bad_rows,
            "output.scores": job.resolved_scores,
            "output.logits": job.resolved_logits,
            "output.prefix": job.output.prefix,
            "output.compression": job.output.compression,
            "--limit": selection.limit,
            "--sample": selection.sample,
            "--seed": selection.seed if selection.sample is not None else None,
        },
        decision={"multi_label": job.multi_label, "threshold": job.resolved_threshold},
    )


def digest_of(fingerprint: FingerprintRecord) -> str:
    """SHA-256 over all three parts, in hexadecimal: what a shard carries to say which run it is of."""
    text = json.dumps(fingerprint.model_dump(mode="json"), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_other_job(begun: FingerprintRecord, now: FingerprintRecord, output: Path) -> None:
    """Do nothing where both are the same run.

    Raises:
        OtherJobError: naming every field that differs, with both values.
    """
    lines: list[str] = []
    for part in ("scores", "layout", "decision"):
        before, after = getattr(begun, part), getattr(now, part)
        lines += [
            f"  {key}: {_both_shown(before.get(key), after.get(key))}"
            for key in sorted(before.keys() | after.keys())
            if before.get(key) != after.get(key)
        ]
    if lines:
        ways_out = "Use another output.path, put the job back as it was, or begin anew with --restart"
        same_scores = (begun.scores, begun.layout) == (now.scores, now.layout) and now.layout.get("output.logits")
        # More keys are there where `decide` itself is refused.
        if same_scores and begun.decision.keys() == now.decision.keys() == {"multi_label", "threshold"}:
            ways_out = f"`batchzs decide {output} --to FOLDER` makes such labels of the stored scores. {ways_out}"
        raise OtherJobError(f"{output}: was begun by another job. What differs:\n" + "\n".join(lines) + f"\n{ways_out}")


def _both_shown(begun: JsonValue, now: JsonValue) -> str:
    """Both values for people; of tables and long lists only what differs, which else might lie behind the cut."""
    if isinstance(begun, dict) and isinstance(now, dict):
        keys = [key for key in sorted(begun.keys() | now.keys()) if begun.get(key) != now.get(key)]
        begun, now = ({key: value[key] for key in keys if key in value} for value in (begun, now))
    elif isinstance(begun, list) and isinstance(now, list) and len(_shown(begun)) > _SHOWN_CHARACTERS:
        gone, new = [item for item in begun if item not in now], [item for item in now if item not in begun]
        if not (gone and new):
            return f"no longer {_shown(gone)}" if gone else f"now also {_shown(new)}" if new else "now in another order"
        begun, now = gone, new
    return f"begun with {_shown(begun)}, now {_shown(now)}"


def _shown(value: JsonValue) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
