"""Which files an input path means, in which order, and what is refused."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from batchzs.errors import InputError
from batchzs.inputs.discovery import find_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.inputs.conftest import Reading


def touch(folder: Path, *names: str) -> None:
    """Write files of a few bytes."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"text\n")


def names_of(
    reading: Reading, path: Path | str | tuple[str, ...], exclude: tuple[Path, ...] = (), **changes: Any
) -> list[str]:
    """Return the found files' names."""
    return [file.name for file in find_files(reading.spec(path, **changes), exclude)]


def test_file_is_found_with_its_folder_as_root(reading: Reading, folder: Path) -> None:
    """A single file's name is its own, and size and time are those on disk."""
    touch(folder, "a.csv")
    (found,) = find_files(reading.spec(folder / "a.csv"), [])
    status = (folder / "a.csv").stat()
    assert (found.name, found.format, found.partitions) == ("a.csv", "csv", ())
    assert (found.size_bytes, found.mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert found.path == folder / "a.csv"


def test_natural_order(reading: Reading, folder: Path) -> None:
    """part-2 comes before part-10, in sub-folders too."""
    touch(folder, "part-10.csv", "part-2.csv", "d10/x.csv", "d9/x.csv", "part-02.csv")
    assert names_of(reading, folder) == ["d9/x.csv", "d10/x.csv", "part-02.csv", "part-2.csv", "part-10.csv"]


def test_directory_takes_known_endings_only(
    reading: Reading,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Markers, checksums, temporary and foreign files are skipped and counted (case I13)."""
    touch(folder, "p1.parquet", "_SUCCESS", ".p1.parquet.crc", "p2.parquet.tmp", "README.md", "_tmp/p.pq", "sub/p3.PQ")
    with caplog.at_level(logging.INFO, logger="batchzs"):
        assert names_of(reading, folder) == ["p1.parquet", "sub/p3.PQ"]
    assert "skipped 5 names" in caplog.text


@pytest.mark.parametrize(
    ("names", "file_format"),
    [(["a.tsv", "b.tab"], "tsv"), (["a.jsonl", "b.ndjson"], "jsonl"), (["a.parquet", "b.pq"], "parquet")],
)
def test_endings(reading: Reading, folder: Path, names: list[str], file_format: str) -> None:
    """Each format has two endings."""
    touch(folder, *names)
    assert {file.format for file in find_files(reading.spec(folder), [])} == {file_format}


def test_stated_format_takes_every_file(reading: Reading, folder: Path) -> None:
    """With a format given, endings do not matter (Hive writes none); names with _ or . stay out."""
    touch(folder, "000000_0", "000001_0", "_SUCCESS", ".hidden", "x.txt")
    assert names_of(reading, folder, format="csv") == ["000000_0", "000001_0", "x.txt"]


def test_existing_path_is_no_glob(reading: Reading, folder: Path) -> None:
    """A path that exists is taken literally before it is taken as a glob."""
    touch(folder, "a[1].csv", "a1.csv")
    assert names_of(reading, folder / "a[1].csv") == ["a[1].csv"]
    assert names_of(reading, folder) == ["a1.csv", "a[1].csv"]


def test_glob(reading: Reading, tmp_path: Path) -> None:
    """A glob's root is its longest folder without magic; hidden and foreign files are left out."""
    touch(
        tmp_path,
        "new [2024]/a.csv",
        "new [2024]/b/c.csv",
        "in/x/b10.csv",
        "in/x/b9.csv",
        "in/y/c.csv",
        "in/x/_b.csv",
        "in/x/.b.csv",
        "in/x/b.csv.tmp",
    )
    assert names_of(reading, tmp_path / "in/*/*") == ["x/b9.csv", "x/b10.csv", "y/c.csv"]
    assert names_of(reading, tmp_path / "in/x/b*.csv") == ["b9.csv", "b10.csv"]
    assert names_of(reading, tmp_path / "in/x/_*.csv") == ["_b.csv"]
    assert names_of(reading, tmp_path / "new [2024]/*") == ["a.csv", "b/c.csv"]


def test_recursive_glob(reading: Reading, tmp_path: Path) -> None:
    """`**` reaches any depth, and no file twice."""
    touch(tmp_path, "a.csv", "x/b.csv", "x/y/c.csv")
    assert names_of(reading, tmp_path / "**/*.csv") == ["a.csv", "x/b.csv", "x/y/c.csv"]
    assert names_of(reading, tmp_path / "**") == ["a.csv", "x/b.csv", "x/y/c.csv"]


def test_glob_of_directories(reading: Reading, tmp_path: Path) -> None:
    """A directory that a glob matches is taken as a directory."""
    touch(tmp_path, "day-1/a.csv", "day-2/deep/b.csv", "other/c.csv")
    assert names_of(reading, tmp_path / "day-*") == ["day-1/a.csv", "day-2/deep/b.csv"]


def test_list_keeps_its_order(reading: Reading, folder: Path) -> None:
    """Items come as listed, each in natural order; names are relative to the common parent."""
    touch(folder, "z/2.csv", "z/10.csv", "a/1.csv")
    path = (str(folder / "z"), str(folder / "a" / "1.csv"))
    assert names_of(reading, path) == ["z/2.csv", "z/10.csv", "a/1.csv"]


def test_file_reached_twice_is_refused(reading: Reading, folder: Path) -> None:
    """The same file twice, also through a link, would count its rows double."""
    touch(folder, "a.csv")
    (folder / "b.csv").symlink_to(folder / "a.csv")
    with pytest.raises(InputError, match=r"b\.csv: is reached twice"):
        names_of(reading, folder)


def test_own_output_is_not_input(reading: Reading, folder: Path) -> None:
    """The job's output below the input directory is left out, and refused where it is named itself."""
    touch(folder, "a.csv", "out/scores/part-0.csv", "outer/b.csv")
    assert names_of(reading, folder, exclude=(folder / "out",)) == ["a.csv", "outer/b.csv"]
    with pytest.raises(InputError, match="own output"):
        names_of(reading, folder / "out/scores/part-0.csv", exclude=(folder / "out",))


def test_linked_folders_are_followed(reading: Reading, tmp_path: Path) -> None:
    """A linked folder counts; a link to a folder above itself is refused instead of followed for ever."""
    touch(tmp_path, "in/a.csv", "elsewhere/b.csv")
    (tmp_path / "in/link").symlink_to(tmp_path / "elsewhere")
    assert names_of(reading, tmp_path / "in") == ["a.csv", "link/b.csv"]
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    with pytest.raises(InputError, match="link to a folder above itself"):
        names_of(reading, tmp_path / "in")


def test_partitions_are_strings_as_in_the_path(reading: Reading, folder: Path) -> None:
    """Folder names give strings with their leading zeros and Hive's escapes undone (case I10)."""
    touch(folder, "day=01/city=a%2Fb/p.csv", "day=02/city=c=d/p.csv")
    found = find_files(reading.spec(folder, partitions="keep"), [])
    assert [file.partitions for file in found] == [(("day", "01"), ("city", "a/b")), (("day", "02"), ("city", "c=d"))]
    assert [file.partitions for file in find_files(reading.spec(folder), [])] == [(), ()]


@pytest.mark.parametrize("pattern", ["", "day=*", "day=*/*.csv", "**/*.csv", "*/p.csv"])
def test_partitions_do_not_depend_on_how_the_files_are_named(reading: Reading, tmp_path: Path, pattern: str) -> None:
    """A directory and globs over it give the same columns (case I10)."""
    touch(tmp_path, "day=01/p.csv", "day=2A/p.csv")
    found = find_files(reading.spec(tmp_path / pattern, partitions="keep"), [])
    assert [file.partitions for file in found] == [(("day", "01"),), (("day", "2A"),)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["day=1/p.csv", "p.csv"], r"p\.csv: its folder names give the keys none"),
        (["day=%FF/p.csv"], "not UTF-8"),
        (["k=1/k=2/p.csv"], "occurs twice"),
    ],
)
def test_partitions_that_do_not_fit(reading: Reading, folder: Path, names: list[str], message: str) -> None:
    """All files have the same keys, each once, and as text."""
    touch(folder, *names)
    with pytest.raises(InputError, match=message):
        names_of(reading, folder, partitions="keep")


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        ([], "missing.csv", "no such file or directory"),
        ([], "*.csv", r"\*\.csv: nothing matches"),
        (["x.md"], "", "no readable files"),
        (["x.md"], "*", "no readable files"),
        (["_SUCCESS"], "", r"no readable files \(1 skipped"),
        (["x.md"], "x.md", "set input.format"),
        (["x"], "x", "set input.format"),
        (["x.csv.gz"], "x.csv.gz", "decompress"),
        (["a.csv", "b.jsonl.zst"], "", "decompress"),
        (["a.csv", "b.tsv"], "", r"a\.csv is csv and .*b\.tsv is tsv"),
    ],
)
def test_refusals(reading: Reading, tmp_path: Path, names: list[str], path: str, message: str) -> None:
    """What cannot be read is refused before anything is opened, and named (cases I11, I13)."""
    touch(tmp_path, *names)
    with pytest.raises(InputError, match=message):
        names_of(reading, tmp_path / path)


def test_compressed_text_is_refused_with_a_format(reading: Reading, folder: Path) -> None:
    """A stated format does not make a compressed file readable."""
    touch(folder, "a.txt.xz")
    with pytest.raises(InputError, match="decompress"):
        names_of(reading, folder, format="csv")


def test_empty_file_is_refused(reading: Reading, folder: Path) -> None:
    """A file of no bytes is a writer's accident, not an input without rows (case I11)."""
    touch(folder, "a.csv")
    (folder / "b.csv").touch()
    with pytest.raises(InputError, match=r"b\.csv: the file has no bytes"):
        names_of(reading, folder)


def test_name_that_is_no_text(reading: Reading, folder: Path) -> None:
    """A name that is not UTF-8 could not be written to `source_file`."""
    (folder / os.fsdecode(b"\xb5\xda.csv")).write_bytes(b"text\n")
    with pytest.raises(InputError, match="not UTF-8"):
        names_of(reading, folder)


def test_pipe_is_refused(reading: Reading, folder: Path) -> None:
    """A named pipe cannot be read twice."""
    os.mkfifo(folder / "a.csv")
    with pytest.raises(InputError, match="not a regular file"):
        names_of(reading, folder / "a.csv")
