"""An output as it lies on disk, opened to be read: its record, its job, its frozen input, its shards.

What looks at results begins here. Nothing is locked and nothing is written, so a run under way may be looked at too.
Needs neither the input files nor the model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from batchzs.errors import DifferenceError, InputError, MachineError, OtherJobError, UsageError
from batchzs.fingerprint import digest_of
from batchzs.inputs.dtypes import dtype_from_text
from batchzs.inputs.frozen import check_unchanged, input_set_from_json
from batchzs.inputs.rows import InputSet
from batchzs.job import JobConfig
from batchzs.known_input import KnownInput, read_added, read_first
from batchzs.models.classes import ClassIndices
from batchzs.paths import RunPaths
from batchzs.plan import Selection, Shard, plan_generations
from batchzs.records import FORMAT_VERSION, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from batchzs.inputs.rows import InputFile


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has begun, and whatever it has published so far."""

    paths: RunPaths
    record: RunRecord
    job: JobConfig
    selection: Selection
    known: KnownInput
    shards: list[Shard]
    check: Callable[[], None] = lambda: None  # called between files; what it raises ends the looking

    @property
    def inputs(self) -> InputSet:
        """All input files, in the order of their rows."""
        return self.known.inputs

    @property
    def classes(self) -> ClassIndices:
        """The checkpoint's class indices."""
        model = self.record.model
        return ClassIndices(model.entailment_id, model.contradiction_id, model.neutral_id)

    @property
    def fingerprint_digest(self) -> str:
        """What each shard carries to say which run it is of."""
        return digest_of(self.record.fingerprint)

    def name(self, path: Path) -> str:
        """A file's name within the output, as messages call it."""
        return str(path.relative_to(self.paths.output))

    def check_stop(self) -> None:
        """Do nothing, or raise where a stop was asked for."""
        self.check()

    def column(self, name: str) -> str:
        """An added column's name in the shards."""
        return self.job.output.prefix + name


def open_run(output: Path) -> FinishedRun:
    """Open an output.

    Args:
        output: what the job calls output.path.

    Raises:
        UsageError: the folder holds no run of batchzs.
        OtherJobError: a batchzs that writes another format made it.
        MachineError: its state may not be read.
        DifferenceError: its state is damaged, so that nothing can be held against it.
    """
    paths = RunPaths(output.absolute())
    record = _run_record(paths, output)
    known = _known_input(paths, record)
    try:
        job = JobConfig.model_validate_json(json.dumps(record.job))
        selection = _selection(record)
    except (ValueError, TypeError) as exc:  # pydantic's error is a ValueError
        raise _damaged(paths.run_record, f"its job is no job: {_first_fault(exc)}") from exc
    model = record.model
    if not {model.entailment_id, model.contradiction_id} <= set(range(model.num_classes)):
        raise _damaged(paths.run_record, f"its class indices lie outside the model's {model.num_classes} classes")
    if record.resolved.shard_rows < 1:
        raise _damaged(paths.run_record, f"its shards have {record.resolved.shard_rows} rows")
    shards = plan_generations(known.row_counts, record.resolved.shard_rows, selection)
    return FinishedRun(paths, record, job, selection, known, shards)


def input_file_now(file: InputFile) -> InputFile:
    """The same input file with its time of now, seen to hold what it held when it was frozen.

    Raises:
        InputError: it is gone, cannot be read, or has changed.
    """
    found = file.found
    try:
        status = found.path.stat()
    except OSError as exc:
        raise InputError(f"{found.path}: cannot be read any more: {exc.strerror}") from exc
    now = replace(found, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)
    return check_unchanged(InputSet((file,), ()), [now]).files[0]


def is_there(path: Path) -> bool:
    """Whether a name leads to something; one that may not be looked at counts as absent."""
    try:
        return path.exists()
    except OSError:
        return False


def _run_record(paths: RunPaths, output: Path) -> RunRecord:
    content = _read(paths.run_record)
    if content is None:
        raise UsageError(
            f"{output}: holds no run of batchzs (there is no {paths.run_record}): expected the folder that the job "
            "calls output.path"
        )
    try:
        raw = json.loads(content)
    except ValueError as exc:
        raise _damaged(paths.run_record, f"is no JSON: {exc}") from exc
    if isinstance(raw, dict) and raw.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise OtherJobError(
            f"{paths.run_record}: was written by batchzs {raw.get('batchzs_version')} in format "
            f"{raw['format_version']}, this one reads {FORMAT_VERSION}: look at it with that version"
        )
    try:
        return RunRecord.model_validate_json(content)
    except ValidationError as exc:
        raise _damaged(paths.run_record, _first_fault(exc)) from exc


def _known_input(paths: RunPaths, record: RunRecord) -> KnownInput:
    first = read_first(paths, record.input_digest)
    if first is None:
        first = _inputs(paths)  # which says what is wrong with it
    if first.digest != record.input_digest:
        raise _damaged(paths.inputs, "lists another input than the one that run.json was made with", lost_inputs=True)
    added, damaged = read_added(paths, first)
    if damaged is not None:
        raise DifferenceError(
            f"{damaged}: is damaged, or of another run: run the job again with --new-files, which makes it anew as "
            "long as the input is unchanged"
        )
    return KnownInput(first, added)


def _inputs(paths: RunPaths) -> InputSet:
    content = _read(paths.inputs)
    if content is None:
        raise _damaged(paths.inputs, "is missing", lost_inputs=True)
    try:
        raw = json.loads(content)
        if not isinstance(raw, dict):
            raise _damaged(paths.inputs, "holds no JSON object", lost_inputs=True)
        inputs = input_set_from_json(raw)
        for column in inputs.carried:
            dtype_from_text(column.dtype)
    except (ValueError, InputError) as exc:
        raise _damaged(paths.inputs, str(exc), lost_inputs=True) from exc
    return inputs


def _read(path: Path) -> bytes | None:
    """A state file's content; None where there is none."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise MachineError(f"{path}: cannot be read: {exc.strerror}") from exc


def _damaged(path: Path, fault: str, *, lost_inputs: bool = False) -> DifferenceError:
    way_out = (
        "run the job again, which makes it anew as long as the input is unchanged"
        if lost_inputs
        else "run the job again, which settles the run anew and keeps the shards that fit"
    )
    return DifferenceError(f"{path}: is damaged ({fault}): {way_out}")


def _first_fault(exc: Exception) -> str:
    """Where a record is not what it should be, without the value found there."""
    if not isinstance(exc, ValidationError):
        return str(exc)
    first = exc.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


def _selection(record: RunRecord) -> Selection:
    layout = record.fingerprint.layout
    numbers = {}
    for key in ("--limit", "--sample", "--seed"):
        value = layout.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise ValueError(f"{key} is {value!r}")
        numbers[key] = value
    if any(number is not None and number < 1 for number in (numbers["--limit"], numbers["--sample"])):
        raise ValueError("--limit or --sample is below 1")
    return Selection(numbers["--limit"], numbers["--sample"], numbers["--seed"] or 0)
