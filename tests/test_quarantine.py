"""Damaged records as the input has them: whole, in any encoding, found by their position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from batchzs.errors import InputError
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.raw import read_raw_records
from batchzs.prepare import read_spec
from tests.builders import make_job, odd_folder

if TYPE_CHECKING:
    from pathlib import Path


def raw(path: Path, rows: list[int], **settings: Any) -> dict[int, str]:
    """Freeze one file and read some of its records."""
    spec = read_spec(make_job(input={"path": [str(path)], "text": ["text"], **settings}))
    (file,) = freeze_inputs(spec, find_files(spec, [])).files
    return read_raw_records(spec, file, rows)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gb18030"])
def test_csv_records_are_counted_as_the_reader_counts_them(tmp_path: Path, encoding: str) -> None:
    """Blank lines and the header are no records, and a quoted text may run over lines."""
    path = odd_folder(tmp_path) / "a.csv"
    path.write_bytes('text,n\r\n股市,1\r\n\r\n"球\n队",2\r\n坏,3,4\r\n尾,5'.encode(encoding))
    assert raw(path, [0, 1, 3], encoding=encoding) == {0: "股市,1", 1: '"球\n队",2', 3: "尾,5"}
    assert raw(path, [2], encoding=encoding) == {2: "坏,3,4"}


def test_tabs_and_other_delimiters_and_no_quotes(tmp_path: Path) -> None:
    """The job's dialect holds."""
    path = tmp_path / "a.tsv"
    path.write_text('text\tn\n"股\t1\n', encoding="utf-8")
    assert raw(path, [0], csv={"quote": None}) == {0: '"股\t1'}


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """They become U+FFFD, and the rest of the record is there."""
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "甲"}\n\n{"text": "乙'.encode() + b'\xff"}\n{"text": 3}\n')
    assert raw(path, [1, 2]) == {1: '{"text": "乙\ufffd"}', 2: '{"text": 3}'}


def test_many_blocks(tmp_path: Path) -> None:
    """A record far into a file is found from its own block's beginning."""
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "".join(f"第{row}条\n" for row in range(25_000)), encoding="utf-8")
    assert raw(path, [0, 9_999, 10_000, 24_999]) == {row: f"第{row}条" for row in (0, 9_999, 10_000, 24_999)}


def test_a_record_that_is_not_there(tmp_path: Path) -> None:
    """A row number that a damaged shard made up is refused."""
    path = tmp_path / "a.csv"
    path.write_text("text\n股市\n", encoding="utf-8")
    with pytest.raises(InputError, match="the records are not where they were"):
        raw(path, [5])
