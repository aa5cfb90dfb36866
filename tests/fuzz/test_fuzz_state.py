"""Damaged state: a documented exit code and no traceback, and never another row than an undisturbed run's.

Runs go through the command's own entry in this process: hundreds of them, and not dozens. What is damaged is all of
`state/`, and the shards' ends; a bit that flips inside a published shard is for `batchzs verify` to find.
"""

from __future__ import annotations

import io
import json
import logging
import random
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from batchzs import cli
from tests.fuzz.mutations import mutate, seeds
from tests.integration.conftest import NUM_ROWS, STAND_IN, Finished, Workshop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest_plugins = ["tests.integration.conftest"]

#: Done; the input seems to be another one, so does the model, so does the job; another run; the machine.
EXPECTED_CODES = {0, 3, 4, 6, 7, 8}
_POSITION = ("source_file", "source_row")
_JSON_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    2,
    7,
    20,
    21,
    150,
    10**12,
    10**30,
    0.5,
    "",
    "x",
    "0",
    [],
    {},
    [0],
    [[0, 0, 0]],
)


@pytest.fixture
def half_done(standard: Workshop) -> Workshop:
    """A run that was killed in its fourth shard, of which the journal holds what was scored."""
    result = standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "journal-written:4"})
    assert result.code == -signal.SIGKILL, result.stderr
    shutil.copytree(standard.output, standard.folder / "saved")
    return standard


@pytest.fixture
def calm_logging() -> Iterator[None]:
    """Give the process its log handlers back: every run puts its own there."""
    logger = logging.getLogger("batchzs")
    handlers, propagate, level = list(logger.handlers), logger.propagate, logger.level
    yield
    for handler in list(logger.handlers):
        if handler not in handlers:
            handler.close()
    logger.handlers, logger.propagate, logger.level = handlers, propagate, level


def damage(draw: random.Random, output: Path) -> list[str]:
    """Damage one to three of a run's files, or remove, empty or exchange them; return what was done."""
    files = sorted(path for path in output.rglob("*") if path.is_file() and path.name not in ("run.log", "run.lock"))
    others = [path.read_bytes() for path in files if path.suffix != ".parquet"]
    told = []
    central = [path for path in files if path.suffix == ".journal" or path.name in ("run.json", "inputs.json")]
    for path in {draw.choice(draw.choice((central, files))): None for _ in range(draw.choice((1, 1, 2, 3)))}:
        content = path.read_bytes()
        way = draw.choice(("bytes", "bytes", "value", "value", "value", "gone", "empty", "other"))
        if path.suffix == ".parquet":
            content = content[: draw.randrange(len(content))]  # torn: what a footer does not tell is not looked for
        elif way == "value" and path.suffix == ".json":
            content = change_a_value(draw, content)
        elif way == "gone":
            path.unlink()
        elif way in ("empty", "other"):
            content = b"" if way == "empty" else draw.choice(others)
        else:
            content = mutate(draw, content, others)
        if way != "gone" or path.suffix == ".parquet":
            path.write_bytes(content)
        told.append(f"{path.relative_to(output)} {way}")
    return told


def change_a_value(draw: random.Random, content: bytes) -> bytes:
    """Put another value somewhere into a JSON document, often one that looks well."""
    document = at = json.loads(content)
    if not isinstance(at, dict | list) or not at:
        return content
    while True:
        key = draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at))
        inner = at[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.85:
            at = inner
            continue
        if type(inner) is int and draw.random() < 0.6:
            at[key] = inner + draw.choice((-1, 1, 2, 10))
        elif isinstance(inner, list) and draw.random() < 0.5:
            at[key] = inner[:-1]
        else:
            at[key] = draw.choice(_JSON_VALUES)
        return json.dumps(document, ensure_ascii=False).encode()


def run_here(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run the standard job by the command's entry; return its exit code and what it said."""
    monkeypatch.setattr(sys, "argv", ["batchzs", "run", str(workshop.standard_job)])
    with redirect_stderr(io.StringIO()) as stderr, redirect_stdout(io.StringIO()):
        code = cli._exit_code()
    return code, stderr.getvalue()


def see_what_is_published(workshop: Workshop, finished: Finished, *, is_done: bool) -> int:
    """See that every row of every whole shard is an undisturbed run's; return how many there are."""
    expected = {row[:2]: row for row in finished.table.select(*_POSITION, pl.exclude(_POSITION)).rows()}
    positions = []
    for path in sorted((workshop.output / "scores").iterdir()):
        try:
            table = pl.read_parquet(path, glob=False)
        except pl.exceptions.PolarsError:
            assert not is_done, path
            continue  # torn by this test, and not yet replaced
        rows = table.select(*_POSITION, pl.exclude(_POSITION)).rows()
        for row in rows:
            assert row == expected[row[:2]]
        positions += [row[:2] for row in rows]
    assert len(set(positions)) == len(positions)
    if is_done:
        assert positions == list(expected)
        assert len(positions) == NUM_ROWS
    return len(positions)


@pytest.mark.slow
@pytest.mark.usefixtures("calm_logging")
def test_any_state_is_gone_on_with_or_refused(
    half_done: Workshop, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever became of a run's files, the same command ends with a documented code and publishes no wrong row."""
    monkeypatch.setenv("BATCHZS_TEST_HOOK", json.dumps(STAND_IN))
    codes: dict[int, int] = {}
    num_rows = 0
    for seed in seeds():
        shutil.rmtree(half_done.output)
        shutil.copytree(half_done.folder / "saved", half_done.output)
        told = damage(random.Random(seed), half_done.output)
        code, stderr = run_here(half_done, monkeypatch)
        where = f"seed {seed}: {told}, exit code {code}\n{stderr}"
        assert code in EXPECTED_CODES, where
        assert "Traceback" not in stderr, where
        try:
            num_rows += see_what_is_published(half_done, finished, is_done=code == 0)
        except AssertionError as exc:
            raise AssertionError(where) from exc
        codes[code] = codes.get(code, 0) + 1
    print(f"\nstates: {sum(codes.values())}, by exit code {codes}; {num_rows} published rows compared")  # noqa: T201
    assert codes[0] > 0
