"""What holds for any file: counts, spans, and that both CSV readers give the same rows."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import InputError
from batchzs.inputs import csvfile, jsonl
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import BAD_RECORD, OK, RowSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from batchzs.inputs.rows import InputSet, ShardRows
    from tests.inputs.conftest import Reading

CHARACTERS = "a甲\",;\n\r\t \u2028\u0085\x00\ufeff'0😀"
FIELDS = st.one_of(
    st.text(st.sampled_from(CHARACTERS), max_size=6),
    st.text(st.sampled_from(CHARACTERS.translate(dict.fromkeys(map(ord, '",\n\r')))), max_size=6),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
LINE_ENDS = st.sampled_from(["\n", "\r\n"])
ROW = st.tuples(FIELDS, FIELDS)


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> Iterator[None]:
    """Make blocks of three records, so that small files have several."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (csvfile, jsonl):
            patch.setattr(module, "BLOCK_RECORDS", 3)
        yield


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a new path each time, for files that hypothesis draws."""
    folder = tmp_path_factory.mktemp("抽 [样]")
    numbers = count()
    return lambda suffix: folder / f"{next(numbers)}{suffix}"


def everything(frozen: InputSet) -> list[RowSpan]:
    """Return the spans of all rows."""
    return [RowSpan(index, 0, file.num_rows) for index, file in enumerate(frozen.files)]


def line_by_line(frozen: InputSet) -> InputSet:
    """Have every block read by the line-aware reader."""
    files = (replace(file, bad_blocks=tuple(range(len(file.seek_points)))) for file in frozen.files)
    return replace(frozen, files=tuple(files))


def as_tuple(rows: ShardRows) -> tuple[Any, ...]:
    """Return all that a read gives, to compare."""
    carried = (rows.carried.columns, rows.carried.dtypes, rows.carried.rows())
    return (rows.texts, rows.statuses, rows.reasons, carried, rows.source_files, rows.source_rows.tolist())


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[str, list[tuple[str | None, str | None] | None]]:
    """Draw a file of two columns, and its fields: None for a bare empty one, and for a ragged record."""
    text = "id,text" + draw(LINE_ENDS)
    rows: list[tuple[str | None, str | None] | None] = []
    for row in draw(st.lists(st.one_of(ROW, ROW, ROW, st.none()), max_size=12)):
        if row is None:
            text += draw(st.sampled_from(["a,b,c", '"x\n",,', "a"])) + draw(LINE_ENDS)
            rows.append(None)
            continue
        written, read = [], []
        for field in row:
            # A quote inside an unquoted field is a character; at its beginning it would open a quoted one.
            quoted = field.startswith('"') or any(char in field for char in ",\n\r") or draw(st.booleans())
            written.append('"' + field.replace('"', '""') + '"' if quoted else field)
            read.append(field if quoted or field else None)
        text += ",".join(written) + draw(LINE_ENDS)
        rows.append((read[0], read[1]))
    return text, rows


@given(csv_files(), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030"]))
def test_csv_gives_what_was_written(
    reading: Reading,
    fresh: Callable[[str], Path],
    file: tuple[str, list[tuple[str | None, str | None] | None]],
    encoding: str,
) -> None:
    """Every record comes out once, in order and unchanged, whatever is in it; both readers agree (cases I1, I2)."""
    text, expected = file
    path = fresh(".csv")
    path.write_bytes(text.encode(encoding))
    spec = reading.spec(path, keep=("id", "text"), encoding=encoding)
    frozen = reading.frozen(path, keep=("id", "text"), encoding=encoding)
    assert frozen.num_rows == len(expected)
    assert frozen.files[0].num_bad_rows == expected.count(None)
    rows = read_rows(spec, frozen, everything(frozen))
    good = [row for row, status in zip(rows.carried.rows(), rows.statuses, strict=True) if status == OK]
    assert good == [row for row in expected if row is not None]
    assert rows.statuses == [BAD_RECORD if row is None else OK for row in expected]
    assert rows.texts == ["" if row is None else row[1] or "" for row in expected]
    assert as_tuple(read_rows(spec, line_by_line(frozen), everything(frozen))) == as_tuple(rows)


@given(st.text(st.sampled_from('a甲",\n\r'), max_size=60), st.sampled_from(['"', None]))
def test_any_csv_is_read_or_refused(
    reading: Reading,
    fresh: Callable[[str], Path],
    text: str,
    quote: str | None,
) -> None:
    """No file makes a traceback, and both readers give the same rows of whatever can be read."""
    path = fresh(".csv")
    path.write_bytes(b"id,text\n" + text.encode())
    spec = reading.spec(path, keep=("id",), quote=quote)
    try:
        frozen = reading.frozen(path, keep=("id",), quote=quote)
    except InputError:
        return
    rows = read_rows(spec, frozen, everything(frozen))
    assert as_tuple(read_rows(spec, line_by_line(frozen), everything(frozen))) == as_tuple(rows)
    assert frozen.files[0].num_bad_rows == sum(status != OK for status in rows.statuses)


@given(st.binary(max_size=80), st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet"]))
def test_any_bytes_are_read_or_refused(
    reading: Reading,
    fresh: Callable[[str], Path],
    content: bytes,
    suffix: str,
) -> None:
    """No bytes make a traceback."""
    path = fresh(suffix)
    path.write_bytes((b"text\n" if suffix in (".csv", ".tsv") else b"{}\n") + content)
    try:
        rows = reading.rows(path)
    except InputError:
        return
    assert all((reason is None) == (status == OK) for status, reason in zip(rows.statuses, rows.reasons, strict=True))


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), FIELDS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(FIELDS, inner, max_size=2)),
    max_leaves=3,
)
RECORDS = st.fixed_dictionaries(
    {}, optional={"text": st.one_of(st.none(), FIELDS), "x": JSON_VALUES, "id": st.integers()}
)


@given(st.lists(RECORDS, min_size=1, max_size=10), st.booleans())
def test_jsonl_gives_what_was_written(
    reading: Reading,
    fresh: Callable[[str], Path],
    records: list[dict[str, Any]],
    ascii_only: bool,  # noqa: FBT001 - hypothesis passes what it draws by position
) -> None:
    """Every record comes out once and in order, and a carried value can be had back from its column."""
    records = [{"text": "甲", "x": None, "id": 1}, *records]
    path = fresh(".jsonl")
    lines = "\n".join(json.dumps(record, ensure_ascii=ascii_only) for record in records)
    path.write_text(lines, encoding="utf-8", newline="")
    rows = reading.rows(path, keep=("x", "id"))
    assert rows.texts == [record.get("text") or "" for record in records]
    assert rows.statuses == [OK] * len(records)
    for column in ("x", "id"):
        for value, record in zip(rows.carried[column].to_list(), records, strict=True):
            original = record.get(column)
            is_json = rows.carried.schema[column] == pl.String and original is not None
            assert value == original or (is_json and json.loads(value) == original)


SPANS = st.lists(st.integers(0, 40), max_size=8, unique=True).map(
    lambda cuts: [(start, stop) for start, stop in zip(sorted(cuts)[::2], sorted(cuts)[1::2], strict=False)],
)


@given(SPANS, SPANS, st.sampled_from([".csv", ".jsonl", ".parquet"]))
def test_spans_are_slices(
    reading: Reading,
    trees: dict[str, tuple[Path, InputSet, ShardRows]],
    first: list[tuple[int, int]],
    second: list[tuple[int, int]],
    suffix: str,
) -> None:
    """Any spans give just what slicing the whole input would give."""
    path, frozen, whole = trees[suffix]
    spans = [RowSpan(0, *span) for span in first] + [RowSpan(1, *span) for span in second]
    rows = read_rows(reading.spec(path, keep=("id",)), frozen, spans)
    wanted = [span.file_index * 40 + row for span in spans for row in range(span.start, span.stop)]
    assert rows.texts == [whole.texts[row] for row in wanted]
    assert rows.statuses == [whole.statuses[row] for row in wanted]
    assert rows.reasons == [whole.reasons[row] for row in wanted]
    assert rows.source_files == [whole.source_files[row] for row in wanted]
    assert rows.source_rows.tolist() == [row % 40 for row in wanted]
    assert rows.carried.rows() == [whole.carried.row(row) for row in wanted]


@pytest.fixture(scope="module")
def trees(
    reading: Reading,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[Path, InputSet, ShardRows]]:
    """Write two files of 40 rows in each format, some of them damaged where that is possible."""
    made = {}
    for suffix in (".csv", ".jsonl", ".parquet"):
        folder = tmp_path_factory.mktemp("树")
        for name in ("1", "2"):
            path = folder / f"{name}{suffix}"
            texts = [f'{name} 第{row}行 6.1" {"长" * row}' for row in range(40)]
            if suffix == ".csv":
                rows = ("bad" if row % 7 == 3 else f"{row},{text}" for row, text in enumerate(texts))
                path.write_text("id,text\n" + "\n".join(rows))
            elif suffix == ".jsonl":
                records = (json.dumps({"id": row, "text": text}) for row, text in enumerate(texts))
                path.write_text("\n".join("bad" if row % 7 == 3 else line for row, line in enumerate(records)))
            else:
                pl.DataFrame({"id": range(40), "text": texts}).write_parquet(path, row_group_size=16)
        made[suffix] = (folder, reading.frozen(folder, keep=("id",)), reading.rows(folder, keep=("id",)))
    return made
