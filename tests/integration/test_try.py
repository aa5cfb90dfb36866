"""`batchzs try`: texts scored and shown by the real command, and nothing written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import sample_data.make_news
from batchzs.display_width import display_width
from tests.integration.conftest import LABELS

if TYPE_CHECKING:
    from tests.integration.conftest import Workshop

SAMPLES = Path(sample_data.make_news.__file__).parent
TOPICS = ["文化", "体育", "娱乐", "财经", "家居", "汽车", "教育", "科技", "军事"]


def names_of(workshop: Workshop) -> list[str]:
    """Everything in the workshop's folder."""
    return sorted(str(path.relative_to(workshop.folder)) for path in workshop.folder.rglob("*"))


def test_rows_of_the_input_are_shown_with_their_runs_scores(done: Workshop) -> None:
    """The first rows, empty ones as such, in the order and with the numbers of the run; not a file is touched."""
    before = done.moments()
    ended = done.run("try", done.standard_job, "--rows", "14", "--json")
    assert ended.code == 0, ended.stderr
    table = done.table()
    entries = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [entry["source_row"] for entry in entries] == list(range(14))
    assert [entry["status"] for entry in entries] == table["status"].to_list()[:14]
    assert entries[12]["status"] == "empty"
    for entry, label, scores in zip(entries, table["label"], table["scores"], strict=False):
        (wording,) = entry["wordings"]
        assert wording["label"] == label
        if scores is not None:
            assert {one["label"]: one["score"] for one in wording["scores"]} == dict(
                zip(LABELS, scores.to_list(), strict=True)
            )
    assert done.moments() == before


def test_wordings_stand_side_by_side(standard: Workshop) -> None:
    """Two templates and other labels on given texts; no output comes of it, and no line is too wide."""
    before = names_of(standard)
    texts = ["--text", "新闻\x1b[2J\n二", "--text", "观众" * 300]
    wordings = ["--template", "这是{}", "--template", "{}", "--label", "体育", "--label", "娱乐=观众的新闻"]
    ended = standard.run("try", standard.standard_job, *texts, *wordings, extra={"COLUMNS": "80"})
    assert ended.code == 0, ended.stderr
    assert names_of(standard) == before
    lines = ended.stdout.splitlines()
    assert "wording 1   这是{}" in lines
    assert "    新闻\\x1b[2J\\n二" in lines
    assert max(map(display_width, lines)) <= 80
    (head, *_) = [line for line in lines if "1 这是{}" in line]
    assert "2 {}" in head
    assert sum(line.startswith("    体育") for line in lines) == 2
    assert "█" in ended.stdout
    assert "\x1b" not in ended.stdout  # no terminal, no bold
    plain = standard.run("try", standard.standard_job, *texts, extra={"LC_ALL": "C"})
    assert "#" in plain.stdout
    assert not set("█▏▎▍▌▋▊▉…") & set(plain.stdout)


@pytest.mark.slow
def test_wordings_are_held_against_the_truth(workshop: Workshop) -> None:
    """The sample model on sample news: nearly all right, unknown and missing truths named, in text and in JSON."""
    news = pl.read_parquet(SAMPLES / "news.parquet").drop_nulls("topic")
    news = news.filter(pl.col("text").str.len_chars() < 40).head(60)
    truths = [*news["topic"].to_list()[:-3], "天气", None, " "]
    news.with_columns(topic=pl.Series(truths)).write_parquet(workshop.folder / "新闻.parquet")
    job = workshop.job(
        input={"path": "新闻.parquet", "keep": []}, labels=TOPICS, model={"path": str(SAMPLES / "model")}
    )
    arguments = ("try", job, "--truth", "topic", "--template", "这篇文章的标题是{}", "--template", "{}")
    ended = workshop.run(*arguments, hook=None)
    assert ended.code == 0, ended.stderr
    assert "texts       60 of 60 rows, drawn at random with seed 0" in ended.stdout
    assert "2 rows without a true label" in ended.stdout
    assert "天气 1" in ended.stdout
    assert "true \\ given" in ended.stdout
    first, second = map(json.loads, workshop.run(*arguments, "--json", hook=None).stdout.splitlines())
    assert (first["template"], second["template"]) == ("这篇文章的标题是{}", "{}")
    assert first["held"] == 58
    assert first["accuracy_among_labels"] > 0.9
    assert first["interval"][0] < first["accuracy"] < first["interval"][1]
    assert not workshop.output.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--rows", "3", "--sample", "3"], 2, "exclude each other"),
        (["--text", "一", "--rows", "3"], 2, "exclude each other"),
        (["--text", "一", "--truth", "id"], 2, "leave one of the two out"),
        (["--seed", "3"], 2, "--seed goes with --sample"),
        (["--template", "没有"], 2, "exactly one {}"),
        (["--label", "体育", "--label", "体育"], 2, "--label"),
        (["--truth", "主题"], 2, "expected one of: id, text"),
        (["--set", "input.path=/不在/这里.csv"], 3, "there is no such file"),
        (["--set", "model.path=/不在"], 4, "/不在"),
    ],
)
def test_mistakes_are_named(standard: Workshop, arguments: list[str], code: int, message: str) -> None:
    """With the exit code that they have in a run."""
    ended = standard.run("try", standard.standard_job, *arguments)
    assert (ended.code, ended.stdout) == (code, "")
    assert message in ended.stderr


def test_a_reader_that_goes_away_is_no_fault(standard: Workshop) -> None:
    """`| head -1` ends it quietly."""
    ended = standard.run("try", standard.standard_job, "--rows", "100", script='"$@" | head -1')
    assert ended.code == 0
    assert ended.stdout == "texts       the first 100 row(s) of the input, from 2 of 2 file(s)\n"
