"""What is done is what lies there whole and is this run's; anything else is scored again or refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from batchzs.durable import make_folders, publish
from batchzs.engine import ScoringCounts, TextLogits
from batchzs.errors import OtherJobError
from batchzs.inputs.rows import InputSet, RowSpan
from batchzs.known_input import KnownInput
from batchzs.models.classes import ClassIndices
from batchzs.output import label_shard, read_provenance, write_shard
from batchzs.paths import RunPaths
from batchzs.plan import Selection, Shard
from batchzs.prepare import PreparedRun, RunContext, RunOptions, read_spec
from batchzs.progress import NoProgress
from batchzs.records import ShardRecord, read_record, write_record
from batchzs.resume import (
    complete_shards,
    describe_indices,
    refuse_foreign_shards,
    remove_run,
    shard_provenance,
    sweep_temporary_files,
)
from batchzs.stopping import StopFlag
from batchzs.test_hook import TestHook
from tests.builders import make_job, odd_folder, run_record, shard_record, shard_rows

if TYPE_CHECKING:
    from batchzs.job import JobConfig


@dataclass(frozen=True)
class Output:
    """A run of two shards of three rows, both complete."""

    run: PreparedRun

    def shard(self, index: int) -> Path:
        """A shard's file."""
        return self.run.paths.shard(index)

    def write(self, index: int, *, rows_written: int = 3, **provenance: Any) -> None:
        """Publish a shard, with what its footer says changed."""
        shard = self.run.shards[index]
        rows = shard_rows(["一", "", "三"][:rows_written])
        logits = np.arange(27, dtype=np.float32).reshape(3, 3, 3)[:rows_written]
        scored = TextLogits(
            logits,
            np.array([1, 0, 1], dtype=np.int32)[:rows_written],
            np.array([True, False, False])[:rows_written],
            np.zeros(rows_written, dtype=bool),
            np.zeros(rows_written, dtype=bool),
            ScoringCounts(),
        )
        labelled = label_shard(self.run.job, ClassIndices(0, 2, 1), rows, scored)
        with publish(self.shard(index), self.run.paths.temporary) as file:
            size_bytes, sha256 = write_shard(
                file, labelled.table, shard_provenance(self.run, shard) | provenance, "zstd"
            )
        record = shard_record(
            index=index, first_row=shard.first_row, num_rows=rows_written, size_bytes=size_bytes, sha256=sha256
        )
        write_record(self.run.paths.shard_record(index), record, self.run.paths.temporary)


@pytest.fixture
def job() -> JobConfig:
    """A job whose columns have a prefix."""
    return make_job(output__prefix="zs_")


@pytest.fixture
def output(tmp_path: Path, job: JobConfig) -> Output:
    """Two complete shards."""
    paths = RunPaths(odd_folder(tmp_path))
    make_folders(paths.scores, paths.shard_records, paths.temporary)
    context = RunContext(job, paths, RunOptions(Selection()), TestHook(), StopFlag(), NoProgress())
    shards = [Shard(index, 3 * index, (RowSpan(0, 3 * index, 3 * index + 3),)) for index in range(2)]
    opened: Any = SimpleNamespace(checkpoint=SimpleNamespace(directory=Path("/models/base")))  # only its name is used
    run = PreparedRun(
        context, read_spec(job), KnownInput(InputSet((), ())), shards, run_record(job), opened, loaded=None
    )
    output = Output(run)
    for index in range(2):
        output.write(index)
    return output


def test_complete_shards_are_done_with_their_records(output: Output) -> None:
    """A finished run finds everything done."""
    assert complete_shards(output.run, output.run.shards) == {
        index: read_record(output.run.paths.shard_record(index), ShardRecord) for index in range(2)
    }


def test_a_shard_that_is_not_there_is_not_done_whatever_its_record_says(output: Output) -> None:
    """Progress is derived from shards and not the other way round."""
    output.shard(0).unlink()
    assert list(complete_shards(output.run, output.run.shards)) == [1]


@pytest.mark.parametrize("damage", ["empty", "half", "zeros", "another format"])
def test_a_damaged_shard_is_named_and_scored_again(
    output: Output, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Case R1: a file that does not open as Parquet is not done."""
    path = output.shard(1)
    content = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "half": content[: len(content) // 2], "zeros": b"\0" * len(content), "another format": b"a,b\n"}[
            damage
        ]
    )
    with caplog.at_level("WARNING", logger="batchzs"):
        assert list(complete_shards(output.run, output.run.shards)) == [0]
    assert f"{path}: is no whole Parquet file: scoring this shard again" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": "0" * 64}, "its metadata says fingerprint 000"),
        ({"shard": 0}, "its metadata says shard 0, expected 1"),
        ({"first_row": 0}, "its metadata says first_row 0, expected 3"),
        ({"num_rows": 4}, "its metadata says num_rows 4, expected 3"),
    ],
)
def test_a_shard_of_another_run_or_place_is_scored_again(
    output: Output, caplog: pytest.LogCaptureFixture, change: dict[str, Any], message: str
) -> None:
    """Case R5: old results under the right name are not reused."""
    output.write(1, **change)
    with caplog.at_level("WARNING", logger="batchzs"):
        assert list(complete_shards(output.run, output.run.shards)) == [0]
    assert message in caplog.text


def test_a_shard_with_too_few_rows_is_scored_again(output: Output, caplog: pytest.LogCaptureFixture) -> None:
    """The footer's own count, whatever the metadata promises."""
    output.write(1, rows_written=2)
    with caplog.at_level("WARNING", logger="batchzs"):
        assert list(complete_shards(output.run, output.run.shards)) == [0]
    assert "has 2 rows, expected 3" in caplog.text


def test_a_shard_whose_size_is_not_its_records_is_scored_again(
    output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    """The footer alone does not see that bytes before it changed; the record's size sees some of that."""
    record = read_record(output.run.paths.shard_record(1), ShardRecord)
    assert record is not None
    changed = record.model_copy(update={"size_bytes": record.size_bytes + 1})
    write_record(output.run.paths.shard_record(1), changed, output.run.paths.temporary)
    with caplog.at_level("WARNING", logger="batchzs"):
        assert list(complete_shards(output.run, output.run.shards)) == [0]
    assert f"has {record.size_bytes} bytes, its record says {record.size_bytes + 1}" in caplog.text


@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_lost_record_is_made_again_from_the_shard(output: Output, content: bytes | None) -> None:
    """Killed between rename and record: nothing is scored twice for that, and counts come from the columns."""
    path = output.run.paths.shard_record(1)
    before = read_record(path, ShardRecord)
    assert before is not None
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    record = complete_shards(output.run, output.run.shards)[1]
    assert record == read_record(path, ShardRecord)
    assert (record.index, record.first_row, record.num_rows, record.size_bytes, record.sha256) == (
        1,
        3,
        3,
        before.size_bytes,
        before.sha256,
    )
    assert record.statuses == {"ok": 2, "empty": 1}
    assert sum(record.labels.values()) == 2
    assert record.num_truncated == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("part-00002.parquet", "is none of this run's 2 shards"),
        ("notes.txt", "is no shard of batchzs"),
        ("part-0.parquet", "is no shard of batchzs"),
    ],
)
def test_a_strange_file_among_the_shards_is_refused(output: Output, name: str, message: str) -> None:
    """Whoever reads the folder would read it too: it is named, and not removed."""
    path = output.run.paths.scores / name
    path.write_bytes(b"")
    with pytest.raises(OtherJobError) as caught:
        complete_shards(output.run, output.run.shards)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert path.exists()


def test_a_new_run_does_not_begin_among_anothers_shards(output: Output) -> None:
    """With the same fingerprint it may: the state was lost, the shards are its own."""
    paths = output.run.paths
    fingerprint, input_digest = output.run.fingerprint_digest, output.run.record.input_digest
    refuse_foreign_shards(paths, fingerprint, {input_digest})
    with pytest.raises(OtherJobError, match=r"part-00000\.parquet: was written by another job"):
        refuse_foreign_shards(paths, "0" * 64, {input_digest})
    with pytest.raises(OtherJobError, match=r"part-00000\.parquet: was made from another input"):
        refuse_foreign_shards(paths, fingerprint, {"1" * 64})
    output.shard(0).write_bytes(b"")
    with pytest.raises(OtherJobError, match=r"part-00000\.parquet: is a damaged shard, or none of batchzs"):
        refuse_foreign_shards(paths, fingerprint, {input_digest})


def test_a_hidden_file_among_the_shards_is_passed_over(output: Output) -> None:
    """NFS makes such names for files that a reader holds; Parquet readers pass over them too."""
    (output.run.paths.scores / ".nfs0001").write_bytes(b"")
    assert complete_shards(output.run, output.run.shards).keys() == {0, 1}


def test_removing_refuses_what_batchzs_did_not_write(output: Output) -> None:
    """--restart in a folder of somebody else's removes nothing, whatever its files are called."""
    paths = output.run.paths
    foreign = pl.DataFrame({"a": [1]})
    foreign.write_parquet(paths.scores / "part-00007.parquet")
    with pytest.raises(OtherJobError, match=r"part-00007\.parquet: was not written by batchzs"):
        remove_run(paths)
    (paths.scores / "part-00007.parquet").unlink()
    paths.run_record.write_text('{"mine": 1}', encoding="utf-8")
    with pytest.raises(OtherJobError, match=r"run\.json: was not written by batchzs"):
        remove_run(paths)
    assert output.shard(0).exists()


def test_removing_a_run_removes_its_files_and_no_others(output: Output) -> None:
    """--restart: log, lock and what lies beside `scores/` stay."""
    paths = output.run.paths
    stay = [paths.log, paths.lock, paths.output / "notes.txt"]
    for path in [*stay, paths.success, paths.run_record]:
        path.write_bytes(b"")
    remove_run(paths)
    assert sorted(path for path in paths.output.rglob("*") if path.is_file()) == sorted(stay)
    remove_run(paths)


def test_a_strange_file_keeps_a_run_from_being_removed(output: Output) -> None:
    """All or nothing: what was scored is not lost to an output that cannot be begun anew."""
    stranger = output.run.paths.scores / "notes.txt"
    stranger.write_bytes(b"")
    with pytest.raises(OtherJobError, match=r"notes\.txt: is no shard of batchzs"):
        remove_run(output.run.paths)
    assert len(complete_shards_without(output, stranger)) == 2


def complete_shards_without(output: Output, stranger: Path) -> dict[int, ShardRecord]:
    """What is done once a stranger is gone."""
    stranger.unlink()
    return complete_shards(output.run, output.run.shards)


def test_half_written_files_of_killed_runs_are_swept(output: Output, caplog: pytest.LogCaptureFixture) -> None:
    """Their process's number is in their name, so nobody else would ever remove them; shards and records stay."""
    leftover = output.run.paths.temporary / "part-00001.parquet.4242.tmp"
    leftover.write_bytes(b"PAR1")
    with caplog.at_level("INFO", logger="batchzs"):
        sweep_temporary_files(output.run.paths)
    assert list(output.run.paths.temporary.iterdir()) == []
    assert f"removed {leftover.name}" in caplog.text
    assert len(complete_shards(output.run, output.run.shards)) == 2


def test_a_shards_footer_says_what_made_it_and_no_more(output: Output) -> None:
    """Labels, hypotheses, precision, model; no time, host or device, so that two runs give the same bytes."""
    provenance = read_provenance(pq.read_metadata(output.shard(1)))
    assert provenance == shard_provenance(output.run, output.run.shards[1])
    assert provenance is not None
    assert provenance["labels"] == ["科技", "体育", "财经"]
    assert (provenance["model"], provenance["precision"]) == ("base", "fp32")
    before = output.shard(1).read_bytes()
    output.write(1)
    assert output.shard(1).read_bytes() == before


@pytest.mark.parametrize(
    ("indices", "text"), [([], ""), ([4], "4"), ([4, 5], "4-5"), ([0, 2, 3, 4, 9], "0, 2-4, 9"), (range(1000), "0-999")]
)
def test_indices_for_people(indices: list[int], text: str) -> None:
    """Runs of shards are put together."""
    assert describe_indices(indices) == text
