"""What a result came from, for people: the job as it was resolved, the model's files, the input, the run's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from batchzs.report.sections import Table
from batchzs.report.shown import shown
from batchzs.report.wording import moment, number

if TYPE_CHECKING:
    from batchzs.finished import FinishedRun
    from batchzs.report.contents import Report

_MAX_LINES = 120
_MAX_LINE_CHARACTERS = 400
_MAX_FILES = 50


def model_name(run: FinishedRun) -> str:
    """The model's name in a sentence: its id on the hub, or the end of its directory's path."""
    model = run.record.model
    return model.hub_id or "/".join(Path(model.directory).parts[-2:])


class _Dumper(yaml.SafeDumper):
    """Writes texts with line ends on one line."""


def _write_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\n" in text or "\r" in text else None)


_Dumper.add_representer(str, _write_text)


def job_listing(run: FinishedRun) -> str:
    """The job as YAML, defaults filled in and paths absolute; long lists are cut."""
    job: dict[str, Any] = run.job.model_dump(mode="json")
    job["labels"] = [label.name for label in run.job.labels]
    lines = yaml.dump(job, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000).splitlines()
    cut = [*lines[:_MAX_LINES], f"# {len(lines) - _MAX_LINES:,} more lines"] if len(lines) > _MAX_LINES else lines
    return "\n".join(shown(line, _MAX_LINE_CHARACTERS) for line in cut)


def provenance(report: Report) -> list[tuple[str, str]]:
    """What made the scores."""
    run = report.run
    record, model, resolved = run.record, run.record.model, run.record.resolved
    classes = f"entailment {model.entailment_id}, contradiction {model.contradiction_id}, of {model.num_classes}"
    entries = [
        ("output", str(run.paths.output)),
        ("begun", moment(record.created_at)),
        ("begun with batchzs", record.batchzs_version),
        ("report made", f"{moment(report.made_at)}, with batchzs {report.batchzs_version}"),
        ("model", model.hub_id or model.directory),
        ("revision", model.revision or "none: a directory"),
        ("classes", classes),
        ("precision", resolved.precision),
        ("device", resolved.device_kind),
        ("threads, workers", f"{resolved.threads}, {resolved.workers}"),
        ("tokens in a batch", number(resolved.max_batch_tokens)),
        ("rows in a shard", number(resolved.shard_rows)),
        ("fingerprint", run.fingerprint_digest),
        ("input digest", record.input_digest),
    ]
    if resolved.rescore_margin is not None:
        entries.append(("scored again within", f"{resolved.rescore_margin:.2g} of a tie"))
    return entries


def model_files(run: FinishedRun) -> Table:
    """The checkpoint's files."""
    files = run.record.model.files
    rows = tuple((shown(file.name), number(file.size_bytes), file.sha256) for file in files)
    return Table("Files of the model", ("file", "bytes", "SHA-256"), rows)


def input_files(run: FinishedRun) -> Table:
    """The input's files."""
    files = run.inputs.files
    rows = tuple(
        (shown(file.found.name), number(file.num_rows), number(file.found.size_bytes), file.digest)
        for file in files[:_MAX_FILES]
    )
    return Table(
        "Files of the input", ("file", "rows", "bytes", "digest"), rows, num_left_out=max(0, len(files) - _MAX_FILES)
    )
