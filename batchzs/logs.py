"""Where messages go: plain lines or JSON on standard error, and plain lines appended to the run's own log.

The library logs through `logging`; only the command configures it, here. Everything is UTF-8 whatever the locale says,
and a stream that cannot take a line never ends a run. No message holds a text of the input. Names of files, columns
and keys do stand in messages, and whoever makes the input chooses them; so what acts on a terminal or begins a line is
written with escapes, here, where every message comes by.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

from batchzs.durable import open_no_link
from batchzs.errors import MachineError
from batchzs.escape import json_line, one_line

if TYPE_CHECKING:
    from io import TextIOWrapper
    from pathlib import Path

LogFormat = Literal["plain", "json"]
ROOT = "batchzs"
#: Marks a message that has several lines on purpose: pass it as `extra` to a logger.
SEVERAL_LINES = {"batchzs_several_lines": True}
_INDENT = "    "


def fields(event: str, **values: Any) -> dict[str, Any]:
    """Say what a message is about, for readers of JSON: pass it as `extra` to a logger.

    >>> fields("shard_published", shard=3)
    {'batchzs_event': 'shard_published', 'batchzs_fields': {'shard': 3}}
    """
    return {"batchzs_event": event, "batchzs_fields": values}


def open_standard_streams() -> None:
    """Make standard streams safe to use: closed ones lead nowhere, open ones take any character.

    A closed descriptor would be given to the next file that is opened, and a stray print would then land in it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")


def flush_standard_streams() -> None:
    """Write out what is pending; where it cannot be written it leads nowhere, or Python would end with an error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def log_to_stream(stream: TextIO | None, log_format: LogFormat) -> None:
    """Send messages of batchzs to a stream (None: nowhere), and keep other libraries' out unless they are errors."""
    logger = logging.getLogger(ROOT)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    handler = logging.NullHandler() if stream is None else _StreamHandler(stream)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _PlainFormatter())
    logger.addHandler(handler)


def log_to_file(path: Path) -> None:
    """Append messages to the run's log as well.

    Raises:
        MachineError: it cannot be opened, or is a symbolic link.
    """
    try:
        handler = _FileHandler(path, mode="a", encoding="utf-8", errors="backslashreplace")
    except OSError as exc:
        raise MachineError(f"{path}: cannot be opened: {exc.strerror}") from exc
    handler.setFormatter(_PlainFormatter())
    logging.getLogger(ROOT).addHandler(handler)


class _FileHandler(logging.FileHandler):
    """Writes lines to a file; on a full disk they are lost, and standard error has them still."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=open_no_link)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Show no traceback for every line that finds no room: the run matters more."""


class _StreamHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a terminal below a progress bar without tearing it, and anywhere else as they are."""

    def emit(self, record: logging.LogRecord) -> None:
        # Where nobody has loaded tqdm there is no bar to tear; loading it for that would delay the first line.
        tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
        try:
            with contextlib.nullcontext() if tqdm is None else tqdm.external_write_mode(self.stream):
                self.stream.write(self.format(record) + "\n")
                self.stream.flush()
        except (OSError, ValueError):
            pass  # a closed pipe or a closed stream: the run matters more than this line


class _PlainFormatter(logging.Formatter):
    """2026-11-30 03:00:00 message, with the level where it is not an ordinary one.

    A line that begins with a time is a message of batchzs; what belongs to the one before it is indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        when = datetime.fromtimestamp(record.created).astimezone()
        message = record.getMessage()
        lines = message.split("\n") if hasattr(record, "batchzs_several_lines") else [message]
        if record.exc_info is not None:
            lines += self.formatException(record.exc_info).split("\n")
        return f"{when:%Y-%m-%d %H:%M:%S} {level}" + f"\n{_INDENT}".join(map(one_line, lines))


class _JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, message, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "batchzs_event", "message"),
            "message": record.getMessage(),
            **getattr(record, "batchzs_fields", {}),
        }
        if record.exc_info is not None:
            entry["traceback"] = self.formatException(record.exc_info)
        return json_line(entry)
