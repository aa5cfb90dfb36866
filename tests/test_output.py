"""A shard's file: the pinned columns in their order, honest nulls, the same bytes for the same rows."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchzs.engine import ScoringCounts, TextLogits
from batchzs.job import added_column_names
from batchzs.models.classes import ClassIndices
from batchzs.output import LabelledShard, label_shard, read_provenance, write_shard
from batchzs.scoring import scores_from_logits
from tests.builders import make_job, odd_folder, shard_rows

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.inputs.rows import ShardRows
    from batchzs.job import JobConfig

STRUCTBERT = ClassIndices(0, 2, 1)
PROVENANCE: dict[str, Any] = {"shard": 0, "labels": ["科技", "体育", "财经"]}
BEST = pa.struct([("label", pa.string()), ("score", pa.float32())])
LOGIT = pa.struct([("entailment", pa.float32()), ("neutral", pa.float32()), ("contradiction", pa.float32())])
#: Entailment logits of the three labels: e^x are 1 2 5, 6 1 1, 2 2 4.
ENTAILMENT = np.log(np.array([[1, 2, 5], [6, 1, 1], [2, 2, 4]], dtype=np.float64))


def scored(entailment: np.ndarray = ENTAILMENT, num_classes: int = 3, **changes: Any) -> TextLogits:
    """What the engine gives for texts with these entailment logits; neutral 0.5 and contradiction 0 everywhere."""
    num_texts, num_labels = entailment.shape
    logits = np.zeros((num_texts, num_labels, num_classes), dtype=np.float32)
    logits[:, :, 0] = entailment
    if num_classes == 3:
        logits[:, :, 1] = 0.5
    values: dict[str, Any] = {
        "logits": logits,
        "num_tokens": np.full(num_texts, 4, dtype=np.int32),
        "truncated": np.zeros(num_texts, dtype=bool),
        "non_finite": np.zeros(num_texts, dtype=bool),
        "rescored": np.zeros(num_texts, dtype=bool),
        "counts": ScoringCounts(),
    }
    return TextLogits(**values | changes)


def label(
    job: JobConfig | None = None,
    rows: ShardRows | None = None,
    result: TextLogits | None = None,
    classes: ClassIndices = STRUCTBERT,
) -> LabelledShard:
    """Label three rows."""
    return label_shard(job or make_job(), classes, rows or shard_rows(["一", "二", "三"]), result or scored())


def columns(job: JobConfig) -> dict[str, list[Any]]:
    """The columns of three rows under a job."""
    return dict(label(job).table.to_pydict())


def written(table: pa.Table, compression: str = "zstd") -> bytes:
    """A shard's bytes."""
    file = io.BytesIO()
    write_shard(file, table, PROVENANCE, compression)
    return file.getvalue()


def test_single_label_worked_by_hand() -> None:
    """Row 1: 1 + 2 + 5 = 8, best 5/8 财经; row 2: 6/8 科技; row 3: 4/8 财经."""
    table = label().table
    assert table.column("label").to_pylist() == ["财经", "科技", "财经"]
    np.testing.assert_allclose(table.column("score").to_numpy(), [0.625, 0.75, 0.5], rtol=1e-6)
    np.testing.assert_allclose(
        table.column("scores").to_pylist(), [[0.125, 0.25, 0.625], [0.75, 0.125, 0.125], [0.25, 0.25, 0.5]], rtol=1e-6
    )
    assert table.column("logits").to_pylist()[1][0] == {
        "entailment": float(np.float32(np.log(6))),
        "neutral": 0.5,
        "contradiction": 0.0,
    }


def test_columns_and_types_are_the_pinned_ones_in_their_order() -> None:
    """Carried columns first, then those of the interface, each with its own type."""
    rows = shard_rows(["一", "二", "三"], carried={"编号": ["001", "002", None], "n": [1, 2, 3]})
    assert [(field.name, field.type) for field in label(rows=rows).table.schema] == [
        ("编号", pa.large_string()),
        ("n", pa.int64()),
        ("source_file", pa.string()),
        ("source_row", pa.int64()),
        ("label", pa.string()),
        ("score", pa.float32()),
        ("scores", pa.list_(pa.float32())),
        ("logits", pa.list_(LOGIT)),
        ("num_tokens", pa.int32()),
        ("truncated", pa.bool_()),
        ("rescored", pa.bool_()),
        ("status", pa.string()),
        ("reason", pa.string()),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"multi_label": True},
        {"output__scores": "none"},
        {"output__scores": 2},
        {"output__logits": False},
        {"multi_label": True, "output__scores": "none", "output__logits": False, "output__prefix": "zs_"},
        {"labels": ["科技"]},
    ],
    ids=str,
)
def test_the_columns_are_those_that_the_job_announces(changes: dict[str, Any]) -> None:
    """What the job checks against the carried names is what comes out, prefix included."""
    job = make_job(**changes)
    result = scored(ENTAILMENT[:, : len(job.labels)])
    assert tuple(label(job, result=result).table.column_names) == added_column_names(job)


def test_scores_of_the_best_n() -> None:
    """A list of (label, score), best first, ties in the job's order, never more than there are labels."""
    table = label(make_job(output__scores=2)).table
    assert table.schema.field("scores").type == pa.list_(BEST)
    best = table.column("scores").to_pylist()
    assert [[entry["label"] for entry in row] for row in best] == [["财经", "体育"], ["科技", "体育"], ["财经", "科技"]]
    np.testing.assert_allclose([entry["score"] for entry in best[0]], [0.625, 0.25], rtol=1e-6)
    assert [len(row) for row in columns(make_job(output__scores=9))["scores"]] == [3, 3, 3]


def test_multi_label_worked_by_hand() -> None:
    """Each label for itself: e^x / (e^x + 1), contradiction being 0: 1/2 2/3 5/6, then 6/7 1/2 1/2, then 2/3 2/3 4/5.

    The default threshold is 0.5, at it counts as above, best first, ties in the job's order.
    """
    result = columns(make_job(multi_label=True))
    np.testing.assert_allclose(result["scores"][0], [1 / 2, 2 / 3, 5 / 6], rtol=1e-6)
    assert result["labels"] == [["财经", "体育", "科技"], ["科技", "体育", "财经"], ["财经", "科技", "体育"]]
    assert result["label"] == ["财经", "科技", "财经"]


def test_multi_label_below_the_threshold_has_no_labels_and_still_a_best_one() -> None:
    """`labels` may be empty, which is not null; `label` and `score` are the best whatever the threshold."""
    result = columns(make_job(multi_label=True, threshold=0.84))
    assert result["labels"] == [[], ["科技"], []]
    assert result["label"] == ["财经", "科技", "财经"]
    assert None not in result["score"]


def test_single_label_below_the_threshold_has_no_label_and_keeps_its_score() -> None:
    """At the threshold counts as above: 0.625 is float32's own."""
    shard = label(make_job(threshold=0.625))
    assert shard.table.column("label").to_pylist() == ["财经", "科技", None]
    assert shard.table.column("score").null_count == 0
    assert shard.best.tolist() == [2, 0, -1]


def test_one_label_alone_is_scored_against_contradiction() -> None:
    """Case Z5: 1/2 and 6/7 and not 1.0 twice; the threshold applies as to any single label."""
    job = make_job(labels=["科技"], threshold=0.6)
    table = label(job, result=scored(ENTAILMENT[:, :1])).table
    np.testing.assert_allclose(table.column("score").to_numpy(), [1 / 2, 6 / 7, 2 / 3], rtol=1e-6)
    assert table.column("label").to_pylist() == [None, "科技", "科技"]


def test_two_class_heads_have_no_neutral() -> None:
    """The struct keeps its three fields, so that files of both kinds are read as one table."""
    table = label(result=scored(num_classes=2), classes=ClassIndices(0, 1, None)).table
    assert table.schema.field("logits").type == pa.list_(LOGIT)
    assert {entry["neutral"] for row in table.column("logits").to_pylist() for entry in row} == {None}


def test_rows_that_were_scored_again_say_so() -> None:
    """The engine's word, row by row."""
    result = replace(scored(), rescored=np.array([False, True, False]))
    assert label(result=result).table.column("rescored").to_pylist() == [False, True, False]


def test_class_order_of_the_checkpoint_is_undone() -> None:
    """Logits are named in the output: entailment at 2 in the checkpoint is still entailment here."""
    result = scored()
    flipped = replace(result, logits=result.logits[:, :, ::-1].copy())
    assert label(result=flipped, classes=ClassIndices(2, 0, 1)).table.equals(label().table)


QUARANTINED = ["label", "score", "labels", "scores", "logits"]


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("scores", ["all", 2])
def test_a_row_without_scores_keeps_its_place_and_its_carried_columns(multi_label: bool, scores: str | int) -> None:  # noqa: FBT001 - parametrised
    """Cases Z8 and Z9: damaged, empty and non-finite rows have nulls, a status, a reason, and sound neighbours."""
    job = make_job(multi_label=multi_label, output__scores=scores)
    rows = shard_rows(
        ["好", "坏", "", "☠", "好"],
        bad={1: ("bad_record", "新闻 1.csv, line 3: 4 fields, expected 2")},
        carried={"id": [7, 8, 9, 10, 11]},
    )
    entailment = np.vstack([ENTAILMENT[0], [np.nan] * 3, [np.nan] * 3, [np.nan, 0, 1], ENTAILMENT[0]])
    shard = label(
        job,
        rows,
        scored(
            entailment,
            num_tokens=np.array([4, 0, 0, 1, 4], dtype=np.int32),
            non_finite=np.array([False, False, False, True, False]),
        ),
    )
    table = shard.table
    assert table.column("status").to_pylist() == ["ok", "bad_record", "empty", "non_finite", "ok"]
    assert table.column("reason").to_pylist() == [
        None,
        "新闻 1.csv, line 3: 4 fields, expected 2",
        "the text is null or has no token of its own",
        "the model gave no finite number, in fp32 neither",
        None,
    ]
    assert table.column("id").to_pylist() == [7, 8, 9, 10, 11]
    assert table.column("source_row").to_pylist() == [0, 1, 2, 3, 4]
    for name in QUARANTINED:
        if name in table.column_names:
            assert [value is None for value in table.column(name).to_pylist()] == [False, True, True, True, False], name
    assert (
        table.slice(0, 1)
        .drop_columns(["id", "source_row"])
        .equals(table.slice(4, 1).drop_columns(["id", "source_row"]))
    )
    assert (shard.statuses.tolist(), shard.best.tolist()) == (table.column("status").to_pylist(), [2, -1, -1, -1, 2])
    table.validate(full=True)


def test_the_scores_are_those_of_the_formulas() -> None:
    """Nothing between formula and file: the stored float32 is the computed one, to the bit."""
    result = scored(np.random.default_rng(5).normal(size=(50, 3)))
    table = label(rows=shard_rows(["字"] * 50), result=result).table
    expected = scores_from_logits(result.logits, STRUCTBERT, as_multi_label=False)
    assert np.array_equal(np.array(table.column("scores").to_pylist(), dtype=np.float32), expected)
    assert np.array_equal(table.column("score").to_numpy(), expected.max(axis=1))


@pytest.mark.parametrize("changes", [{}, {"multi_label": True}, {"output__scores": 2}, {"labels": ["科技"]}], ids=str)
def test_an_empty_shard_has_the_schema_of_a_full_one(changes: dict[str, Any]) -> None:
    """So that a folder with one empty and many full shards opens as one table."""
    job = make_job(**changes)
    num_labels = len(job.labels)
    full = label(job, result=scored(ENTAILMENT[:, :num_labels])).table
    empty = label(job, shard_rows([]), scored(np.zeros((0, num_labels)))).table
    assert empty.schema == full.schema
    assert empty.num_rows == 0
    none = label(job, shard_rows(["", "", ""]), scored(ENTAILMENT[:, :num_labels], num_tokens=np.zeros(3, np.int32)))
    assert none.table.schema == full.schema


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_the_same_rows_give_the_same_bytes(compression: str) -> None:
    """Promise 3: no time, host or device is in the file; size and digest returned are the file's own."""
    file = io.BytesIO()
    size_bytes, sha256 = write_shard(file, label().table, PROVENANCE, compression)
    assert file.getvalue() == written(label().table, compression)
    assert size_bytes == len(file.getvalue())
    assert sha256 == hashlib.sha256(file.getvalue()).hexdigest()
    codec = pq.read_metadata(io.BytesIO(file.getvalue())).row_group(0).column(0).compression
    assert codec == {"zstd": "ZSTD", "snappy": "SNAPPY", "none": "UNCOMPRESSED"}[compression]


def test_provenance_is_read_back_and_foreign_files_have_none() -> None:
    """The footer says what made the file; another file's footer, or a damaged entry, says nothing."""

    def provenance(metadata: dict[bytes, bytes] | None) -> object:
        file = io.BytesIO()
        pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), file)
        return read_provenance(pq.read_metadata(file))

    assert read_provenance(pq.read_metadata(io.BytesIO(written(label().table)))) == PROVENANCE
    for metadata in (None, {b"other": b"{}"}, {b"batchzs": b"{"}, {b"batchzs": b"[1]"}, {b"batchzs": b"\xff"}):
        assert provenance(metadata) is None


def test_the_file_opens_everywhere_with_the_same_values(tmp_path: Path) -> None:
    """Polars, pyarrow, DuckDB and pandas read labels, nested scores and nulls alike."""
    rows = shard_rows(["好", "坏", "好"], bad={1: ("bad_type", "line 2")}, carried={"编号": ["001", None, "003"]})
    table = label(make_job(output__scores=2), rows).table
    path = odd_folder(tmp_path) / "part-00000.parquet"
    path.write_bytes(written(table))
    labels = ["财经", None, "财经"]
    names = ["财经", "体育"]
    assert pq.read_table(path).to_pydict() == table.to_pydict()
    frame = pl.read_parquet(path, glob=False)
    assert frame["label"].to_list() == labels
    assert [entry["label"] for entry in frame["scores"][0]] == names
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT label, scores[1].label, scores[2].label, 编号, logits[1].neutral FROM read_parquet($1)",
            [str(path).replace("[", "[[]").replace("*", "[*]")],
        ).fetchall()
    assert found == [
        ("财经", "财经", "体育", "001", 0.5),
        (None, None, None, None, None),
        ("财经", "财经", "科技", "003", 0.5),
    ]
    pandas = pd.read_parquet(path)
    assert [None if pd.isna(value) else value for value in pandas["label"]] == labels
    assert pandas["num_tokens"].tolist() == [4, 4, 4]
