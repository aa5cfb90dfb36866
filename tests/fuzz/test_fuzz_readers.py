"""Damaged input files: rows, or one error that says what is wrong; and as many rows as a plain reader counts.

The files are read in a process of its own, with a limit to its memory: what is damaged may make native code end it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from batchzs.errors import InputError
from batchzs.inputs import csvfile, jsonl, rowgroups
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import OK, RowSpan
from batchzs.inputs.spec import ReadSpec
from tests.fuzz.mutations import BUDGET_S, FIRST_SEED, mutate, seeds

if TYPE_CHECKING:
    from batchzs.inputs.rows import InputSet

#: What a file of a few kilobytes may take at most; a hang ends here too.
SECONDS_A_FILE = 30
MEMORY_BYTES = 6 * 2**30

_TEXTS = (
    *("央行宣布降准", "", None, "  ", '他说："好"', "第一行\n第二行"),
    *("NA", "a,b;c\td", "😀\u2028x", "长" * 300, "\ufeff"),
)
_SPEC = ReadSpec("", None, ("text",), " ", (), "drop", "utf-8", None, '"', True, (), "quarantine")


def _csv(delimiter: str = ",", end: str = "\n", num_rows: int = 30) -> str:
    written = io.StringIO()
    writer = csv.writer(written, delimiter=delimiter, lineterminator=end)
    writer.writerow(["id", "text", "more"])
    writer.writerows([f"{row:03d}", _TEXTS[row % len(_TEXTS)], row] for row in range(num_rows))
    return written.getvalue()


def _jsonl(num_rows: int = 30) -> str:
    rows = [{"id": row, "text": _TEXTS[row % len(_TEXTS)], "more": {"a": [row, None]}} for row in range(num_rows)]
    return "".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(rows))


def _parquet(num_rows: int = 60, **settings: Any) -> bytes:
    frame = pl.DataFrame({"id": range(num_rows), "text": [_TEXTS[row % len(_TEXTS)] for row in range(num_rows)]})
    written = io.BytesIO()
    frame.with_columns(more=pl.col("text").cast(pl.Categorical)).write_parquet(written, **settings)
    return written.getvalue()


def samples() -> list[tuple[str, str, bytes]]:
    """Sound files: their endings, encodings and contents."""
    return [
        (".csv", "utf-8", _csv().encode()),
        (".csv", "utf-8", b"\xef\xbb\xbf" + _csv(end="\r\n").encode()),
        (".csv", "gb18030", _csv().encode("gb18030")),
        (".csv", "utf-16", _csv().encode("utf-16")),
        (".csv", "big5", _csv().encode("big5", errors="ignore")),
        (".tsv", "utf-8", _csv("\t").encode()),
        (".jsonl", "utf-8", _jsonl().encode()),
        (".jsonl", "gb18030", _jsonl().encode("gb18030")),
        (".jsonl", "utf-16", _jsonl().encode("utf-16")),
        (".parquet", "utf-8", _parquet()),
        (".parquet", "utf-8", _parquet(row_group_size=20, compression="uncompressed")),
        (".parquet", "utf-8", _parquet(compression="snappy", use_pyarrow=True)),
    ]


def plain_count(suffix: str, encoding: str, content: bytes) -> int | None:
    """Count records as plainly as can be; None where no plain reader is sure."""
    if suffix == ".parquet":
        return int(pq.read_metadata(io.BytesIO(content)).num_rows)
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError:
        return None
    if suffix == ".jsonl":
        return sum(bool(line.strip(" \t\r")) for line in text.split("\n"))
    if "\r" in text.replace("\r\n", ""):
        return None
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if suffix == ".tsv" else ",", strict=True)
        return sum(bool(row) for row in reader) - 1
    except csv.Error:
        return None


def read_one(draw: random.Random, folder: Path, sound: list[tuple[str, str, bytes]]) -> str:
    """Damage one file and read it; return what came of it."""
    suffix, encoding, content = draw.choice(sound)
    content = mutate(draw, content, [other for _, _, other in sound])
    path = folder / f"甲 [1]{suffix}"
    path.write_bytes(content)
    spec = replace(
        _SPEC,
        path=str(path),
        encoding=encoding,
        keep=draw.choice(((), ("id",), ("id", "more"), "all")),
        text=draw.choice((("text",), ("text", "id"))) if suffix in {".csv", ".tsv"} else ("text",),
        on_bad_rows=draw.choice(("quarantine", "quarantine", "fail")),
    )
    try:
        frozen = freeze_inputs(spec, find_files(spec, []))
    except InputError as exc:
        return "refused" if str(exc).strip() else "refused without a word"
    whole = _read(spec, frozen, [RowSpan(0, 0, frozen.num_rows)])
    assert len(whole[0]) == frozen.num_rows
    expected = plain_count(suffix, encoding, content)
    assert expected in (None, frozen.num_rows), f"{expected} records by a plain reader, {frozen.num_rows} by batchzs"
    assert frozen.files[0].num_bad_rows == sum(status != OK for status in whole[1])
    if frozen.num_rows > 1:  # a shard's rows are those of the whole
        cut = draw.randrange(1, frozen.num_rows)
        parts = [_read(spec, frozen, [span]) for span in (RowSpan(0, 0, cut), RowSpan(0, cut, frozen.num_rows))]
        assert tuple(one + other for one, other in zip(*parts, strict=True)) == whole
    return "read, some rows bad" if frozen.files[0].num_bad_rows else "read"


def _read(spec: ReadSpec, frozen: InputSet, spans: list[RowSpan]) -> tuple[list[Any], list[Any], list[Any]]:
    rows = read_rows(spec, frozen, spans)
    return rows.texts, rows.statuses, rows.carried.rows() if rows.carried.width else []


def main() -> None:
    """Read damaged files until the time is over; the last seed stands on disk, and the counts in the output."""
    import faulthandler
    import resource

    folder = Path(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for module in (csvfile, jsonl):
        vars(module)["BLOCK_RECORDS"] = 7  # several blocks in a small file
    sound = samples()
    counts: dict[str, int] = {}
    for seed in seeds():
        (folder / "seed").write_text(str(seed))
        draw = random.Random(seed)
        rowgroups.MAX_GROUP_BYTES = draw.choice((64, 64 * 2**20))  # either way of reading Parquet
        faulthandler.dump_traceback_later(SECONDS_A_FILE, exit=True)
        outcome = read_one(draw, folder, sound)
        faulthandler.cancel_dump_traceback_later()
        counts[outcome] = counts.get(outcome, 0) + 1
    print(json.dumps(counts))  # noqa: T201 - for the process that waits for it


@pytest.mark.slow
def test_any_file_is_read_or_refused(tmp_path: Path) -> None:
    """No file makes another error than InputError, a hang, a loss of rows, or a process that ends by itself."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "FUZZ_SEED": str(FIRST_SEED), "FUZZ_SECONDS": str(BUDGET_S)}
    done = subprocess.run(
        [sys.executable, "-c", "from tests.fuzz.test_fuzz_readers import main; main()", str(tmp_path)],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environment,
        cwd=root,
    )
    seed = (tmp_path / "seed").read_text()
    assert done.returncode == 0, f"seed {seed}, exit code {done.returncode}\n{done.stderr}"
    counts = json.loads(done.stdout.splitlines()[-1])
    print(f"\ninput files: {sum(counts.values())}, {counts}")  # noqa: T201 - a figure for docs
    assert counts["read"] > 0
    assert "refused without a word" not in counts


def test_a_column_name_that_is_no_text_any_more(tmp_path: Path) -> None:
    """A footer names each column several times; damage of any one is refused or does no harm (found here)."""
    frame = pl.DataFrame({"text": ["甲", "乙"], "moreq": [1, 2]})
    written = io.BytesIO()
    frame.write_parquet(written)
    content = written.getvalue()
    path = tmp_path / "甲.parquet"
    spec = replace(_SPEC, path=str(path))
    places = [match.start() for match in re.finditer(b"moreq", content)]
    assert len(places) > 1
    num_refused = 0
    for place in places:
        path.write_bytes(content[:place] + b"mo\xffeq" + content[place + 5 :])
        try:
            frozen = freeze_inputs(spec, find_files(spec, []))
        except InputError:
            num_refused += 1
        else:
            assert _read(spec, frozen, [RowSpan(0, 0, 2)])[0] == ["甲", "乙"]
    assert num_refused > 0
