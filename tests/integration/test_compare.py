"""`batchzs compare` through the command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from tests.integration.conftest import INPUT

if TYPE_CHECKING:
    from tests.integration.conftest import Workshop


def test_an_output_is_like_itself(done: Workshop) -> None:
    """Code 0, no change, nothing moved; cut into other shards as well."""
    job = done.job("二.yaml", output={"path": "二", "shard_rows": 33})
    assert done.run("run", job).code == 0
    for new in (done.output, done.folder / "二"):
        result = done.run("compare", done.output, new, "--rows", "5", "--json", hook=None)
        assert (result.code, result.stderr) == (0, "")
        found = json.loads(result.stdout)
        assert (found["rows"], found["changed"], found["changes"], found["most_moved"]) == (150, 0, [], [])
        assert found["largest_move"] == 0
        assert all(one["old_share"] == one["new_share"] for one in found["labels"])


@pytest.mark.slow
def test_another_template(done: Workshop) -> None:
    """What changed, how the shares drifted and which rows moved most are what the two tables say; code 9."""
    job = done.job("二.yaml", output={"path": "二", "shard_rows": 41}, template="说的是{}")
    assert done.run("run", job).code == 0
    result = done.run("compare", done.output, done.folder / "二", "--rows", "4", "--json", hook=None)
    assert result.code == 9
    found = json.loads(result.stdout)
    old, new = done.table(), done.table(done.folder / "二")
    differs = old["label"].ne_missing(new["label"])
    assert found["changed"] == differs.sum() > 0
    assert f"{differs.sum()} of 150 rows have other labels" in result.stderr
    changes = {(one["from"], one["to"]): one["rows"] for one in found["changes"]}
    pairs = list(zip(old["label"].to_list(), new["label"].to_list(), strict=True))
    assert changes == {pair: pairs.count(pair) for pair in pairs if pair[0] != pair[1]}
    scored = old["label"].is_not_null().sum()
    for one in found["labels"]:
        assert one["old_share"] == (old["label"] == one["label"]).sum() / scored
        assert one["new_rows"] == (new["label"] == one["label"]).sum()
    ok = old["scores"].is_not_null()
    scores = [np.array(table["scores"].filter(ok).to_list()) for table in (old, new)]
    moved = np.abs(scores[0] - scores[1]).max(axis=1)
    most = np.argsort(-moved, kind="stable")[:4]
    places = old.filter(ok)[most]
    assert [(one["source_file"], one["source_row"]) for one in found["most_moved"]] == list(
        zip(places["source_file"].to_list(), places["source_row"].to_list(), strict=True)
    )
    assert [one["moved"] for one in found["most_moved"]] == moved[most].tolist()
    texts = {("part-2.csv", row): text for row, text in enumerate(done.texts[:70])}
    texts |= {("part-10.csv", row): text for row, text in enumerate(done.texts[70:])}
    for one in found["most_moved"]:
        assert one["text"] == texts[one["source_file"], one["source_row"]]
    shown = done.run("compare", done.output, done.folder / "二", "--rows", "4", hook=None).stdout
    assert "from" in shown
    assert "drift" in shown


@pytest.mark.slow
def test_texts_are_escaped_or_absent(done: Workshop) -> None:
    """An escape sequence in a text does nothing to a terminal; without the input there are positions alone."""
    (done.folder / "坏.csv").write_text("text\n\x1b[2J甲\n乙\n", encoding="utf-8")
    source = {"path": "坏.csv", "keep": []}
    for name, template in (("一", "说的是{}"), ("二", "{}")):
        job = done.job(f"{name}.yaml", input=source, output={"path": name}, template=template)
        assert done.run("run", job).code == 0
    shown = done.run("compare", done.folder / "一", done.folder / "二", "--rows", "2", hook=None).stdout
    assert "\x1b" not in shown
    assert "\\x1b[2J甲" in shown
    (done.folder / "坏.csv").unlink()
    shown = done.run("compare", done.folder / "一", done.folder / "二", "--rows", "2", hook=None).stdout
    assert "(not read)" in shown
    assert "texts of 坏.csv are not shown" in shown


def test_multi_label_sets_and_thresholds(done: Workshop) -> None:
    """In multi-label a row differs where its labels do; `decide` makes the other side."""
    for name, threshold in (("一", "0.5"), ("二", "0.8")):
        options = ("--multi-label", "--threshold", threshold)
        assert done.run("decide", done.output, "--to", done.folder / name, *options, hook=None).code == 0
    result = done.run("compare", done.folder / "一", done.folder / "二", "--json", hook=None)
    assert result.code == 9
    found = json.loads(result.stdout)
    tables = [done.table(done.folder / name) for name in ("一", "二")]
    sets = [[set(row or ()) for row in table["labels"].to_list()] for table in tables]
    assert found["changed"] == sum(one != other for one, other in zip(*sets, strict=True)) > 0
    assert found["changed_best"] == 0


@pytest.mark.slow
def test_files_in_another_order_and_other_rows(done: Workshop) -> None:
    """Rows are matched by file and number; other rows are refused with how many of each."""
    files = [str(done.folder / INPUT / name) for name in ("part-10.csv", "part-2.csv")]
    folder = {"path": [files[0], files[1]]}
    assert done.run("run", done.job("二.yaml", input=folder, output={"path": "二"})).code == 0
    other_way = {"path": [files[1], files[0]]}
    assert done.run("run", done.job("三.yaml", input=other_way, output={"path": "三", "shard_rows": 31})).code == 0
    result = done.run("compare", done.folder / "二", done.folder / "三", hook=None)
    assert result.code == 0, result.stderr
    job = done.job("四.yaml", output={"path": "四"})
    assert done.run("run", job, "--sample", "40").code == 0
    result = done.run("compare", done.output, done.folder / "四", hook=None)
    assert result.code == 2
    assert "40 are in both, 110 in the first alone, 0 in the second alone" in result.stderr


@pytest.mark.slow
def test_without_all_scores(done: Workshop) -> None:
    """Labels and best scores alone are compared as well."""
    for name, threshold in (("一", None), ("二", 0.6)):
        job = done.job(f"{name}.yaml", output={"path": name, "scores": "none", "logits": False}, threshold=threshold)
        assert done.run("run", job).code == 0
    result = done.run("compare", done.folder / "一", done.folder / "二", "--json", hook=None)
    assert result.code == 9
    found = json.loads(result.stdout)
    table = done.table(done.folder / "二")
    assert found["changed"] == (table["score"].is_not_null() & table["label"].is_null()).sum() > 0
    assert found["moved_by"] == "best_score"
    assert {one["to"] for one in found["changes"]} == {None}


@pytest.mark.slow
def test_a_damaged_shard_and_an_unfinished_output(done: Workshop) -> None:
    """Both are said, and no number is shown."""
    assert done.run("run", done.job("二.yaml", output={"path": "二"})).code == 0
    path = done.folder / "二/scores/part-00003.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    result = done.run("compare", done.output, done.folder / "二", hook=None)
    assert (result.code, result.stdout, "part-00003.parquet" in result.stderr) == (9, "", True)
    pl.read_parquet(done.output / "scores/part-00002.parquet", glob=False).write_parquet(path)
    result = done.run("compare", done.output, done.folder / "二", hook=None)
    assert (result.code, "does not hold the rows" in result.stderr) == (9, True)
    path.unlink()
    result = done.run("compare", done.output, done.folder / "二", hook=None)
    assert (result.code, "is not finished (1 of 8" in result.stderr) == (2, True)
