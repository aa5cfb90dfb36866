"""Cron and containers: bare environments, odd locales, closed streams, no network; the shards are always the same."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.integration.surroundings import HUB_ID, cache_model

if TYPE_CHECKING:
    from tests.integration.conftest import Finished, Workshop

HEAVY = "torch transformers modelscope polars pyarrow numpy tokenizers pydantic"


def test_a_bare_environment(standard: Workshop, finished: Finished) -> None:
    """No HOME, no PATH, the C locale with UTF-8 mode off, an ASCII stream, cwd /: Chinese names work (cases S6, S7)."""
    environment = standard.environment({"stand_in": True}, None)
    for name in ("HOME", "PATH", "LANG"):
        del environment[name]
    environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    result = standard.run("run", standard.standard_job, environment=environment, cwd=Path("/"))
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    assert str(standard.output) in result.stdout
    assert "体育,球赛" in result.stdout
    assert standard.input.name in (standard.state / "inputs.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
        {"PYTHONUTF8": "0", "LC_ALL": "zh_CN.GB18030"},
    ],
    ids=["none", "C", "ASCII streams", "GB18030"],
)
def test_any_locale(standard: Workshop, finished: Finished, environment: dict[str, str]) -> None:
    """Job, names and output are in UTF-8 whatever the locale: the bytes are always the same (case S6)."""
    hook = json.dumps({"stand_in": True})
    result = standard.run("run", standard.standard_job, environment={**environment, "BATCHZS_TEST_HOOK": hook})
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    assert "体育,球赛" in result.stdout


@pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-"])
def test_closed_streams(standard: Workshop, finished: Finished, redirection: str) -> None:
    """Streams that are closed end no run, and no file of the run gets their numbers and stray lines (case S8)."""
    result = standard.run("run", standard.standard_job, script=f'exec "$@" {redirection}')
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    assert "part-00007.parquet: 10 rows published" in (standard.state / "run.log").read_text(encoding="utf-8")


def test_a_cron_job(standard: Workshop, finished: Finished) -> None:
    """All at once: `env -i`, the C locale, UTF-8 mode off, no HOME, cwd /, no standard output, messages to a file."""
    settings = f"LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONPATH='{standard.guard}'"
    hook = json.dumps({"stand_in": True})
    script = f'exec env -i {settings} BATCHZS_TEST_HOOK=\'{hook}\' "$@" >&- 2>> "$LOG"'
    log = standard.folder / "cron 日.log"
    result = standard.run("run", standard.standard_job, script=script, extra={"LOG": str(log)}, cwd=Path("/"))
    assert result.code == 0, log.read_bytes()
    assert standard.is_like(finished)
    for content in (log.read_bytes(), (standard.state / "run.log").read_bytes()):
        text = content.decode("utf-8")
        assert text.endswith("\n")
        assert all(re.match(r"[0-9-]{10} [0-9:]{8} ", line) and line.isprintable() for line in text[:-1].split("\n"))
        assert str(standard.output) in text


def test_a_cron_job_that_overlaps(standard: Workshop, finished: Finished) -> None:
    """The second run leaves with 7 and one line, and nothing of it stands in the first one's log."""
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "pause": "shard-published"})
    running.wait_until_paused()
    second = standard.run("run", standard.standard_job, extra={"LC_ALL": "C"})
    assert second.code == 7, second.stderr
    assert re.fullmatch(r"[0-9-]{10} [0-9:]{8} error: .* another run holds this output \(.*\)\n", second.stderr)
    assert second.stdout == ""
    running.send(signal.SIGTERM)
    running.send(signal.SIGCONT)
    assert running.end().code == 75
    assert "another run" not in (standard.state / "run.log").read_text(encoding="utf-8")
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)


@pytest.mark.parametrize("redirection", ["> /dev/full", "2> /dev/full"])
def test_streams_that_take_nothing(done: Workshop, redirection: str) -> None:
    """A full disk behind a redirected stream costs its lines and not the run: all is in `state/` as well."""
    assert done.run("run", done.standard_job, script=f'exec "$@" {redirection}').code == 0


def test_a_reader_that_went_away(done: Workshop) -> None:
    """`batchzs run ... | head` leaves the exit code alone."""
    done.run("run", done.standard_job, script='("$@"; echo $? > code) | true')
    assert (done.folder / "code").read_text(encoding="utf-8") == "0\n"


def test_messages_in_a_file(finished: Finished) -> None:
    """Where standard error is a file, it holds whole lines and no carriage return, and results stay out of it."""
    assert "\r" not in finished.ended.stderr
    assert finished.ended.stderr.endswith("\n")
    assert "part-00000.parquet: 20 rows published" in finished.ended.stderr
    assert "published" not in finished.ended.stdout


def test_messages_as_json(standard: Workshop, finished: Finished) -> None:
    """With `--log-format json` every line is an object that says what happened, errors included.

    Nothing is loaded for a bar that nobody sees, nor Arrow's functions, which would delay every short run.
    """
    extra = {"GUARD_FORBIDS": "torch tqdm pyarrow.compute"}
    result = standard.run("run", standard.standard_job, "--log-format", "json", extra=extra)
    assert result.code == 0, result.stderr
    entries = [json.loads(line) for line in result.stderr.splitlines()]
    events = [entry["event"] for entry in entries]
    assert events.count("shard_published") == standard.num_shards
    assert events.index("input_frozen") < events.index("scoring_started") < events.index("shard_published")
    assert [entry["rows"] for entry in entries if entry["event"] == "shard_published"] == [20] * 7 + [10]
    assert {entry["level"] for entry in entries} == {"info", "warning"}
    assert standard.is_like(finished)
    refused = standard.run("run", standard.standard_job, "--limit", "5", "--log-format", "json")
    assert refused.code == 6
    assert json.loads(refused.stderr.splitlines()[-1])["level"] == "error"


def test_a_bar_on_a_terminal(standard: Workshop) -> None:
    """A bar shows rows, tokens a second, the batch budget and the time to go; messages stand on lines of their own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "batchzs", "run", standard.standard_job],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=slave,
        env=standard.environment({"stand_in": True, "delay_s": 0.05}, {"TERM": "xterm"}),
    )
    os.close(slave)
    shown = bytearray()
    while True:
        try:
            shown += os.read(master, 4096)
        except OSError:  # how Linux tells that the terminal's other end is closed
            break
    os.close(master)
    assert process.wait(120) == 0
    text = shown.decode()
    bars = [part for part in text.split("\r") if "/150 rows [" in part]
    assert len(bars) > 3
    assert "tokens/s, 600 a batch, 2 quarantined]" in bars[-1]
    assert "100%" in bars[-1]
    assert any("part-00003.parquet: 20 rows published" in part for part in text.replace("\n", "\r").split("\r"))


def test_help_loads_nothing_heavy(workshop: Workshop) -> None:
    """`--help` answers without a heavy library, lists the exit codes, and every command's help has an example."""
    extra = {"GUARD_FORBIDS": HEAVY}
    result = workshop.run("--help", extra=extra)
    assert result.code == 0, result.stderr
    assert "75  stopped on request" in result.stdout
    commands = [
        line.split()[0]
        for line in result.stdout.partition("Commands:")[2].partition("Exit codes")[0].splitlines()
        if line.strip()
    ]
    assert {"run", "fetch"} <= set(commands)
    for command in commands:
        shown = workshop.run(command, "--help", extra=extra)
        assert shown.code == 0, shown.stderr
        assert f"Example:\n    batchzs {command} " in shown.stdout
    assert workshop.run("--version", extra=extra).stdout.startswith("batchzs, version ")


def test_no_network_and_no_home(finished_by_model: Finished) -> None:
    """A local model scores without one attempt to connect, without HOME, and writes only to the output (M1, M3)."""
    assert len(finished_by_model.shards) == 4
    assert (finished_by_model.table["status"] == "ok").sum() == 76


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_no_process_is_forked(standard: Workshop, suffix: str) -> None:
    """Tokenising and reading start threads, and a fork after that may hang for ever: workers are threads (case Z11)."""
    path = standard.folder / f"新闻.{suffix}"
    frame = pl.DataFrame({"id": range(300), "text": [f"第{row}条新闻" for row in range(300)]})
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    engine = {"workers": 2, "max_batch_tokens": 200}
    job = standard.job(input={"path": path.name}, output={"shard_rows": 100}, engine=engine)
    result = standard.run("run", job, hook=None, extra={"GUARD_PROCESSES": "1", "SLURM_CPUS_PER_TASK": "2"})
    assert result.code == 0, result.stderr
    assert standard.table()["status"].to_list() == ["ok"] * 300


def test_fp16_on_a_cpu(standard: Workshop) -> None:
    """It becomes fp32 with a notice; the device and the precision in use are said and recorded (case M4)."""
    result = standard.run("run", standard.job(engine={"precision": "fp16"}), "--limit", "20", hook=None)
    assert result.code == 0, result.stderr
    assert "engine.precision" not in result.stderr
    assert "fp16 is slow on a CPU: scoring in fp32" in result.stderr
    assert "scoring in fp32 on " in result.stderr
    assert standard.record("run.json")["resolved"]["precision"] == "fp32"
    shard = standard.record("shards/part-00000.json")
    assert (shard["device"], shard["precision"]) == ("cpu", "fp32")


@pytest.mark.parametrize("precision", [pytest.param("auto", marks=pytest.mark.slow), "fp16"])
def test_a_run_begun_in_fp16_on_a_gpu(standard: Workshop, precision: str) -> None:
    """The first task's precision holds for all: a node that cannot do it refuses with one line, and changes nothing."""
    job = standard.job(engine={"precision": precision, "device": "cpu"})
    begun = standard.run("run", job, "--limit", "30", "--task", "1/2", hook=None)
    assert begun.code == 0, begun.stderr
    record = standard.record("run.json")
    record["resolved"] |= {"device_kind": "cuda", "precision": "fp16"}
    record["fingerprint"]["scores"]["engine.precision"] = "fp16"
    (standard.state / "run.json").write_text(json.dumps(record), encoding="utf-8")
    before = standard.shards()
    refused = standard.run("run", job, "--limit", "30", "--task", "2/2", hook=None)
    assert refused.code == 8, refused.stderr
    (line,) = [line for line in refused.stderr.splitlines() if "error: " in line]
    assert "this run was begun in fp16 on a GPU, and this machine's device is " in line
    assert "go on where there is a GPU, or begin anew with --restart" in line
    assert standard.shards() == before


@pytest.mark.slow
def test_a_hub_model_in_the_cache(standard: Workshop) -> None:
    """A hub model that is on disk is found without a connection, by `fetch` and by `run`, read-only (case M1)."""
    snapshot = cache_model(standard)
    before = {path: path.stat().st_mtime_ns for path in (standard.folder / "缓存").rglob("*")}
    job = standard.job(model={"path": None, "id": HUB_ID, "cache_dir": "缓存"})
    extra = {"GUARD_NETWORK": "1", "HOME": str(job / "home")}
    fetching = standard.start("fetch", job, hook=None, extra=extra)
    result = standard.run("run", job, "--limit", "30", extra=extra)
    assert result.code == 0, result.stderr
    fetched = fetching.end()
    assert fetched.code == 0, fetched.stderr
    assert fetched.stdout == f"{snapshot}\n"
    assert standard.record("run.json")["model"]["hub_id"] == HUB_ID
    assert {path: path.stat().st_mtime_ns for path in (standard.folder / "缓存").rglob("*")} == before
    # The run knows now where the model lies: the hub's client is not even loaded again.
    again = standard.run("run", job, "--limit", "30", extra={**extra, "GUARD_FORBIDS": "modelscope torch"})
    assert again.code == 0, again.stderr


def test_a_hub_model_that_is_not_there(standard: Workshop) -> None:
    """With `--offline` nothing connects: 4, and the command that fetches it. Without, the test's guard sees a try."""
    job = standard.job(model={"path": None, "id": HUB_ID, "cache_dir": "缓存"})
    extra = {"GUARD_NETWORK": "1"}
    allowed = standard.start("fetch", job, extra=extra)
    result = standard.run("run", job, "--offline", extra=extra)
    assert result.code == 4, result.stderr
    assert HUB_ID in result.stderr
    assert "batchzs fetch" in result.stderr
    assert result.stdout == ""
    assert allowed.end().code == 98
