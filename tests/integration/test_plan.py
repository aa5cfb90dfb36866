"""`batchzs plan` says what a run will take, and the run then takes it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sample_data.make_news
from batchzs.display_width import display_width
from tests.integration.conftest import BAD_ROWS, INPUT, LABELS, NUM_ROWS, NUM_SHARDS, SHARD_ROWS

if TYPE_CHECKING:
    from tests.integration.conftest import Workshop

SAMPLES = Path(sample_data.make_news.__file__).parent
NO_WEIGHTS = {"GUARD_FORBIDS": "torch transformers modelscope", "GUARD_NETWORK": "1"}


def planned(shop: Workshop, *options: str | Path, **settings: Any) -> Any:
    """Run `plan --json` to a good end and read what it prints."""
    ended = shop.run("plan", shop.standard_job, "--json", *options, **settings)
    assert ended.code == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_counts_are_those_of_the_run(done: Workshop) -> None:
    """Rows, shards, empty and damaged rows, pairs and tokens: to the last one where every text is read."""
    plan = planned(done, hook=None, extra=NO_WEIGHTS)
    summary = done.record("summary.json")
    assert plan["texts"]["exact"]
    assert plan["input"]["rows"] == NUM_ROWS
    assert plan["shards"] == [SHARD_ROWS] * (NUM_SHARDS - 1) + [NUM_ROWS % SHARD_ROWS]
    assert plan["texts"]["damaged"] == summary["num_quarantined"] == len(BAD_ROWS)
    assert plan["texts"]["empty"] == summary["num_empty"]
    assert plan["texts"]["truncated"] == summary["num_truncated"]
    assert (plan["pairs"], plan["pair_tokens"]) == (summary["num_pairs"], summary["num_tokens"])
    assert any("a run was begun there already" in warning for warning in plan["warnings"])


def test_the_page_fits_a_terminal_and_nothing_is_written(standard: Workshop) -> None:
    """80 columns, every hypothesis on a line of its own, and the folder stays as it was."""
    before = sorted(standard.folder.rglob("*"))
    ended = standard.run("plan", standard.standard_job, hook=None, extra=NO_WEIGHTS)
    assert ended.code == 0, ended.stderr
    assert sorted(standard.folder.rglob("*")) == before
    lines = ended.stdout.splitlines()
    assert all(display_width(line) <= 80 for line in lines)
    assert all(any(f"这篇文章的标题是{label}" in line for line in lines) for label in LABELS)
    assert any(line.startswith("shards       8 of 20 rows at most") for line in lines)


def test_a_limit_makes_it_the_plan_of_those_rows(standard: Workshop) -> None:
    """As `run` would take them."""
    plan = planned(standard, "--limit", "30")
    assert plan["input"]["selected"] == plan["texts"]["read"] == 30
    assert plan["shards"] == [20, 10]


@pytest.mark.slow
def test_a_probe_measures_and_says_how_long_tasks_take(standard: Workshop) -> None:
    """On the real model, for 1, 2, 4 and the asked number of tasks; no more tasks help than there are shards."""
    plan = planned(standard, "--probe", "--tasks", "12", "--limit", "60", hook=None)
    assert plan["speed"]["tokens_per_s"] > 0
    assert plan["speed"]["precision"] == "fp32"
    assert [one["num_tasks"] for one in plan["times"]] == [1, 2, 4, 8, 12]
    assert [one["most_shards"] for one in plan["times"]] == [3, 2, 1, 1, 1]
    assert plan["times"][-1]["time_s"] == plan["times"][-2]["time_s"] <= plan["times"][0]["time_s"]
    assert not standard.output.exists()


def test_odd_wording_and_odd_texts_are_named(workshop: Workshop) -> None:
    """One label with a comma in it, and rows by file and number, never by their text."""
    (workshop.folder / INPUT).mkdir()
    texts = ["财经新闻", "浣犲ソ锛屼笘鐣\x1b[2J", "caf\u00c3\u00a9", ""]
    rows = "".join(f'"{text}"\n' for text in texts)
    (workshop.folder / INPUT / "甲.csv").write_text(f"text\n{rows}", encoding="utf-8")
    job = workshop.job(labels=["文化，体育"], input={"path": INPUT, "text": "text", "keep": []})
    ended = workshop.run("plan", job)
    assert ended.code == 0, ended.stderr
    assert "plain commas" in ended.stdout
    assert "UTF-8 read as GBK" in ended.stdout
    assert "甲.csv row 1" in ended.stdout
    assert "\x1b" not in ended.stdout
    assert "caf" not in ended.stdout


@pytest.mark.parametrize(
    ("changes", "options", "code", "message"),
    [
        ({}, ["--tasks", "4"], 2, "--probe"),
        ({"input": {"path": "nothing.csv"}}, [], 3, "no such file"),
        ({"model": {"path": "nowhere"}}, [], 4, "no such model directory"),
        ({"engine": {"max_length": 4096}}, [], 2, "takes at most"),
    ],
)
def test_what_a_run_refuses_is_refused(
    standard: Workshop, changes: dict[str, Any], options: list[str], code: int, message: str
) -> None:
    """With the same exit code, before anything takes long."""
    ended = standard.run("plan", standard.job(**changes), *options, hook=None, extra=NO_WEIGHTS)
    assert ended.code == code
    assert message in ended.stderr


def test_a_hub_model_that_is_not_on_disk_is_not_fetched(standard: Workshop) -> None:
    """Only `run` and `fetch` connect."""
    job = standard.job(model={"path": None, "id": "owner/name", "cache_dir": "模型"})
    ended = standard.run("plan", job, hook=None, extra={"GUARD_NETWORK": "1"})
    assert ended.code == 4
    assert "fetch" in ended.stderr


@pytest.mark.slow
def test_memory_is_that_of_a_run(workshop: Workshop) -> None:
    """What a run on the sample model holds at its peak is what was said, to two fifths."""
    job = workshop.job(
        input={"path": str(SAMPLES / "news.parquet"), "text": "text", "keep": ["id"]},
        model={"path": str(SAMPLES / "model")},
        engine={"workers": 2, "max_batch_tokens": "auto"},
        output={"path": "记忆", "shard_rows": "auto"},
    )
    ended = workshop.run("plan", job, "--json", "--limit", "3000", hook=None)
    assert ended.code == 0, ended.stderr
    running = workshop.start("run", job, "--limit", "3000", hook=None)
    peak = 0
    while not running.has_ended:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{running.process_id}/status").read_text())
        peak = int(found[1]) * 1024 if found else peak
        time.sleep(0.02)
    assert running.end().code == 0
    assert json.loads(ended.stdout)["memory_bytes"] == pytest.approx(peak, rel=0.4)
