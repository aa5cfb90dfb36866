"""Messages reach their stream as plain lines or JSON, in UTF-8, and never end a run."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING

import pytest

from batchzs.logs import ROOT, fields, log_to_file, log_to_stream
from tests.builders import odd_folder, run_python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logging.getLogger(f"{ROOT}.news")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Put the root logger of batchzs back, handlers closed."""
    root = logging.getLogger(ROOT)
    before = (list(root.handlers), root.level, root.propagate)
    yield
    for handler in root.handlers:
        if handler not in before[0]:
            handler.close()
    root.handlers, root.level, root.propagate = before


def test_plain_lines_have_a_time_and_a_level_where_it_is_not_ordinary() -> None:
    """What cron mails to people."""
    stream = io.StringIO()
    log_to_stream(stream, "plain")
    logger.info("%d rows", 5)
    logger.warning("小心")
    logger.debug("not shown")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d 5 rows", lines[0])
    assert lines[1].endswith(" warning: 小心")


def test_json_lines_have_the_events_own_fields() -> None:
    """One object a line, whatever the message holds, with times that name their zone."""
    stream = io.StringIO()
    log_to_stream(stream, "json")
    logger.info("two\nlines “科技”", extra=fields("shard_published", shard=3, path=io))
    logger.error("plain")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["level"], first["event"], first["message"]) == ("info", "shard_published", "two\nlines “科技”")
    assert first["shard"] == 3
    assert first["path"] == str(io)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert second["event"] == "message"


@pytest.mark.parametrize("log_format", ["plain", "json"])
def test_an_exceptions_traceback_is_kept(log_format: str) -> None:
    """A bug report asks for the log: the traceback has to be in it, in both formats."""
    stream = io.StringIO()
    log_to_stream(stream, "json" if log_format == "json" else "plain")
    try:
        int("the cause")
    except ValueError:
        logger.exception("unexpected error")
    assert "ValueError: invalid literal for int() with base 10: 'the cause'" in stream.getvalue()
    assert "Traceback" in stream.getvalue()
    if log_format == "json":
        assert len(stream.getvalue().splitlines()) == 1


def test_setting_up_again_replaces_and_does_not_double() -> None:
    """Two commands in one process write each line once."""
    first, second = io.StringIO(), io.StringIO()
    log_to_stream(first, "plain")
    log_to_stream(second, "plain")
    logger.info("once")
    assert not first.getvalue()
    assert len(second.getvalue().splitlines()) == 1


def test_a_closed_or_missing_stream_does_not_raise() -> None:
    """A pipe into `head`, a closed descriptor under cron: the run matters more than the line."""
    stream = io.StringIO()
    log_to_stream(stream, "plain")
    stream.close()
    logger.info("nobody reads this")

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            """Fail as a pipe does whose reader has gone."""
            raise BrokenPipeError(text)

    log_to_stream(Pipe(), "json")
    logger.info("nor this")
    log_to_stream(None, "plain")
    logger.info("nor this")


def test_the_runs_log_is_appended_in_utf8(tmp_path: Path) -> None:
    """Every attempt adds to it; a file name that is no text is written with escapes."""
    path = odd_folder(tmp_path) / "run.log"
    path.write_text("earlier\n", encoding="utf-8")
    log_to_stream(None, "plain")
    log_to_file(path)
    logger.info("科技 %s", "bad\udcff.csv")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "earlier"
    assert lines[1].endswith("科技 bad\\udcff.csv")


def test_standard_streams_take_any_character_in_any_locale_and_may_be_closed() -> None:
    """Case S6: in the C locale a Chinese label is printed, and half a character with escapes."""
    program = """
import sys
from batchzs.logs import open_standard_streams
open_standard_streams()
print("\\u79d1\\u6280 \\udcff")
print("\\u9519", file=sys.stderr)
"""
    environ = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run_python(program, environ=environ) == "科技 \\udcff\n"


def test_a_closed_standard_stream_is_not_given_to_the_next_file(tmp_path: Path) -> None:
    """With descriptor 1 closed the first file opened would become standard output, and a stray print corrupt it."""
    program = """
import os, sys
os.close(1)
from batchzs.logs import open_standard_streams
open_standard_streams()
with open(sys.argv[1], "wb") as file:
    os.write(1, b"stray")
    file.write(b"content")
"""
    path = odd_folder(tmp_path) / "shard"
    assert not run_python(program, str(path))
    assert path.read_bytes() == b"content"
