"""Everything that a report says, gathered from an output as it is now."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from batchzs import __version__
from batchzs.input_texts import InputTexts, Place
from batchzs.output import NON_FINITE
from batchzs.records import ShardRecord, read_record
from batchzs.report.aggregate import Aggregates, UncertainRow, aggregate
from batchzs.report.truth_section import section_to_json
from batchzs.report.work import Work, work_of
from batchzs.status import read_status

if TYPE_CHECKING:
    from batchzs.finished import FinishedRun
    from batchzs.quarantine import BadRow
    from batchzs.report.truth_section import TruthSection


@dataclass(frozen=True, slots=True)
class Report:
    """What a report says."""

    run: FinishedRun
    made_at: str
    batchzs_version: str  # that made the report
    state: Literal["finished", "running", "stopped"]
    num_shards_done: int
    num_unrecorded: int  # shards without a record, of which it is not known what they took
    aggregates: Aggregates
    work: Work
    unread: dict[str, str]  # input files whose texts are not shown, and why
    truth: TruthSection | None = None

    @property
    def num_rows_planned(self) -> int:
        """Rows that the run is to label."""
        return sum(shard.num_rows for shard in self.run.shards)


def gather(run: FinishedRun, num_shown: int) -> Report:
    """Look at an output.

    Args:
        run: the output.
        num_shown: so many of the least certain texts, and of each kind of quarantined rows; 0: no text at all.

    Raises:
        DifferenceError: a shard is damaged.
    """
    there = [shard for shard in run.shards if run.paths.shard(shard.index).exists()]
    counted = aggregate(run, there, num_shown)
    records = [read_record(run.paths.shard_record(shard.index), ShardRecord) for shard in there]
    known = [record for record in records if record is not None]
    least_certain, quarantined, unread = _with_texts(run, counted)
    return Report(
        run=run,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        batchzs_version=__version__,
        state=_state(run),
        num_shards_done=len(there),
        num_unrecorded=len(there) - len(known),
        aggregates=replace(counted, least_certain=least_certain, quarantined=quarantined),
        work=work_of(known, run.record.num_tasks),
        unread=unread,
    )


def report_to_json(report: Report) -> dict[str, Any]:
    """Write a report as values that `json.dumps` takes."""
    return {
        "output": str(report.run.paths.output),
        "made_at": report.made_at,
        "batchzs_version": report.batchzs_version,
        "state": report.state,
        "num_rows_planned": report.num_rows_planned,
        "num_shards_planned": len(report.run.shards),
        "num_shards_done": report.num_shards_done,
        "num_shards_without_record": report.num_unrecorded,
        **asdict(report.aggregates),
        "work": asdict(report.work),
        "unread": report.unread,
        "truth": None if report.truth is None else section_to_json(report.truth),
    }


def _state(run: FinishedRun) -> Literal["finished", "running", "stopped"]:
    if run.paths.success.exists():
        return "finished"
    status = read_status(run.paths)
    return "running" if any(worker.is_running for worker in status.workers) else "stopped"


def _with_texts(
    run: FinishedRun, counted: Aggregates
) -> tuple[tuple[UncertainRow, ...], tuple[BadRow, ...], dict[str, str]]:
    """The rows to show, with what the input has in their places."""
    source = InputTexts(run)
    bad = counted.quarantined
    readable: list[Place] = [*counted.least_certain, *(row for row in bad if row.status == NON_FINITE)]
    texts = source.read(readable, [row for row in bad if row.status != NON_FINITE])
    return (
        tuple(replace(row, text=texts.get((row.source_file, row.source_row))) for row in counted.least_certain),
        tuple(replace(row, text=texts.get((row.source_file, row.source_row))) for row in bad),
        source.unread,
    )
