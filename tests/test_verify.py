"""An output read again: any byte that changes is found, whatever it was, and nothing but a finding comes of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchzs.engine import ScoringCounts, TextLogits
from batchzs.errors import DifferenceError, OtherJobError
from batchzs.finished import open_run
from batchzs.inputs.rows import RowSpan
from batchzs.models.classes import ClassIndices
from batchzs.output import label_shard
from batchzs.paths import RunPaths
from batchzs.plan import Selection, Shard
from batchzs.prepare import RunContext, RunOptions
from batchzs.progress import NoProgress
from batchzs.run import run_job
from batchzs.stopping import StopFlag
from batchzs.test_hook import TestHook
from batchzs.verify.columns import Finding, ShardColumns, check_columns, columns_of
from batchzs.verify.output import refuse_findings, verify_run
from batchzs.verify.rescore import _draw, _spans_of
from tests.builders import make_job, odd_folder, shard_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from batchzs.job import JobConfig

SAMPLE_MODEL = Path(__file__).parent.parent / "sample_data" / "model"
THREE_CLASSES = ClassIndices(0, 2, 1)
TEXTS = ["股市上涨", None, "球队取胜", "", "新片上映", "大学招生", "股市上涨"]


def finish(folder: Path, **changes: object) -> JobConfig:
    """Score a small input with the stand-in."""
    pl.DataFrame({"text": TEXTS, "id": range(7)}).write_parquet(folder / "in.parquet")
    job = make_job(
        input={"path": [str(folder / "in.parquet")], "text": ["text"], "keep": ["id"]},
        model={"path": str(SAMPLE_MODEL)},
        output={"path": str(folder / "out"), "shard_rows": 3},
        **changes,
    )
    run_job(
        RunContext(
            job, RunPaths(folder / "out"), RunOptions(Selection()), TestHook(stand_in=True), StopFlag(), NoProgress()
        )
    )
    return job


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished output; not to be written to."""
    folder = odd_folder(tmp_path_factory.mktemp("verify"))
    finish(folder)
    return folder / "out"


@pytest.fixture
def output(undamaged: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(undamaged, tmp_path / "out")


def test_a_finished_output_has_no_findings(output: Path) -> None:
    """All shards and rows were looked at, and how many of them are scored is known for scoring again."""
    result = verify_run(open_run(output))
    assert (result.findings, result.notes) == ([], [])
    assert (result.num_shards_read, result.num_rows, result.num_ok) == (3, 7, {0: 2, 1: 2, 2: 1})
    refuse_findings(result)


CHECKED = ("scores/part-00000.parquet", "scores/part-00002.parquet", "state/shards/part-00001.json", "state/run.json")


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(CHECKED),
    place=st.floats(0, 1, exclude_max=True),
    difference=st.integers(1, 255),
    is_cut=st.booleans(),
)
def test_any_damage_is_a_finding_and_no_fault_of_ours(
    output: Path, undamaged: Path, *, name: str, place: float, difference: int, is_cut: bool
) -> None:
    """A changed byte or a lost end of any checked file never ends in an exception other than our own."""
    content = bytearray((undamaged / name).read_bytes())
    index = int(place * len(content))
    content[index] ^= difference
    (output / name).write_bytes(content[:index] if is_cut else content)
    try:
        found = len(verify_run(open_run(output)).findings)
    except (DifferenceError, OtherJobError):  # another kind of error, or a shard that stops the check, is a failure
        found = int(name == "state/run.json")
    # Most of what run.json and a record hold beside the results (times, hosts, versions) has no second witness, and
    # their last byte is a line end.
    assert found or (name.endswith(".json") and (not is_cut or index == len(content) - 1))
    (output / name).write_bytes((undamaged / name).read_bytes())


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe\x00", b'{"version": 1, "files": 3, "carried": []}'])
@pytest.mark.parametrize("name", ["run.json", "inputs.json"])
def test_a_state_that_is_something_else(output: Path, name: str, content: bytes) -> None:
    """One message that names the file and says what to do."""
    (output / "state" / name).write_bytes(content)
    with pytest.raises(DifferenceError, match=rf"{name}: is damaged \(.*\): run the job again"):
        open_run(output)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('"entailment_id": 0', '"entailment_id": 7', "class indices lie outside"),
        ('"shard_rows": 3,\n  "max_batch', '"shard_rows": 0,\n  "max_batch', "shards have 0 rows"),
        ('"--limit": null', '"--limit": -1', "--limit or --sample is below 1"),
        ('"--limit": null', '"--limit": "a"', "--limit is 'a'"),
        ('"multi_label": false,\n  "threshold"', '"multi_label": 3,\n  "threshold"', "its job is no job: multi_label"),
    ],
)
def test_a_run_record_that_makes_no_sense(output: Path, before: str, after: str, fault: str) -> None:
    """Values that nothing could be held against are refused by name."""
    path = output / "state/run.json"
    content = path.read_text(encoding="utf-8")
    assert before in content
    path.write_text(content.replace(before, after), encoding="utf-8")
    with pytest.raises(DifferenceError, match=fault):
        open_run(output)


def test_a_job_that_was_edited_in_the_record(output: Path) -> None:
    """The fingerprint, from which shards are known, says what the job was."""
    path = output / "state/run.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"max_length": 512', '"max_length": 500'), "utf-8")
    result = verify_run(open_run(output))
    assert [str(finding) for finding in result.findings] == [
        "state/run.json: its fingerprint and its job or model say different things of engine.max_length"
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"label": 3}, [("label", "is none of the job's labels")]),
        ({"scores": 2}, [("scores", "is no number from 0 to 1")]),
        ({"order": 0}, [("scores", "is not best first"), ("label", "is not the best"), ("score", "is not the best")]),
        ({"score": -0.0}, [("score", "is no number from 0 to 1")]),
    ],
)
def test_without_logits_labels_follow_from_scores(
    tmp_path: Path, change: dict[str, float], expected: list[tuple[str, str]]
) -> None:
    """The best of the stored scores is label and score; entries are known labels, best first."""
    job = finish(tmp_path, output__logits=False, output__scores=2)
    table = pq.read_table(tmp_path / "out/scores/part-00000.parquet")
    assert list(check_columns(columns_of_table(job, table))) == []
    frame = table.to_pylist()
    if "label" in change:
        frame[0]["label"] = "别的"
    if "scores" in change:
        frame[0]["scores"][1]["score"] = change["scores"]
    if "order" in change:
        frame[0]["scores"].reverse()
    if "score" in change:
        frame[0]["score"] = change["score"]
    found = list(check_columns(columns_of_table(job, type(table).from_pylist(frame, schema=table.schema))))
    assert [(one.row, one.column) for one in found] == [(0, column) for column, _ in expected]
    assert all(what in one.what for one, (_, what) in zip(found, expected, strict=True))


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("scores", ["all", "none", 2])
def test_what_was_labelled_follows_from_its_logits(*, multi_label: bool, scores: str | int) -> None:
    """Rows of every status, a head of two classes, scores on both sides of the threshold: all decided alike."""
    job = make_job(multi_label=multi_label, threshold=0.6, output__scores=scores, output__prefix="zs_")
    classes = ClassIndices(1, 0, None)
    rows = shard_rows(["一", "", "三", "四", "五"], bad={3: ("bad_type", "a.jsonl:4: a number")})
    logits = np.random.default_rng(0).normal(size=(5, 3, 2)).astype(np.float32)
    logits[1] = np.nan
    nothing, non_finite = np.zeros(5, dtype=bool), np.array([False, False, True, False, False])
    scored = TextLogits(
        logits,
        np.array([1, 0, 1, 0, 1], np.int32),
        nothing,
        non_finite,
        nothing,
        ScoringCounts(),
    )
    table = label_shard(job, classes, rows, scored).table
    assert table.column("zs_status").to_pylist() == ["ok", "empty", "non_finite", "bad_type", "ok"]
    assert list(check_columns(columns_of_table(job, table, classes, 2))) == []


def columns_of_table(
    job: JobConfig, table: pa.Table, classes: ClassIndices = THREE_CLASSES, num_classes: int = 3
) -> ShardColumns:
    """Take a table's columns, none of which has a null where none may be."""
    columns = columns_of(job, classes, num_classes, "a.parquet", table)
    assert not isinstance(columns, Finding)
    return columns


def test_findings_name_their_place() -> None:
    """File, then row and column as far as there are any."""
    assert str(Finding("a", "is gone")) == "a: is gone"
    assert str(Finding("a", "is 3", 7)) == "a: row 7: is 3"
    assert str(Finding("a", "is 3", column="n")) == "a: column n: is 3"
    assert str(Finding("a", "is 3", 7, "n")) == "a: row 7, column n: is 3"


def test_rows_are_drawn_by_the_seed_from_scored_rows() -> None:
    """Every scored row may be drawn, none twice, shards without any give none; the same seed draws the same."""
    shards = [Shard(index, 10 * index, (RowSpan(0, 10 * index, 10 * index + 10),)) for index in range(4)]
    num_ok = {0: 3, 2: 5}
    assert [(shard.index, rows) for shard, rows in _draw(shards, num_ok, 100, 0)] == [
        (0, [0, 1, 2]),
        (2, [0, 1, 2, 3, 4]),
    ]
    assert _draw(shards, num_ok, 4, 1) == _draw(shards, num_ok, 4, 1)
    assert sum(len(rows) for _, rows in _draw(shards, num_ok, 4, 1)) == 4
    assert _draw(shards, {}, 4, 1) == []


def test_drawn_rows_lie_where_the_plan_says() -> None:
    """Positions come from the plan, not from the columns that are under test."""
    shard = Shard(0, 0, (RowSpan(1, 5, 8), RowSpan(2, 0, 1), RowSpan(4, 9, 11)))
    assert _spans_of(shard, np.array([0, 2, 3, 5])) == [
        RowSpan(1, 5, 6),
        RowSpan(1, 7, 8),
        RowSpan(2, 0, 1),
        RowSpan(4, 10, 11),
    ]
