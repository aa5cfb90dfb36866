"""Parquet: schemas over several files, text columns, damage."""

from __future__ import annotations

import datetime as dt
import tempfile
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import InputError
from batchzs.inputs import rowgroups
from batchzs.inputs.read import read_rows
from batchzs.inputs.rowgroups import find_stretches
from batchzs.inputs.rows import RowSpan
from tests.builders import PATIENT_AND_BRIEF

if TYPE_CHECKING:
    from tests.inputs.conftest import Reading


def write(folder: Path, *frames: pl.DataFrame | pa.Table) -> None:
    """Write each frame to a file of its own, 0.parquet and so on."""
    for index, frame in enumerate(frames):
        path = folder / f"{index}.parquet"
        if isinstance(frame, pl.DataFrame):
            frame.write_parquet(path)
        else:
            pq.write_table(frame, path)


def frame(dtype: Any, *values: Any, name: str = "id") -> pl.DataFrame:
    """Return a frame of a text column and one column of a type."""
    return pl.DataFrame({"text": ["甲"] * len(values), name: pl.Series(values, dtype=dtype)})


def test_columns_keep_their_types(reading: Reading, folder: Path) -> None:
    """Carried columns come out with type and value, nested and zoned ones too."""
    when = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    columns = pl.DataFrame(
        {
            "text": ["甲", None],
            "id": [1, None],
            "when": pl.Series([when, None], dtype=pl.Datetime("us", "Asia/Shanghai")),
            "tags": [["a", None], []],
            "part": [{"x": 1, "y": "b"}, None],
            "price": pl.Series([1, 2]).cast(pl.Decimal(10, 2)),
            "day": [dt.date(2024, 5, 1), None],
            "raw": [b"\xff", None],
            "span": [dt.timedelta(seconds=1), None],
        }
    )
    write(folder, columns)
    rows = reading.rows(folder, keep="all")
    assert rows.carried.equals(columns)
    assert rows.carried.schema == columns.schema
    assert rows.texts == ["甲", ""]


@pytest.mark.parametrize(
    ("frames", "dtype"),
    [
        ([frame(pl.Int64, 2**40), frame(pl.Int32, 2)], pl.Int64()),
        ([frame(pl.Int8, 1), frame(pl.Int16, 2), frame(pl.UInt8, 3)], pl.Int16()),
        ([frame(pl.UInt32, 2**32 - 1), frame(pl.Int32, -1)], pl.Int64()),
        ([frame(pl.UInt64, 2**64 - 1), frame(pl.UInt8, 1)], pl.UInt64()),
        ([frame(pl.Float32, 0.5), frame(pl.Float64, 0.1)], pl.Float64()),
        ([frame(pl.Null, None), frame(pl.String, "a")], pl.String()),
        ([frame(pl.Null, None), frame(pl.Null, None)], pl.String()),
        ([frame(pl.Categorical, "a"), frame(pl.Enum(["b"]), "b"), frame(pl.String, "c")], pl.String()),
    ],
)
def test_types_meet_whatever_the_order(
    reading: Reading,
    scratch: Path,
    frames: list[pl.DataFrame],
    dtype: pl.DataType,
) -> None:
    """Widths upcast, all-null columns and dictionaries fit in, in any order of files (case I7)."""
    for number, order in enumerate(permutations(frames)):
        folder = scratch / str(number)
        folder.mkdir()
        write(folder, *order)
        rows = reading.rows(folder, keep=("id",))
        assert rows.carried.schema["id"] == dtype
        assert rows.carried["id"].to_list() == [one["id"][0] for one in order]


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([frame(pl.Int64, 1), frame(pl.Float64, None)], r"1\.parquet: column 'id' .* Float64, but Int64 .*lose digits"),
        ([frame(pl.Int64, 1), frame(pl.String, "x")], "no type holds both"),
        ([frame(pl.UInt64, 1), frame(pl.Int8, 1)], "no type holds both"),
        ([frame(pl.Datetime("us"), None), frame(pl.Datetime("ns"), None)], "different zones or units"),
        ([frame(pl.Datetime("us", "UTC"), None), frame(pl.Datetime("us"), None)], "different zones or units"),
        ([frame(pl.Int64, 1), frame(pl.Int64, 1, name="x")], r"1\.parquet: no column 'id' \(input.keep\).*: text, x"),
    ],
)
def test_types_that_do_not_meet(
    reading: Reading,
    folder: Path,
    frames: list[pl.DataFrame],
    message: str,
) -> None:
    """Files that would lose digits or hours are refused with file, column and both types (cases I7, I8)."""
    write(folder, *frames)
    with pytest.raises(InputError, match=message):
        reading.frozen(folder, keep=("id",))
    write(folder, *reversed(frames))
    with pytest.raises(InputError, match="column 'id'"):
        reading.frozen(folder, keep=("id",))


def test_columns_nobody_needs_do_not_matter(reading: Reading, folder: Path) -> None:
    """Additional columns, and those that differ, are harmless where they are not read (case I7)."""
    write(
        folder,
        pl.DataFrame({"id": [1], "text": ["甲"], "ts": [1.5]}),
        pl.DataFrame({"ts": ["x"], "src": [2], "text": ["乙"], "id": [2]}),
    )
    rows = reading.rows(folder, keep=("id",))
    assert rows.texts == ["甲", "乙"]
    assert rows.carried["id"].to_list() == [1, 2]


def test_times_of_other_zones_do_no_harm_where_they_are_not_kept(reading: Reading, folder: Path) -> None:
    """Only a column that is carried has to be of one type in all files (case I7)."""
    write(
        folder,
        frame(pl.Datetime("ns", "Asia/Shanghai"), None, name="at"),
        frame(pl.Datetime("us"), None, name="at"),
        frame(pl.String, "x", name="at"),
    )
    assert reading.rows(folder).texts == ["甲"] * 3


@pytest.mark.usefixtures("reader")
def test_text_that_is_null_throughout_one_file(reading: Reading, scratch: Path) -> None:
    """A text column typed null fits in, whether its file comes first or last (case I7)."""
    empty, full = pl.DataFrame({"text": pl.Series([None], dtype=pl.Null)}), pl.DataFrame({"text": ["甲"]})
    for number, frames in enumerate(permutations([empty, full])):
        folder = scratch / str(number)
        folder.mkdir()
        write(folder, *frames)
        assert reading.rows(folder).texts == [frame["text"][0] or "" for frame in frames]


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("name", ["a%20b", "s3:#?", "{a,b}", "~", "key=value", "'q' \"r\"", "新 闻[0-9]*"])
def test_odd_paths(reading: Reading, tmp_path: Path, name: str) -> None:
    """A path is a path: no escapes, no patterns, no addresses."""
    (tmp_path / name).mkdir()
    write(tmp_path / name, pl.DataFrame({"text": ["甲"]}))
    assert reading.rows(tmp_path / name).texts == ["甲"]
    assert reading.rows(tmp_path / name / "0.parquet").texts == ["甲"]


def test_missing_text_column(reading: Reading, folder: Path) -> None:
    """The file that lacks it is named."""
    frames = [pl.DataFrame({"text": ["甲"]}), pl.DataFrame({"title": ["乙"]})]
    write(folder, *frames)
    with pytest.raises(InputError, match=r"1\.parquet: no column 'text' \(input.text\); its columns are: title"):
        reading.frozen(folder)
    write(folder, *reversed(frames))
    with pytest.raises(InputError, match=r"0\.parquet: no column 'text' \(input.text\); its columns are: title"):
        reading.frozen(folder)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["甲", None, "乙", "甲"]),
        pa.array(["甲", None, "乙", "甲"], pa.large_string()),
        pa.array(["甲", None, "乙", "甲"], pa.string_view()),
        pa.array(["甲", None, "乙", "甲"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.int8()), ["乙", "甲"]),
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.int64()), ["乙", "甲"]),
    ],
)
def test_text_stored_in_other_ways(reading: Reading, folder: Path, column: pa.Array) -> None:
    """Dictionaries and large strings are strings, beside plain files too (case I9)."""
    write(folder, pa.table({"text": column}), pl.DataFrame({"text": ["丙"]}), pl.DataFrame({"text": [None]}))
    assert reading.rows(folder).texts == ["甲", "", "乙", "甲", "丙", ""]


@pytest.mark.parametrize("column", [pl.Series([1]), pl.Series([["甲"]]), pl.Series([{"a": "甲"}]), pl.Series([b"a"])])
def test_text_of_another_type(reading: Reading, folder: Path, column: pl.Series) -> None:
    """A text column that is no text is refused up front with its type (case I9)."""
    write(folder, pl.DataFrame({"text": ["甲"]}), pl.DataFrame({"text": column}))
    with pytest.raises(InputError, match=r"1\.parquet: column 'text' \(input.text\) is of type .*, expected strings"):
        reading.frozen(folder)


def test_several_text_columns(reading: Reading, folder: Path) -> None:
    """They are joined in the job's order; null parts are skipped; the text may be carried too."""
    parts = pl.DataFrame({"body": ["正文", None, None], "title": ["标题", "只有标题", None]})
    write(folder, parts.with_columns(pl.col("title").cast(pl.Categorical)))
    rows = reading.rows(folder, text=("title", "body"), separator="|", keep=("body", "title"))
    assert rows.texts == ["标题|正文", "只有标题", ""]
    assert rows.carried.equals(parts)


def test_odd_column_names(reading: Reading, folder: Path) -> None:
    """Dots, stars, regular expressions and our own names are plain column names."""
    columns = pl.DataFrame(
        {"a.b": [1], "a": [{"b": 2}], "*": [3], "^x.*$": [4], "text": [5], "carried_0": ["甲"], "": [6]}
    )
    write(folder, columns)
    rows = reading.rows(folder, text=("carried_0",), keep="all")
    assert rows.texts == ["甲"]
    assert rows.carried.equals(columns)


def test_files_without_rows(reading: Reading, folder: Path) -> None:
    """A file of no rows, its columns typed null, is an input without rows, and does no harm to others (case I11)."""
    write(folder, pl.DataFrame({"id": [], "text": []}, schema={"id": pl.Null, "text": pl.Null}))
    rows = reading.rows(folder, keep=("id",))
    assert (rows.num_rows, rows.carried.schema) == (0, {"id": pl.String()})
    frame(pl.Int64, 1).write_parquet(folder / "1.parquet")
    rows = reading.rows(folder, keep=("id",))
    assert (rows.texts, rows.carried.rows()) == (["甲"], [(1,)])


def test_no_parquet_at_all(reading: Reading, folder: Path) -> None:
    """Another file, or one without its end, is refused by name."""
    (folder / "a.parquet").write_text("id,text\n1,甲\n")
    with pytest.raises(InputError, match=r"a\.parquet: is not a complete Parquet file"):
        reading.frozen(folder)
    frame(pl.Int64, *range(1_000)).write_parquet(folder / "a.parquet")
    whole = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"a\.parquet: is not a complete Parquet file"):
        reading.frozen(folder)


@pytest.fixture(params=[None, 0], ids=["polars", "row groups"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with Polars, or as files with huge row groups are read."""
    if request.param is not None:
        monkeypatch.setattr(rowgroups, "MAX_GROUP_BYTES", request.param)


@pytest.mark.usefixtures("reader")
def test_damaged_page(reading: Reading, folder: Path) -> None:
    """Damage in the middle of a file is found before scoring."""
    path = folder / "a.parquet"
    rng = np.random.default_rng(0)
    pl.DataFrame({"text": [rng.bytes(20).hex() for _ in range(5_000)]}).write_parquet(path, compression="zstd")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 5_000] = bytes(5_000)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet: cannot be decoded"):
        reading.frozen(path)


@pytest.mark.usefixtures("reader")
def test_text_that_is_not_utf8(reading: Reading, folder: Path) -> None:
    """Bytes that are no text, under the label of strings, are refused by file."""
    broken = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    write(folder, pa.table({"text": broken}))
    with pytest.raises(InputError, match=r"0\.parquet: cannot be decoded"):
        reading.frozen(folder)


@pytest.mark.usefixtures("reader")
def test_spans_over_row_groups(reading: Reading, folder: Path) -> None:
    """Any spans give the rows they name, within and across row groups, also thousands of single ones."""
    path = folder / "a.parquet"
    columns = pl.DataFrame({"text": [f"第{row}行" for row in range(70_000)], "id": range(70_000)})
    columns.with_columns(pl.col("text").cast(pl.Categorical)).write_parquet(path, row_group_size=30_000)
    spec = reading.spec(path, keep=("id",))
    frozen = reading.frozen(path, keep=("id",))
    chosen = [RowSpan(0, 3, 5), RowSpan(0, 29_990, 30_010), RowSpan(0, 69_999, 70_000)]
    singles = [RowSpan(0, row, row + 1) for row in range(0, 70_000, 31)]
    for spans in (chosen, singles, [RowSpan(0, 0, 70_000)]):
        rows = read_rows(spec, frozen, spans)
        wanted = [row for span in spans for row in range(span.start, span.stop)]
        assert rows.texts == [f"第{row}行" for row in wanted]
        assert rows.carried["id"].to_list() == wanted
        assert rows.source_rows.tolist() == wanted


def test_row_groups_are_read_together_and_never_cut(folder: Path) -> None:
    """Groups of 80, 80 and 40 kB or so: two fill 100 kB, the third is left over; a single one is huge above 60 kB."""
    path = folder / "a.parquet"
    columns = {"text": [f"{row:08d}" for row in range(25_000)], "other": range(25_000)}
    pl.DataFrame(columns).write_parquet(path, row_group_size=10_000, compression="uncompressed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowgroups, "_STRETCH_BYTES", 150_000)
        patch.setattr(rowgroups, "MAX_GROUP_BYTES", 60_000)
        two, rest = find_stretches(path, ["text"])
    assert [(one.start, one.stop) for one in (two, rest)] == [(0, 20_000), (20_000, 25_000)]
    assert 2 * 80_000 < two.end_byte < rest.end_byte < path.stat().st_size
    metadata = pq.read_metadata(path)
    assert two.largest_bytes == metadata.row_group(0).column(0).total_uncompressed_size
    assert find_stretches(path, ["text", "other"])[0].largest_bytes > two.largest_bytes


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    stretch_bytes=st.integers(1, 5_000),
)
@PATIENT_AND_BRIEF
def test_stretches_cover_a_file(sizes: list[int], stretch_bytes: int) -> None:
    """Whatever the groups, every row is in one stretch, and stretches end where groups do."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowgroups, "_STRETCH_BYTES", stretch_bytes)
        path = Path(name) / "a.parquet"
        table = pa.table({"text": pa.array(["甲乙丙"] * sum(sizes))})
        with pq.ParquetWriter(path, table.schema) as writer:
            for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
                writer.write_table(table.slice(start, size))
        stretches = find_stretches(path, ["text"])
    bounds = [0, *(stretch.stop for stretch in stretches)]
    assert [stretch.start for stretch in stretches] == bounds[:-1]
    assert bounds[-1] == sum(sizes)
    assert set(bounds) <= set(np.cumsum([0, *sizes]).tolist())
    assert [stretch.end_byte for stretch in stretches] == sorted({stretch.end_byte for stretch in stretches})


def test_a_row_group_is_decoded_once_for_a_shard(
    reading: Reading, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows it has: reading it in parts would fetch it whole for each."""
    path = folder / "a.parquet"
    pl.DataFrame({"text": [f"第{row}行" for row in range(100_000)]}).write_parquet(path, row_group_size=100_000)
    spec, frozen = reading.spec(path), reading.frozen(path)
    with monkeypatch.context() as patch:
        scan = Mock(wraps=pl.scan_parquet)
        patch.setattr(pl, "scan_parquet", scan)
        assert len(read_rows(spec, frozen, [RowSpan(0, 0, 100_000)]).texts) == 100_000
    assert scan.call_count == 1


@pytest.mark.usefixtures("reader")
def test_both_readers_give_the_same(reading: Reading, folder: Path) -> None:
    """What a column holds does not depend on the size of its row groups."""
    write(
        folder,
        pa.table(
            {
                "text": pa.array(["甲", None]).dictionary_encode(),
                "n": pa.array([1, None], pa.int16()),
                "ts": pa.array([0, None], pa.timestamp("ns", "Asia/Shanghai")),
                "tags": pa.array([["a"], None]),
                "part": pa.array([{"x": 1}, None]),
                "day": pa.array([1, None], pa.date32()),
                "price": pa.array([1, None]).cast(pa.decimal128(24, 2)),
                "flag": pa.array([True, None]),
            }
        ),
    )
    rows = reading.rows(folder, keep="all")
    assert rows.texts == ["甲", ""]
    assert str(rows.carried.schema["ts"]) == "Datetime(time_unit='ns', time_zone='Asia/Shanghai')"
    assert rows.carried.drop("ts", "price").rows()[0] == ("甲", 1, ["a"], {"x": 1}, dt.date(1970, 1, 2), True)
    assert rows.carried.rows()[1][:4] == (None, None, None, None)


def test_hive_folders_are_not_read(reading: Reading, folder: Path) -> None:
    """Folder names are no columns unless asked for, and then strings, beside a column kept in the file (case I10)."""
    (folder / "code=01").mkdir()
    frame(pl.Int64, 7).write_parquet(folder / "code=01" / "p.parquet")
    assert reading.rows(folder, keep="all").carried.columns == ["text", "id"]
    kept = reading.rows(folder, keep=("id",), partitions="keep").carried
    assert kept.rows(named=True) == [{"id": 7, "code": "01"}]
    frame(pl.Int64, 7, name="code").write_parquet(folder / "code=01" / "p.parquet")
    with pytest.raises(InputError, match="'code' is a carried column and a folder name"):
        reading.rows(folder, keep=("code",), partitions="keep")
