"""`batchzs report` through the command: where the page goes, what it holds, and what is refused."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Workshop

WITHOUT_NETWORK = {"GUARD_NETWORK": "1", "GUARD_FORBIDS": "torch"}


def test_a_page_of_a_real_run(done: Workshop) -> None:
    """The page lies in the output beside the shards, holds the input's texts, and leaves everything else as it was."""
    before = done.moments()
    result = done.run("report", done.output, extra=WITHOUT_NETWORK)
    assert (result.code, result.stderr) == (0, "")
    path = done.output / "report.html"
    assert result.stdout == f"{path}\n"
    page = path.read_text(encoding="utf-8")
    assert "150 of 150 rows" in page
    assert "体育,球赛" in page
    assert "降准,利好,股市" in page  # a quarantined record, as the input has it
    assert "These scores are made up" in page  # the stand-in's
    assert done.moments() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    assert done.findings() == []
    # Beginning anew removes it: it would be about another run's results.
    assert done.run("run", done.standard_job, "--restart").code == 0
    assert not path.exists()


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_numbers_as_json(done: Workshop) -> None:
    """One object; no page is written; with no rows asked for it holds no text."""
    result = done.run(
        "report", done.output, "--json", "--rows", "0", extra={"GUARD_FORBIDS": "torch altair vl_convert"}
    )
    assert (result.code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert (found["num_rows"], found["state"], found["num_shards_done"]) == (done.num_rows, "finished", done.num_shards)
    assert found["statuses"] == {"bad_record": 2, "empty": 4, "ok": 144}
    assert found["least_certain"] == []
    assert "同一条新闻" not in result.stdout
    assert not (done.output / "report.html").exists()


@pytest.mark.slow
def test_in_the_middle_of_a_run(standard: Workshop) -> None:
    """What is published is reported, and that it is not all."""
    hook = {"stand_in": True, "crash": "shard-published:4"}
    assert standard.run("run", standard.standard_job, hook=hook).code == -9
    result = standard.run("report", standard.output, "--to", standard.folder / "页 1.html")
    assert (result.code, result.stderr) == (0, "")
    page = (standard.folder / "页 1.html").read_text(encoding="utf-8")
    assert "This run is not finished." in page
    assert "4 of 8 shards" in page


def test_without_the_input(done: Workshop) -> None:
    """An input that is gone costs the texts and nothing else."""
    for path in done.input.iterdir():
        path.unlink()
    result = done.run("report", done.output, "--to", "page.html")
    assert (result.code, result.stderr) == (0, "")
    page = (done.folder / "page.html").read_text(encoding="utf-8")
    assert "(text not read)" in page
    assert "part-2.csv</bdi> are not shown: " in page


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (".", "is a folder: name a file in it"),
        ("/dev/null", "is no ordinary file"),
        ("no/such/folder/page.html", "there is no folder"),
        ("{output}/scores/page.html", "lies among the run's own files"),
        ("{output}/state/run.json", "lies among the run's own files"),
    ],
)
def test_places_where_no_page_goes(done: Workshop, target: str, words: str) -> None:
    """They are refused before anything is counted, and nothing there changes."""
    before = done.moments()
    result = done.run("report", done.output, "--to", target.format(output=done.output))
    assert result.code == 2
    assert words in result.stderr
    assert done.moments() == before


@pytest.mark.slow
def test_a_link_in_the_pages_place_is_replaced(done: Workshop) -> None:
    """Inside the output nothing is written through a link; elsewhere `--to` follows one, as it was told to."""
    victim = done.folder / "victim"
    victim.write_text("mine", encoding="utf-8")
    (done.output / "report.html").symlink_to(victim)
    assert done.run("report", done.output).code == 0
    assert victim.read_text(encoding="utf-8") == "mine"
    assert not (done.output / "report.html").is_symlink()
    (done.folder / "link.html").symlink_to(victim)
    assert done.run("report", done.output, "--to", "link.html").code == 0
    assert victim.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_what_is_no_output(workshop: Workshop) -> None:
    """A folder without a run is a wrong command line."""
    result = workshop.run("report", workshop.folder)
    assert result.code == 2
    assert "holds no run of batchzs" in result.stderr


def test_a_damaged_shard_is_named(done: Workshop) -> None:
    """No page is made of half an output."""
    path = done.output / "scores/part-00005.parquet"
    path.write_bytes(path.read_bytes()[:500])
    result = done.run("report", done.output)
    assert result.code == 9
    assert "part-00005.parquet: is no sound shard of this run" in result.stderr
    assert not (done.output / "report.html").exists()


@pytest.mark.slow
def test_labels_held_against_the_truth(standard: Workshop) -> None:
    """The numbers are those of `decide --truth`; a label below the threshold is none; the page has them."""
    lines = [f"第{row}条新闻,{('体育', '财经', '')[row % 3]}" for row in range(60)]
    (standard.folder / "带标签.csv").write_text("text,topic\n" + "\n".join(lines) + "\n", encoding="utf-8")
    job = standard.job(input={"path": "带标签.csv", "keep": []}, threshold=0.7)
    assert standard.run("run", job).code == 0
    options = ("--truth", "topic", "--precision", "0.2", "--json")
    decided, reported = (
        json.loads(standard.run(command, standard.output, *options, hook=None).stdout)["truth"]
        for command in ("decide", "report")
    )
    assert reported == {"column": "topic", **decided}
    assert (reported["rows"], reported["unknown"]) == (40, 20)
    labels = standard.table()["label"].to_list()
    assert (
        sum(pair["rows"] for pair in reported["confusions"] if pair["given"] is None)
        == (labels[0::3] + labels[1::3]).count(None)
        > 0
    )
    assert standard.run("report", standard.output, *options[:4], hook=None).code == 0
    page = (standard.output / "report.html").read_text(encoding="utf-8")
    assert "40 scored rows have a true label, 20 have none" in page
    refused = standard.run("report", standard.output, "--precision", "0.9", hook=None)
    assert (refused.code, "--precision goes with --truth COLUMN" in refused.stderr) == (2, True)
