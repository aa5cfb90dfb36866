r"""`batchzs bad` through the command: which rows were quarantined, why, and on request what the input has there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Workshop

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b1A"
PRIVATE = "内部消息"


def write_dirty_csv(workshop: Workshop) -> None:
    """Good rows, a ragged one with escape sequences, one of two lines, one in another encoding."""
    lines = [
        "id,text\n",
        "1,股市上涨\n",
        f"2,{PRIVATE},{ESCAPES}\n",
        "\n",
        f'3,"{PRIVATE}\n第二行",多\n',
        "4,\n",
    ]
    content = "".join(lines).encode() + "5,降准利好\n".encode("gb18030") + "6,球队\n".encode()
    (workshop.folder / "脏.csv").write_bytes(content)


def write_dirty_jsonl(workshop: Workshop) -> None:
    """Good rows, one that is no JSON, one whose text is a number."""
    lines = ['{"id": "1", "text": "股市"}', f'{{"text": "{PRIVATE}\x1b[2J', "", '{"text": 7}', '{"text": "球队"}']
    (workshop.folder / "脏.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def finish(workshop: Workshop, name: str) -> None:
    """Score a file."""
    result = workshop.run("run", workshop.job(input={"path": name, "keep": [], "max_bad_share": 1.0}))
    assert result.code == 0, result.stderr


def test_a_dirty_csv(workshop: Workshop) -> None:
    """Each bad row with its place and its reason, a count by kind, and no text unless it is asked for."""
    write_dirty_csv(workshop)
    finish(workshop, "脏.csv")
    result = workshop.run("bad", workshop.output, extra={"GUARD_FORBIDS": "torch"})
    assert (result.code, result.stderr) == (0, "")
    *rows, count = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[:3] for row in rows] == [
        ["脏.csv", "1", "bad_record"],
        ["脏.csv", "2", "bad_record"],
        ["脏.csv", "4", "bad_encoding"],
    ]
    assert rows[0][3] == "脏.csv:3: found 3 fields, expected 2"
    assert count == ["3 rows quarantined: bad_encoding 1, bad_record 2"]
    assert PRIVATE not in result.stdout

    result = workshop.run("bad", workshop.output, "--texts")
    assert result.code == 0
    texts = [line.split("\t")[4] for line in result.stdout.splitlines()[:-1]]
    assert texts[0] == rf"2,{PRIVATE},\x1b]0;owned\x07\x1b[2J\x9b1A"
    assert texts[1] == rf'3,"{PRIVATE}\n第二行",多'
    assert texts[2].startswith("5,\ufffd")
    assert not set(result.stdout) & {"\x1b", "\x07", "\x9b"}


def test_a_dirty_jsonl(workshop: Workshop) -> None:
    """The same for JSON Lines, with one object a line that reads back as it was."""
    write_dirty_jsonl(workshop)
    finish(workshop, "脏.jsonl")
    result = workshop.run("bad", workshop.output, "--json")
    assert result.code == 0
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["source_row"], row["status"]) for row in found] == [(1, "bad_record"), (2, "bad_type")]
    assert set(found[0]) == {"source_file", "source_row", "status", "reason"}
    assert "2 rows quarantined" in result.stderr
    assert PRIVATE not in result.stdout + result.stderr
    result = workshop.run("bad", workshop.output, "--json", "--texts")
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == [
        f'{{"text": "{PRIVATE}\x1b[2J',
        '{"text": 7}',
    ]
    assert "\x1b" not in result.stdout


def test_rows_without_a_finite_score_have_their_text(workshop: Workshop) -> None:
    """A row that the model gave up on was read well: its text is shown, not its record."""
    lines = [json.dumps({"text": f"第{row}条\n新闻"}, ensure_ascii=False) for row in range(12)]
    (workshop.folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    job = workshop.job(input={"path": "a.jsonl", "keep": [], "max_bad_share": 1.0})
    assert workshop.run("run", job, hook={"stand_in": True, "nan_every": 4}).code == 0
    result = workshop.run("bad", workshop.output, "--texts")
    *rows, count = result.stdout.splitlines()
    assert count == f"{len(rows)} rows quarantined: non_finite {len(rows)}"
    assert 0 < len(rows) < 12
    for row in rows:
        _, number, _, _, text = row.split("\t")
        assert text == rf"第{number}条\n新闻"


def test_nothing_quarantined(done: Workshop) -> None:
    """Empty texts are no damage; where there is none, that is said."""
    result = done.run("run", done.standard_job, "--limit", "20", "--set", "output.path=out")
    assert result.code == 0
    result = done.run("bad", done.folder / "out")
    assert (result.code, result.stdout) == (0, "nothing is quarantined\n")


def test_in_the_middle_of_a_run(standard: Workshop) -> None:
    """The shards that are there are listed, and how many are not."""
    hook = {"stand_in": True, "crash": "shard-published:4"}
    assert standard.run("run", standard.standard_job, hook=hook).code == -9
    result = standard.run("bad", standard.output)
    assert result.code == 0
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [
        "part-2.csv",
        "1 row quarantined: bad_record 1",
        "4 of 8 shards are not there yet: their rows are not listed",
    ]


def test_an_input_that_is_gone_or_changed(done: Workshop) -> None:
    """The rows are listed, and why their texts are not shown; the other files' texts are."""
    (done.input / "part-2.csv").write_text("id,text\n" + "1,别的\n" * 70, encoding="utf-8")
    result = done.run("bad", done.output, "--texts")
    assert result.code == 0
    lines = result.stdout.splitlines()
    assert lines[0].endswith("\t(not read)")
    assert lines[1].split("\t")[4] == ",降准,利好,股市"
    assert "part-2.csv: has changed since this output was begun" in lines[3]
    assert len(lines) == 4


@pytest.mark.parametrize("damage", ["cut", "another file"])
def test_a_damaged_shard_is_named(done: Workshop, damage: str) -> None:
    """What can be listed is listed; then the damaged shard ends the command with code 9."""
    path = done.output / "scores/part-00005.parquet"
    path.write_bytes(path.read_bytes()[:500] if damage == "cut" else b"PAR1 no such thing PAR1")
    result = done.run("bad", done.output)
    assert result.code == 9
    assert "part-00005.parquet: cannot be read as a shard of this run" in result.stderr
    assert result.stdout.startswith("part-2.csv\t51\tbad_record\t")


def test_a_reader_that_leaves_early(done: Workshop) -> None:
    """`batchzs bad OUTPUT | head -1` ends without an error."""
    result = done.run("bad", done.output, script='"$@" | head -1')
    assert result.code == 0
    assert result.stdout.startswith("part-2.csv\t51\t")
