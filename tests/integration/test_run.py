"""A run from its job to its output: every row, every number, readable by anything at any moment."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from batchzs.verify.rescore import SCORE_TOLERANCES
from tests.integration.conftest import csv_field

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import Finished, Workshop

TEXTS = [f"新闻{row}：{'股市上涨，' * (row % 5)}" for row in range(30)]


def rows_of(start: int, stop: int) -> pl.DataFrame:
    """Some rows of a small input."""
    return pl.DataFrame({"编号": list(range(start, stop)), "text": TEXTS[start:stop]})


def write_tsv(frame: pl.DataFrame, path: Path) -> None:
    """Write tabs between fields."""
    frame.write_csv(path, separator="\t")


WRITERS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "parquet": pl.DataFrame.write_parquet,
    "csv": pl.DataFrame.write_csv,
    "tsv": write_tsv,
    "jsonl": pl.DataFrame.write_ndjson,
}


def test_every_row_comes_out_once_in_order(done: Workshop) -> None:
    """Rows out are rows in, in the files' natural order, keyed by file and record; ids repeat and lack as they did."""
    table = done.table()
    assert table["source_file"].to_list() == ["part-2.csv"] * 70 + ["part-10.csv"] * 80
    assert table["source_row"].to_list() == [*range(70), *range(80)]
    readable = [row for row in range(done.num_rows) if row not in done.bad_rows]
    assert table["id"].gather(readable).to_list() == [done.ids[row] for row in readable]


def test_the_columns_are_the_documented_ones(done: Workshop) -> None:
    """Carried columns first, then the added ones in their order and types; in every shard the same."""
    assert dict(done.table().schema) == {
        "id": pl.String,
        "source_file": pl.String,
        "source_row": pl.Int64,
        "label": pl.String,
        "score": pl.Float32,
        "scores": pl.List(pl.Float32),
        "logits": pl.List(
            pl.Struct({"entailment": pl.Float32, "neutral": pl.Float32, "contradiction": pl.Float32}),
        ),
        "num_tokens": pl.Int32,
        "truncated": pl.Boolean,
        "rescored": pl.Boolean,
        "status": pl.String,
        "reason": pl.String,
    }
    schemas = {str(pq.read_schema(path).remove_metadata()) for path in done.output.glob("scores/*")}
    assert len(schemas) == 1


def test_empty_and_damaged_rows_keep_their_place(done: Workshop) -> None:
    """Null, empty, blank and invisible texts are `empty`, damaged records quarantined, and NA is a text (case Z8)."""
    table = done.table()
    statuses = ["ok"] * done.num_rows
    for row in done.empty_texts:
        statuses[row] = "empty"
    for row in done.bad_rows:
        statuses[row] = "bad_record"
    assert table["status"].to_list() == statuses
    unscored = table.filter(pl.col("status") != "ok")
    for column in ("label", "score", "scores", "logits"):
        assert unscored[column].null_count() == len(unscored)
    assert unscored["reason"].null_count() == 0
    assert "part-2.csv:54" in unscored.filter(pl.col("status") == "bad_record")["reason"][0]
    scored = table.filter(pl.col("status") == "ok")
    assert scored["reason"].null_count() == len(scored)
    assert scored["label"].null_count() == 0


@pytest.mark.parametrize("file_format", ["parquet", "csv", "jsonl"])
def test_texts_without_a_token(workshop: Workshop, file_format: str) -> None:
    """What is null, blank or invisible is `empty` in every format, and what looks like a null is a text (case Z8)."""
    texts = [None, "", "  ", "\u200b\ufeff", "\u3000", "\0", "NA", "null", "0"]
    path = workshop.folder / f"少.{file_format}"
    if file_format == "csv":
        path.write_text("id,text\n" + "".join(f"{csv_field('x')},{csv_field(text)}\n" for text in texts))
    else:
        WRITERS[file_format](pl.DataFrame({"id": ["x"] * len(texts), "text": texts}), path)
    result = workshop.run("run", workshop.job(input={"path": path.name, "max_bad_share": 0}))
    assert result.code == 0, result.stderr
    table = workshop.table()
    assert table["status"].to_list() == ["empty"] * 6 + ["ok"] * 3
    assert table["score"].is_null().to_list() == [True] * 6 + [False] * 3
    assert workshop.record("summary.json")["num_empty"] == 6


def test_nul_characters_change_no_score_and_are_counted(workshop: Workshop) -> None:
    """A text is scored as if its NUL characters were not there, and the summary says how many have some (case I3)."""
    (workshop.folder / "零.csv").write_text("text\n体\0育\n体育\n\0体\0育\0\n娱乐\n", encoding="utf-8")
    result = workshop.run("run", workshop.job(input={"path": "零.csv", "keep": ["text"]}))
    assert result.code == 0, result.stderr
    table = workshop.table()
    plain, bare, around, other = table["logits"].to_list()
    assert plain == bare == around != other
    assert table["text"].to_list() == ["体\0育", "体育", "\0体\0育\0", "娱乐"]
    assert workshop.record("summary.json")["num_nul_texts"] == 2
    assert "texts with NUL characters, which tokenising drops: 2" in result.stdout


@pytest.mark.slow
def test_texts_around_the_limit(workshop: Workshop) -> None:
    """Texts alone are cut, just where they do not fit, and labels stay whole, so that they differ (cases Z1, Z3).

    512 tokens less 3 special ones and 10 of the hypothesis leave 499 to the text.
    """
    sizes = [498, 499, 500, 508, 509, 510, 511, 512, 513, 600, 5000]
    texts = ["第" * size for size in sizes]
    pl.DataFrame({"text": texts}).write_parquet(workshop.folder / "长.parquet")
    job = workshop.job(input={"path": "长.parquet", "keep": []}, labels=["体育", "娱乐"])
    result = workshop.run("run", job, hook=None)
    assert result.code == 0, result.stderr
    table = workshop.table()
    assert table["status"].to_list() == ["ok"] * len(sizes)
    assert table["num_tokens"].to_list() == sizes
    assert table["truncated"].to_list() == [size > 499 for size in sizes]
    scores = np.array(table["scores"].to_list())
    assert np.abs(scores[:, 0] - scores[:, 1]).min() > 1e-6
    assert np.abs(scores[sizes.index(499) :] - scores[-1]).max() < 1e-6
    assert workshop.record("summary.json")["num_truncated"] == 9


@pytest.mark.slow
def test_hundreds_of_labels_in_any_chunks(workshop: Workshop) -> None:
    """Scores are normalised once over all labels, however many are scored at a time (case Z7)."""
    pl.DataFrame({"text": ["央行宣布降准", "台风登陆", "新手机发布"]}).write_parquet(workshop.folder / "三.parquet")
    labels = [f"第{number}条" for number in range(250)]
    tables = []
    for labels_per_chunk in (3, 250, "auto"):
        name = f"结果 {labels_per_chunk}"
        job = workshop.job(
            input={"path": "三.parquet", "keep": []},
            labels=labels,
            output={"path": name, "scores": "all"},
            engine={"labels_per_chunk": labels_per_chunk},
        )
        result = workshop.run("run", job)
        assert result.code == 0, result.stderr
        tables.append(workshop.table(workshop.folder / name))
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    scores = np.array(tables[0]["scores"].to_list())
    assert scores.shape == (3, 250)
    assert np.abs(scores.sum(axis=1) - 1).max() < 1e-5
    assert tables[0]["label"].to_list() == [labels[best] for best in scores.argmax(axis=1)]


def test_the_jobs_class_indices_decide(standard: Workshop) -> None:
    """Where the job states the classes they are those, and where they are turned round so are the logits (case Z4)."""
    model = {"entailment_id": 2, "contradiction_id": 0}
    result = standard.run("run", standard.job(model=model), "--limit", "10")
    assert result.code == 0, result.stderr
    usual = standard.job("b.yaml", output={"path": "b"})
    assert standard.run("run", usual, "--limit", "10").code == 0
    turned, plain = (
        table["logits"].explode().struct.unnest() for table in (standard.table(), standard.table(standard.folder / "b"))
    )
    assert turned["entailment"].equals(plain["contradiction"])
    assert turned["contradiction"].equals(plain["entailment"])
    assert turned["neutral"].equals(plain["neutral"])
    assert not turned.equals(plain)


def test_scores_follow_from_logits(done: Workshop) -> None:
    """A row's scores are the softmax over the labels' entailment logits; label and score are the best of them."""
    table = done.table().filter(pl.col("status") == "ok")
    entailment = np.array([[one["entailment"] for one in row] for row in table["logits"].to_list()])
    expected = np.exp(entailment) / np.exp(entailment).sum(axis=1, keepdims=True)
    scores = np.array(table["scores"].to_list())
    assert np.abs(scores - expected).max() < 1e-6
    assert table["label"].to_list() == [done.labels[best] for best in scores.argmax(axis=1)]
    assert table["score"].to_list() == scores.max(axis=1).tolist()


def test_equal_texts_have_equal_scores(done: Workshop) -> None:
    """A text that occurs in several shards has the same scores in each, and other texts have other logits."""
    table = done.table()
    twins = [row for row, text in enumerate(done.texts) if text == "同一条新闻，多次出现"]
    assert len({tuple(table["scores"][row]) for row in twins}) == 1
    assert len({str(row) for row in table["logits"].drop_nulls().to_list()}) > 120


def test_what_was_cut_is_marked(done: Workshop) -> None:
    """Only the text that does not fit is marked as truncated, with its own uncut number of tokens."""
    table = done.table()
    assert table.with_row_index().filter("truncated")["index"].to_list() == [77]
    assert table["num_tokens"][77] == 1200
    assert table["num_tokens"].gather(list(done.empty_texts)).to_list() == [0, 0, 0, 0]


def test_each_thing_has_its_place(done: Workshop) -> None:
    """`scores/` holds whole shards alone, `_SUCCESS` is empty, everything else is in `state/`, nothing is left over."""
    found = {str(path.relative_to(done.output)) for path in done.output.rglob("*") if path.is_file()}
    parts = [f"part-{index:05d}" for index in range(done.num_shards)]
    assert found == {
        "_SUCCESS",
        *(f"scores/{part}.parquet" for part in parts),
        *(f"state/shards/{part}.json" for part in parts),
        *(f"state/{name}" for name in ("attempt", "inputs.json", "metrics.prom", "run.json", "run.lock", "run.log")),
        "state/summary.json",
    }
    assert (done.output / "_SUCCESS").read_bytes() == b""
    sizes = [pq.read_metadata(done.output / "scores" / f"{part}.parquet").num_rows for part in parts]
    assert sizes == [*[done.shard_rows] * 7, 10]


def test_permissions_are_those_that_the_umask_gives(done: Workshop) -> None:
    """A colleague can read the results: files are not left with a temporary file's 0600."""
    result = done.run("run", done.standard_job, "--restart", script='umask 027; exec "$@"')
    assert result.code == 0
    paths = [done.output / "_SUCCESS", *done.output.glob("scores/*"), *done.output.glob("state/*.json")]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o640}


def test_the_summary_adds_up(done: Workshop, finished: Finished) -> None:
    """Rows are labelled, below the threshold, empty or quarantined and nothing else; the numbers are the shards'."""
    summary = done.record("summary.json")
    table = done.table()
    assert summary["num_rows"] == done.num_rows == sum(summary["statuses"].values())
    assert summary["num_empty"] == 4
    assert summary["num_quarantined"] == 2
    assert summary["statuses"] == dict(sorted(table["status"].value_counts().iter_rows()))
    assert summary["labels"] == {label: (table["label"] == label).sum() for label in done.labels}
    assert sum(summary["labels"].values()) + summary["num_unlabelled"] == summary["statuses"]["ok"] == 144
    assert summary["num_truncated"] == 1
    records = [done.record(f"shards/part-{index:05d}.json") for index in range(done.num_shards)]
    for name in ("num_pairs", "num_tokens", "num_duplicates", "num_rows"):
        assert summary[name] == sum(record[name] for record in records)
    assert summary["num_pairs"] == (144 - summary["num_duplicates"]) * len(done.labels)
    shown = dict(line.split(maxsplit=1) for line in finished.ended.stdout.splitlines())
    assert list(shown) == [
        *("rows", "labels", "empty", "quarantined", "truncated", "duplicates", "time", "speed", "output"),
    ]
    assert shown["rows"] == "150 in 8 shards"
    assert shown["quarantined"] == "2 (bad_record 2)"
    assert shown["output"] == summary["output"] == str(finished.folder / done.output.name)


def test_a_shard_says_what_made_it(done: Workshop) -> None:
    """A shard's metadata names job, model, labels and place, so that it explains itself without its state."""
    fingerprints = set()
    for index in range(done.num_shards):
        metadata = pq.read_metadata(done.output / f"scores/part-{index:05d}.parquet").metadata
        made_by = json.loads(metadata[b"batchzs"])
        fingerprints.add(made_by["fingerprint"])
        assert made_by["shard"] == index
        assert made_by["first_row"] == index * done.shard_rows
        assert made_by["model"] == done.model.name
        assert set(made_by["model_files"]) == {"config.json", "pytorch_model.bin", "vocab.txt"}
        assert made_by["labels"] == done.labels
        assert made_by["hypotheses"] == [f"这篇文章的标题是{label}" for label in done.labels]
        assert made_by["precision"] == "fp32"
    assert len(fingerprints) == 1


@pytest.mark.parametrize("file_format", ["parquet", "csv", "tsv", "jsonl"])
def test_a_single_file_of_each_format(workshop: Workshop, file_format: str) -> None:
    """Parquet, CSV, TSV and JSON Lines give the same rows and the same scores; ids keep the type that they have."""
    path = workshop.folder / f"数据 [1].{file_format}"
    WRITERS[file_format](rows_of(0, 30), path)
    job = workshop.job(input={"path": path.name, "keep": "all"}, output={"shard_rows": 13})
    result = workshop.run("run", job)
    assert result.code == 0, result.stderr
    table = workshop.table()
    assert table["source_file"].to_list() == [path.name] * 30
    assert table["source_row"].to_list() == list(range(30))
    numbers = list(range(30))
    assert table["编号"].to_list() == (numbers if file_format in ("parquet", "jsonl") else list(map(str, numbers)))
    assert table["text"].to_list() == TEXTS
    assert table["status"].to_list() == ["ok"] * 30
    assert len(workshop.shards()) == 3


def test_lists_and_globs_and_a_shard_over_many_files(workshop: Workshop) -> None:
    """A list keeps its order, a glob the natural one; names are relative to what all have in common."""
    for number, name in enumerate(
        ["b/甲 2.csv", "b/甲 10.csv", "a [x]/乙.csv", "a [x]/.hidden.csv", "a [x]/c.csv.tmp"]
    ):
        path = workshop.folder / "many" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows_of(5 * number, 5 * number + 5).write_csv(path)
    job = workshop.job(input={"path": ["many/b/*.csv", "many/a [x]"], "keep": ["编号"]}, output={"shard_rows": 8})
    result = workshop.run("run", job)
    assert result.code == 0, result.stderr
    table = workshop.table()
    assert table["编号"].to_list() == list(map(str, range(15)))
    assert table["source_file"].unique(maintain_order=True).to_list() == ["b/甲 2.csv", "b/甲 10.csv", "a [x]/乙.csv"]
    assert len(workshop.shards()) == 2


@pytest.mark.slow
def test_any_tool_opens_the_output_while_it_grows(standard: Workshop, finished: Finished) -> None:
    """Polars, DuckDB, pandas and pyarrow open `scores/` in the middle of a run and at its end (no file is half one).

    In the middle the fourth shard's bytes lie under their temporary name already.
    """
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "pause": "shard-written:4"})
    running.wait_until(lambda: any((standard.state / "tmp").glob("part-00003.parquet.*")))
    counts = count_rows(standard.output / "scores")
    assert not running.has_ended
    assert not (standard.output / "_SUCCESS").exists()
    assert counts == [3 * standard.shard_rows] * 4
    running.wait_until_paused()
    running.send(signal.SIGCONT)
    assert running.end().code == 0
    assert count_rows(standard.output / "scores") == [standard.num_rows] * 4
    assert standard.is_like(finished)


def count_rows(scores: Path) -> list[int]:
    """Count the rows of a folder with four tools."""
    import duckdb
    import pandas as pd
    import pyarrow.dataset as ds

    # The tools take a bracket in a path for a pattern; that is their way, and a link without one is the user's.
    plain = scores.parent.parent.parent / "plain"
    if not plain.is_symlink():
        plain.symlink_to(scores, target_is_directory=True)
    return [
        pl.scan_parquet(plain).select(pl.len()).collect().item(),
        len(duckdb.read_parquet(f"{plain}/*.parquet")),
        len(pd.read_parquet(plain)),
        ds.dataset(plain).count_rows(),
    ]


@pytest.mark.parametrize("file_format", ["parquet", "csv", "tsv", "jsonl"])
def test_an_input_without_rows(workshop: Workshop, file_format: str) -> None:
    """A header alone is no error: the output has its full schema and no row, and `_SUCCESS` (case I11)."""
    path = workshop.folder / f"空.{file_format}"
    WRITERS[file_format](pl.DataFrame(schema={"id": pl.String, "text": pl.String}), path)
    if file_format == "jsonl":
        path.write_bytes(b"\n")  # a file of no bytes is refused
    result = workshop.run("run", workshop.job(input={"path": path.name}))
    assert result.code == 0, result.stderr
    table = workshop.table()
    assert table.height == 0
    assert dict(list(table.schema.items())[:5]) == {
        "id": pl.String,
        "source_file": pl.String,
        "source_row": pl.Int64,
        "label": pl.String,
        "score": pl.Float32,
    }
    assert (workshop.output / "_SUCCESS").exists()
    assert workshop.record("summary.json")["num_rows"] == 0


def test_limit(standard: Workshop, finished: Finished) -> None:
    """`--limit` scores the first rows, with the scores that they have in the whole run."""
    result = standard.run("run", standard.standard_job, "--limit", "47")
    assert result.code == 0, result.stderr
    whole = finished.table
    assert standard.table().equals(whole.head(47))
    assert len(standard.shards()) == 3


@pytest.mark.slow
def test_sample(standard: Workshop, finished: Finished) -> None:
    """`--sample` draws rows by its seed: the same ones again, other ones with another seed, in input order."""
    whole = finished.table
    seeds = {"一": "1", "二": "1", "三": "2"}
    common = ("run", standard.standard_job, "--sample", "25")
    started = [standard.start(*common, "--seed", seed, "--set", f"output.path={name}") for name, seed in seeds.items()]
    assert [running.end().code for running in started] == [0, 0, 0]
    keys = []
    for name in seeds:
        table = standard.table(standard.folder / name)
        keys.append(table.select("source_file", "source_row"))
        assert table.equals(whole.join(keys[-1], on=["source_file", "source_row"], maintain_order="left"))
        assert table.height == 25
    assert keys[0].equals(keys[1])
    assert not keys[0].equals(keys[2])


def test_multi_label(standard: Workshop) -> None:
    """Each label is scored by itself; `labels` has those at or above the threshold, best first, and may be empty."""
    result = standard.run("run", standard.job(multi_label=True, threshold=0.6))
    assert result.code == 0, result.stderr
    table = standard.table().filter(pl.col("status") == "ok")
    logits = table["logits"].to_list()
    for scores, labels, label, row in zip(table["scores"], table["labels"], table["label"], logits, strict=True):
        expected = [1 / (1 + np.exp(one["contradiction"] - one["entailment"])) for one in row]
        assert np.abs(np.array(scores) - expected).max() < 1e-6
        ranked = sorted(range(3), key=lambda index, scores=scores: -scores[index])  # type: ignore[misc]
        assert label == standard.labels[ranked[0]]
        assert labels.to_list() == [standard.labels[index] for index in ranked if scores[index] >= 0.6]
    assert {0, 1} < set(table["labels"].list.len())


def test_top_scores_and_a_prefix_and_a_threshold(standard: Workshop, finished: Finished) -> None:
    """`scores: 2` keeps the two best by name, `logits: false` none; below the threshold the label is null, no score."""
    job = standard.job(threshold=0.7, output={"scores": 2, "logits": False, "prefix": "zs_", "compression": "none"})
    result = standard.run("run", job)
    assert result.code == 0, result.stderr
    table = standard.table()
    whole = finished.table
    assert "zs_logits" not in table.columns
    assert table["zs_score"].equals(whole["score"])
    assert (
        table["zs_label"].to_list()
        == whole.select(
            pl.when(pl.col("score") >= 0.7).then("label"),
        )
        .to_series()
        .to_list()
    )
    for top, label, score in zip(table["zs_scores"], whole["label"], whole["score"], strict=True):
        assert top is None or (len(top) == 2 and top[0] == {"label": label, "score": score})
    assert standard.record("summary.json")["num_unlabelled"] == (whole["score"] < 0.7).sum() > 0
    assert "below the threshold" in result.stdout


def test_one_label_is_scored_against_its_contradiction(standard: Workshop) -> None:
    """One label alone does not get 1.0 for every text (case Z5)."""
    result = standard.run("run", standard.job(labels=["科技"]), "--limit", "20")
    assert result.code == 0, result.stderr
    assert standard.table()["score"].drop_nulls().n_unique() > 5


def test_paths_resolve_against_the_job_file(standard: Workshop, finished: Finished) -> None:
    """A job's relative paths start at its own folder and those of `--set` at the working directory."""
    elsewhere = standard.folder.parent / "elsewhere"
    elsewhere.mkdir()
    result = standard.run("run", standard.standard_job, "--set", "output.path=out 甲", cwd=elsewhere)
    assert result.code == 0, result.stderr
    assert standard.shards(elsewhere / "out 甲") == finished.shards
    assert not standard.output.exists()


def test_an_output_inside_the_input_is_no_input(standard: Workshop, finished: Finished) -> None:
    """Results that lie below the input's directory are not read as input, neither at once nor by a later run."""
    job = standard.job(output={"path": f"{standard.input.name}/结果"})
    for _ in range(2):
        result = standard.run("run", job)
        assert result.code == 0, result.stderr
    whole = finished.table
    assert standard.table(standard.input / "结果").equals(whole)


def test_batches_do_not_change_scores(standard: Workshop, finished: Finished) -> None:
    """Another budget, chunk of labels and shard size, and memory that runs out, give each row the same scores."""
    whole = finished.table
    engine = {"max_batch_tokens": 2000, "labels_per_chunk": 2}
    job = standard.job(engine=engine, output={"shard_rows": 64})
    result = standard.run("run", job, hook={"stand_in": True, "fail_above_tokens": 900})
    assert result.code == 0, result.stderr
    assert standard.table().equals(whole)
    assert standard.record("summary.json")["num_splits"] > 0
    assert "out of memory" in result.stderr
    assert "batches made smaller after running out of memory" in result.stdout


@pytest.mark.slow
def test_a_real_model_scores_alike_in_any_batch(standard: Workshop, finished_by_model: Finished) -> None:
    """With a checkpoint, other batches, chunks of labels and shards give the same scores within 1e-6."""
    engine = {"max_batch_tokens": 4000, "labels_per_chunk": 2}
    job = standard.job(engine=engine, output={"shard_rows": 64})
    result = standard.run("run", job, "--limit", "80", hook=None)
    assert result.code == 0, result.stderr
    tables = [standard.table(), finished_by_model.table]
    floats = ["score", "scores", "logits"]
    assert tables[0].drop(floats).equals(tables[1].drop(floats))
    scores = [np.array(table["scores"].drop_nulls().to_list()) for table in tables]
    assert np.abs(scores[0] - scores[1]).max() < 1e-6
    assert scores[0].std() > 0.1


@pytest.mark.slow
def test_rows_too_close_to_call_get_the_labels_of_fp32(standard: Workshop, finished_by_model: Finished) -> None:
    """In bf16 every row names the label that it has in fp32; the rows scored again say so and are counted."""
    result = standard.run("run", standard.job(engine={"precision": "bf16"}), "--limit", "80", hook=None)
    assert result.code == 0, result.stderr
    resolved = standard.record("run.json")["resolved"]
    assert 0 < resolved["rescore_margin"] < 2 * SCORE_TOLERANCES["bf16"]
    assert "will be scored again in fp32" in result.stderr
    table, exact = standard.table(), finished_by_model.table
    assert table["label"].to_list() == exact["label"].to_list()
    num_rescored = int(table["rescored"].sum())
    assert 0 < num_rescored < 80
    summary = standard.record("summary.json")
    assert (summary["num_rescored"], summary["exact_s"] > 0) == (num_rescored, True)
    assert f"scored again in fp32: {num_rescored}" in result.stdout
    again, others = table.filter("rescored"), table.filter(~pl.col("rescored") & (pl.col("status") == "ok"))
    both = exact.join(again, on=["source_file", "source_row"], how="semi")
    np.testing.assert_allclose(np.array(again["scores"].to_list()), np.array(both["scores"].to_list()), atol=1e-6)
    ranked = np.sort(np.array(others["scores"].to_list()), axis=1)
    assert (ranked[:, -1] - ranked[:, -2] > resolved["rescore_margin"]).all()
    # Without it the scores are others: another run.
    job = standard.job(engine={"precision": "bf16", "rescore_close": False})
    refused = standard.run("run", job, "--limit", "80", hook=None)
    assert refused.code == 6, refused.stderr
    assert "engine.rescore_close: begun with true, now false" in refused.stderr


@pytest.mark.slow
def test_half_precision_gives_the_same_clear_labels(standard: Workshop, finished_by_model: Finished) -> None:
    """In bf16 scores lie near those of fp32, and a label is another one only where two nearly tie (case Z10)."""
    job = standard.job(engine={"precision": "bf16", "rescore_close": False})
    result = standard.run("run", job, "--limit", "80", hook=None)
    assert result.code == 0, result.stderr
    assert "another one may win than in fp32" in result.stderr
    assert (
        json.loads(pq.read_metadata(standard.output / "scores/part-00000.parquet").metadata[b"batchzs"])["precision"]
        == "bf16"
    )
    tables = [table.filter(pl.col("status") == "ok") for table in (standard.table(), finished_by_model.table)]
    coarse, fine = (np.array(table["scores"].to_list()) for table in tables)
    tolerance = SCORE_TOLERANCES["bf16"]
    assert 0 < np.abs(coarse - fine).max() < tolerance
    ranked = np.sort(fine, axis=1)
    is_clear = ranked[:, -1] - ranked[:, -2] >= tolerance
    assert is_clear.sum() > 20
    assert (coarse.argmax(axis=1) == fine.argmax(axis=1))[is_clear].all()
