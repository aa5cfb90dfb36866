"""`batchzs init` writes a job file that `plan` and `run` take, for files as people have them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.integration.conftest import TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Ended, Workshop

TEXTS = [
    "央行宣布下调存款准备金率，市场反应积极",
    "球队在主场取得胜利，观众欢呼",
    "新片上映首日票房过亿",
    "博物馆举办特展",
]
ROWS = [{"news_id": f"{number:03d}", "topic": "新闻", "标题": text} for number, text in enumerate(TEXTS)]

#: Runs the command on a terminal of its own and answers what it asks.
AT_A_TERMINAL = """
import os, pty, sys

pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-m", "batchzs", *sys.argv[1:]])
shown = b""
for asked, answer in (("标题]: ", ""), ("with them: ", "财经,体育"), ("): ", "ticket")):
    start = len(shown)
    while asked.encode() not in shown[start:]:
        shown += os.read(terminal, 4096)
    os.write(terminal, answer.encode() + b"\\n")
try:
    while os.read(terminal, 4096):
        pass
except OSError:  # how a terminal's end reads
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def lines(delimiter: str, *, header: bool = True) -> str:
    """Write the rows as delimited text."""
    rows = [list(row.values()) for row in ROWS]
    return "".join(delimiter.join(row) + "\n" for row in ([list(ROWS[0])] if header else []) + rows)


def init(shop: Workshop, source: Path, *options: str) -> Ended:
    """Run `init` with labels, kind and model given."""
    given = ["--labels", "财经,体育，娱乐", "--kind", "headline", "--model", str(shop.model), *options]
    return shop.run("init", source, *given)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("新闻 [1].csv", lines(",").encode(), "标题"),
        ("gbk.csv", lines(";").encode("gbk"), "标题"),
        ("utf16.csv", lines(",").encode("utf-16"), "标题"),
        ("表.tsv", lines("\t").encode("utf-8-sig"), "标题"),
        ("tabs.csv", lines("\t").encode(), "标题"),
        ("no header.csv", lines(",", header=False).encode(), "column_2"),
        ("dump", lines("|").encode(), "标题"),
        ("标题.txt", "".join(text + '"\n' for text in TEXTS).encode("gb18030"), "column_0"),
        ("a.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS).encode(), "标题"),
        ("b.log", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode(), "标题"),
    ],
)
def test_the_job_reads_every_row(workshop: Workshop, name: str, content: bytes, text: str) -> None:
    """`plan` takes the file that was written, and finds all texts there, none of them damaged or odd."""
    source = workshop.folder / name
    source.write_bytes(content)
    ended = init(workshop, source, "--to", "任务 1.yaml")
    assert ended.code == 0, ended.stderr
    plan = workshop.run("plan", "任务 1.yaml", "--json")
    assert plan.code == 0, plan.stderr + (workshop.folder / "任务 1.yaml").read_text(encoding="utf-8")
    found = json.loads(plan.stdout)
    assert (found["input"]["rows"], found["texts"]["damaged"], found["texts"]["empty"]) == (len(TEXTS), 0, 0)
    assert found["texts"]["suspects"] == []
    assert [one["text"] for one in found["hypotheses"]] == [
        f"这篇文章的标题是{one}" for one in ("财经", "体育", "娱乐")
    ]
    job = (workshop.folder / "任务 1.yaml").read_text(encoding="utf-8")
    assert f"text: {text} " in job or f'text: "{text}"' in job


def test_a_parquet_file_is_run_as_it_says(workshop: Workshop) -> None:
    """The name of the job, the kept id, and the next commands; the last of them works."""
    pl.DataFrame(ROWS).write_parquet(workshop.folder / "news.parquet")
    ended = init(workshop, workshop.folder / "news.parquet")
    assert ended.code == 0, ended.stderr
    assert "batchzs plan news.yaml" in ended.stdout
    done = workshop.run("run", "news.yaml")
    assert done.code == 0, done.stderr
    assert workshop.table(workshop.folder / "out" / "news")["news_id"].to_list() == ["000", "001", "002", "003"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--labels and --kind: missing"),
        (["--labels", "a"], "--kind: missing"),
        (["--labels", "a", "--kind", "poem"], "poem"),
        (["--labels", "a", "--kind", "post", "--text", "no"], "no column no; its columns are: news_id, topic, 标题"),
        (["--labels", "a", "--kind", "post", "--keep", "topic,x"], "no column x"),
        (["--labels", "l.txt", "--kind", "post"], "no such file"),
        (["--labels", "a,a", "--kind", "post"], "the same name"),
        (["--labels", "a", "--kind", "post", "--model", "nowhere"], "nowhere"),
        (["--labels", "a", "--kind", "post", "--to", "news.csv"], "--force"),
    ],
)
def test_what_is_missing_or_wrong_is_named(workshop: Workshop, options: list[str], message: str) -> None:
    """Without a terminal nothing is asked; no file is left behind, and none is lost."""
    source = workshop.folder / "news.csv"
    source.write_text(lines(","), encoding="utf-8")
    ended = workshop.run("init", source, *options)
    assert ended.code == 2
    assert message in ended.stderr
    assert [path.name for path in workshop.folder.iterdir()] == ["news.csv"]
    assert source.read_text(encoding="utf-8") == lines(",")


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01\x02\xff" * 50])
def test_an_input_that_is_none_ends_with_3(workshop: Workshop, content: Any) -> None:
    """Missing, empty, or no text."""
    source = workshop.folder / "x.csv"
    if content is not None:
        source.write_bytes(content)
    assert init(workshop, source).code == 3


def test_a_terminal_is_asked(workshop: Workshop) -> None:
    """What no option says is asked for, with the guessed column for a default."""
    source = workshop.folder / "news.csv"
    source.write_text(lines(","), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", AT_A_TERMINAL, "init", source, "--model", workshop.model],
        cwd=workshop.folder,
        env=workshop.environment(None, None),
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0
    job = (workshop.folder / "news.yaml").read_text(encoding="utf-8")
    assert "labels: [财经, 体育]" in job
    assert "这条工单反映的问题是{}" in job
