"""The frozen input as JSON, and held against the files of now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import InputError
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.frozen import check_unchanged, input_set_from_json, input_set_to_json
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import CarriedColumn, FoundFile, InputFile, InputSet, RowSpan, SeekPoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.inputs.conftest import Reading

from pathlib import Path

counts = st.integers(0, 2**62)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8)


@st.composite
def input_files(draw: st.DrawFn) -> InputFile:
    """Draw a frozen file."""
    num_rows = draw(st.integers(1, 2**40))
    rows = [0, *sorted(draw(st.sets(st.integers(1, num_rows - 1), max_size=4)))] if num_rows > 1 else [0]
    return InputFile(
        found=FoundFile(
            path=Path("/") / draw(words),
            name=draw(words),
            format=draw(st.sampled_from(["parquet", "csv", "tsv", "jsonl"])),
            size_bytes=draw(counts),
            mtime_ns=draw(st.integers(-(2**62), 2**62)),
            partitions=tuple(draw(st.lists(st.tuples(words, words), max_size=2))),
        ),
        digest=draw(words),
        num_rows=num_rows,
        num_bad_rows=draw(counts),
        seek_points=tuple(SeekPoint(row, draw(counts), draw(counts)) for row in rows),
        bad_blocks=tuple(sorted(draw(st.sets(st.integers(0, len(rows) - 1))))),
        field_names=tuple(draw(st.lists(words, max_size=3))),
    )


input_sets = st.builds(
    InputSet,
    files=st.lists(input_files(), max_size=3).map(tuple),
    carried=st.lists(st.builds(CarriedColumn, words, words), max_size=3).map(tuple),
)


@given(input_sets)
def test_json_round_trip(input_set: InputSet) -> None:
    """A frozen input survives the state file."""
    assert input_set_from_json(json.loads(json.dumps(input_set_to_json(input_set)))) == input_set


def _broken(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    found = FoundFile(path=Path("/a.csv"), name="a.csv", format="csv", size_bytes=9, mtime_ns=9, partitions=())
    points = (SeekPoint(0, 5, 2), SeekPoint(5, 7, 4))
    file = InputFile(found, "d", num_rows=9, num_bad_rows=0, seek_points=points, bad_blocks=(1,), field_names=("text",))
    record = input_set_to_json(InputSet(files=(file,), carried=(CarriedColumn("id", "String"),)))
    change(record)
    return record


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("files"),
        lambda record: record.update(version=2),
        lambda record: record.update(carried=[["id"]]),
        lambda record: record.update(files=[None]),
        lambda record: record["files"][0].update(format="orc"),
        lambda record: record["files"][0].update(num_rows="9"),
        lambda record: record["files"][0].update(num_rows=-1),
        lambda record: record["files"][0].update(size_bytes=True),
        lambda record: record["files"][0].update(digest=None),
        lambda record: record["files"][0].update(bad_blocks=[2]),
        lambda record: record["files"][0].update(seek_points=[[0, 5, 2], [0, 7, 4]]),
        lambda record: record["files"][0].update(seek_points=[[1, 5, 2]]),
        lambda record: record["files"][0].update(num_rows=5),
    ],
)
def test_nonsense_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    """A state file that was damaged or written by another version is refused, not half understood."""
    input_set_from_json(_broken(lambda record: record))
    with pytest.raises(InputError, match="the frozen input"):
        input_set_from_json(_broken(change))


@pytest.fixture
def frozen(reading: Reading, folder: Path) -> InputSet:
    """Freeze two files."""
    (folder / "1.csv").write_text("text\n甲\n")
    (folder / "2.csv").write_text("text\n乙\n")
    return reading.frozen(folder)


def found_now(reading: Reading, folder: Path) -> tuple[FoundFile, ...]:
    """Find the files again."""
    return find_files(reading.spec(folder), [])


def test_unchanged_files_are_not_read(
    reading: Reading,
    folder: Path,
    frozen: InputSet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Same size and time: unchanged, without opening anything."""
    monkeypatch.setattr("pathlib.Path.open", None)
    assert check_unchanged(frozen, found_now(reading, folder)) == frozen


def test_touched_file_is_the_same(reading: Reading, folder: Path, frozen: InputSet) -> None:
    """Another time but the same content: the digest decides, and the new time is taken over."""
    os.utime(folder / "1.csv", ns=(1, 1))
    checked = check_unchanged(frozen, found_now(reading, folder))
    assert checked.files[0].found.mtime_ns == 1
    assert checked.files[0].digest == frozen.files[0].digest


def test_moved_tree_is_the_same(reading: Reading, folder: Path, frozen: InputSet, tmp_path: Path) -> None:
    """Names count, not where the tree is mounted; the rows are read from the new place."""
    folder.rename(tmp_path / "moved")
    checked = check_unchanged(frozen, found_now(reading, tmp_path / "moved"))
    assert read_rows(reading.spec(""), checked, [RowSpan(1, 0, 1)]).texts == ["乙"]


def test_changes_are_refused_by_name(reading: Reading, folder: Path, frozen: InputSet) -> None:
    """A changed, missing, additional or reordered file is refused, naming it."""
    before = (folder / "1.csv").read_bytes()
    (folder / "1.csv").write_text("text\n丙\n")
    os.utime(folder / "1.csv", ns=(1, 1))
    with pytest.raises(InputError, match=r"1\.csv: has changed"):
        check_unchanged(frozen, found_now(reading, folder))
    (folder / "1.csv").write_text("text\n甲甲\n")
    with pytest.raises(InputError, match=r"1\.csv: has changed"):
        check_unchanged(frozen, found_now(reading, folder))
    (folder / "1.csv").write_bytes(before)
    (folder / "0.csv").write_text("text\n零\n")
    with pytest.raises(InputError, match=r"not begun with: 0\.csv"):
        check_unchanged(frozen, found_now(reading, folder))
    (folder / "0.csv").unlink()
    with pytest.raises(InputError, match=r"another order .*: 2\.csv"):
        check_unchanged(frozen, tuple(reversed(found_now(reading, folder))))
    with pytest.raises(InputError, match=r"is read as tsv now"):
        check_unchanged(frozen, find_files(reading.spec(folder, format="tsv"), []))
    with pytest.raises(InputError, match=r"folder names give other columns"):
        check_unchanged(frozen, [replace(file, partitions=(("a", "b"),)) for file in found_now(reading, folder)])
    (folder / "2.csv").unlink()
    with pytest.raises(InputError, match=r"lacks files .*: 2\.csv"):
        check_unchanged(frozen, found_now(reading, folder))


def test_change_during_the_first_pass(reading: Reading, folder: Path) -> None:
    """A file that is still being written is refused."""
    (folder / "a.csv").write_text("text\n甲\n")
    spec = reading.spec(folder)
    found = find_files(spec, [])
    with (folder / "a.csv").open("a") as stream:
        stream.write("乙\n")
    with pytest.raises(InputError, match=r"a\.csv: changed while it was read"):
        freeze_inputs(spec, found)


def test_change_during_the_second_pass(reading: Reading, folder: Path, frozen: InputSet) -> None:
    """A file that changes or goes away under a run ends it: its positions would mean other rows."""
    spec = reading.spec(folder)
    (folder / "1.csv").write_text("text\n丙丙\n")
    with pytest.raises(InputError, match=r"1\.csv: has changed while the run went on"):
        read_rows(spec, frozen, [RowSpan(0, 0, 1)])
    (folder / "2.csv").unlink()
    with pytest.raises(InputError, match=r"2\.csv: cannot be read any more"):
        read_rows(spec, frozen, [RowSpan(1, 0, 1)])


def test_finished_jobs_need_no_polars() -> None:
    """Finding files and holding them against the frozen ones loads neither Polars nor pyarrow."""
    code = (
        "import sys, batchzs.inputs.discovery, batchzs.inputs.frozen, batchzs.inputs.rows, batchzs.inputs.spec;"
        "print([name for name in ('polars', 'pyarrow', 'torch', 'transformers') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "[]\n"
