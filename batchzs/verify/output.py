"""A whole output read again, to see that it is what its state and its shards' footers say.

Needs neither the model nor the input files; where these still lie in their place, they are digested and compared too.
Takes no lock and writes nothing. Whatever is wrong becomes a finding; only a state too damaged to hold anything against
is an error (see `batchzs.finished`). Carried columns are covered by the checksums and the schema alone.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchzs.counted import counted
from batchzs.errors import DifferenceError, InputError
from batchzs.fingerprint import fingerprint_of
from batchzs.finished import is_there
from batchzs.inputs.frozen import digest_file
from batchzs.progress import LINE_INTERVAL_S, format_duration
from batchzs.records import Summary, read_record
from batchzs.summary import summarise
from batchzs.verify.columns import Finding
from batchzs.verify.shard import check_shard, layout_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from batchzs.finished import FinishedRun
    from batchzs.records import ShardRecord
    from batchzs.verify.rescore import Rescored

logger = logging.getLogger(__name__)

#: Findings that are shown to people; the rest is counted, and --json has them all.
SHOWN_FINDINGS = 20
#: The summary's numbers that follow from the shards' rows; the others are known only to the attempts that scored.
_SUMMARY_OF_ROWS = (
    *("num_rows", "num_shards", "statuses", "labels", "num_unlabelled", "num_empty", "num_quarantined"),
    *("quarantined_share", "num_truncated"),
)
#: What the attempts counted besides. Not here: `output` and `max_bad_share`, which may change between attempts.
_SUMMARY_OF_ATTEMPTS = (
    *("num_duplicates", "num_nul_texts", "num_scored_alone", "num_pairs", "num_tokens", "num_splits"),
    *("read_s", "device_s", "write_s", "devices", "num_attempts", "finished_at"),
)


@dataclass(slots=True)
class Verification:
    """What was looked at, and what was found."""

    output: str
    num_shards: int  # planned
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # worth knowing, no fault
    num_shards_read: int = 0
    num_rows: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    num_ok: dict[int, int] = field(default_factory=dict)  # scored rows of each shard whose rows and columns are right


def verify_run(run: FinishedRun) -> Verification:
    """Check everything that can be checked without the model."""
    started_s = last_line_s = time.monotonic()
    result = Verification(str(run.paths.output), len(run.shards))
    result.findings += _record_faults(run)
    result.findings += _foreign_files(run)
    schema = layout_schema(run)
    records: list[ShardRecord] = []
    num_there = 0
    for shard in run.shards:
        report = check_shard(run, shard, schema)
        result.findings += report.findings
        result.num_bytes += report.num_bytes
        result.num_rows += report.num_rows
        result.num_shards_read += report.num_bytes > 0
        num_there += report.is_there
        if report.record is not None:
            records.append(report.record)
        if report.num_ok is not None:
            result.num_ok[shard.index] = report.num_ok
        if report.is_there and is_there(run.paths.journal(shard.index)):
            name = run.name(run.paths.journal(shard.index))
            result.notes.append(f"{name}: is left over of a complete shard; the next run removes it")
        if time.monotonic() - last_line_s >= LINE_INTERVAL_S:
            last_line_s = time.monotonic()
            logger.info("%d of %d shards read, %d findings", shard.index + 1, len(run.shards), len(result.findings))
    result.findings += _completion_faults(run, records, is_complete=num_there == len(run.shards))
    _compare_inputs(run, result)
    result.seconds = time.monotonic() - started_s
    return result


def refuse_findings(result: Verification) -> None:
    """Do nothing where everything is as it should be.

    Raises:
        DifferenceError: something is not.
    """
    if result.findings:
        raise DifferenceError(
            f"{result.output}: {counted(len(result.findings), 'finding')}: these results are not what the run wrote"
        )


def format_verification(result: Verification, rescored: Rescored | None) -> list[str]:
    """Write for people what was found, the first `SHOWN_FINDINGS` findings each on a line, and what was looked at."""
    lines = [str(finding) for finding in result.findings[:SHOWN_FINDINGS]]
    if len(result.findings) > SHOWN_FINDINGS:
        lines.append(f"... and {len(result.findings) - SHOWN_FINDINGS} more (--json has all)")
    lines += [f"note: {note}" for note in result.notes]
    lines.append(
        f"{result.num_shards_read:,} of {counted(result.num_shards, 'shard')}, {counted(result.num_rows, 'row')}, "
        f"{result.num_bytes:,} bytes read in {format_duration(result.seconds)}"
    )
    if rescored is not None:
        lines.append(
            f"{rescored.num_rows:,} rows scored again in fp32: largest difference {rescored.largest_difference:.2g} "
            f"(allowed for {rescored.precision}: {rescored.tolerance:g}), {rescored.num_flipped:,} labels flipped"
        )
    lines.append(counted(len(result.findings), "finding") if result.findings else "everything is as it should be")
    return lines


def verification_to_json(result: Verification, rescored: Rescored | None) -> dict[str, Any]:
    """The same, all of it, as values for JSON."""
    return {
        "output": result.output,
        "shards": result.num_shards,
        "shards_read": result.num_shards_read,
        "rows": result.num_rows,
        "bytes_read": result.num_bytes,
        "seconds": round(result.seconds, 3),
        "findings": [
            {"file": one.file, "row": one.row, "column": one.column, "what": one.what} for one in result.findings
        ],
        "notes": result.notes,
        "rescored": None
        if rescored is None
        else {
            "rows": rescored.num_rows,
            "largest_difference": rescored.largest_difference,
            "tolerance": rescored.tolerance,
            "flipped_labels": rescored.num_flipped,
        },
    }


def _record_faults(run: FinishedRun) -> Iterator[Finding]:
    """run.json against itself and the plan; and the generations' records against theirs."""
    num_shards = Counter(shard.generation for shard in run.shards)
    records = {run.paths.run_record: run.record} | {
        run.paths.generation(one.number): one for one in run.known.generations
    }
    for number, ((path, one), inputs) in enumerate(zip(records.items(), run.known.parts, strict=True), start=1):
        for key, planned in (("num_rows", inputs.num_rows), ("num_shards", num_shards[number])):
            if getattr(one, key) != planned:
                yield Finding(run.name(path), f"says {key} {getattr(one, key)}, the frozen input gives {planned}")
    name, record = run.name(run.paths.run_record), run.record
    again = fingerprint_of(run.job, record.model, record.resolved.precision, run.selection, record.test_hook)
    for part in ("scores", "layout", "decision"):
        begun, now = getattr(record.fingerprint, part), getattr(again, part)
        # Keys that only one side has come from another release, which could say more or less.
        for key in sorted(begun.keys() & now.keys()):
            if begun[key] != now[key]:
                yield Finding(name, f"its fingerprint and its job or model say different things of {key}")


def _foreign_files(run: FinishedRun) -> Iterator[Finding]:
    expected = {run.paths.shard(shard.index).name for shard in run.shards}
    try:
        paths = sorted(run.paths.scores.iterdir())
    except OSError as exc:
        yield Finding(run.paths.scores.name, f"cannot be listed: {exc.strerror}; run the job again")
        return
    for path in paths:
        if path.name not in expected:
            yield Finding(run.name(path), f"is none of this run's {len(expected)} shards: move it away")


def _completion_faults(run: FinishedRun, records: Sequence[ShardRecord], *, is_complete: bool) -> Iterator[Finding]:
    success, path = run.paths.success, run.paths.summary
    if not is_complete:
        if is_there(success):
            yield Finding(run.name(success), "is there, though shards are missing; run the job again")
        return
    if not is_there(success):
        yield Finding(run.name(success), "is missing, though every shard is there; run the job again")
    summary = read_record(path, Summary)
    if summary is None:
        what = "is damaged" if is_there(path) else "is missing"
        yield Finding(run.name(path), f"{what}, though every shard is there; remove it and run the job again")
        return
    if len(records) < len(run.shards):
        return  # lost records are findings of their own, and what is left does not add up
    again = summarise(run.job, run.paths, run.record, records)
    # A lost record that was made again from its shard does not know what scoring took: its attempt is 0.
    knows_all = all(record.attempt > 0 for record in records)
    for key in (*_SUMMARY_OF_ROWS, *(_SUMMARY_OF_ATTEMPTS if knows_all else ())):
        if getattr(summary, key) != getattr(again, key):
            yield Finding(
                run.name(path),
                f"says {key} {getattr(summary, key)}, the shards' records add up to {getattr(again, key)}",
            )


def _compare_inputs(run: FinishedRun, result: Verification) -> None:
    """Digest the input files that are still there; those that are not are a note."""
    absent = []
    for file in run.inputs.files:
        found = file.found
        try:
            status = found.path.stat()
            if status.st_size == found.size_bytes:
                result.num_bytes += status.st_size
                same = digest_file(found) == file.digest
            else:
                same = False
        except (OSError, InputError):
            absent.append(found.path)
            continue
        if not same:
            result.findings.append(Finding(str(found.path), "is not what it was when these results were begun"))
    if absent:
        result.notes.append(
            f"{len(absent):,} of {counted(len(run.inputs.files), 'input file')} cannot be read any more and "
            f"{'was' if len(absent) == 1 else 'were'} not compared, the first: {absent[0]}"
        )
