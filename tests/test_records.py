"""Records are written whole, and one that cannot be read counts as absent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from batchzs.records import RunRecord, ShardRecord, SplitRecord, read_json, read_record, write_record
from tests.builders import make_job, odd_folder, run_record, shard_record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder with an odd name."""
    return odd_folder(tmp_path)


def test_records_come_back_as_they_were(folder: Path) -> None:
    """A shard's and a run's, with nested records, Chinese names, floats, nulls."""
    shard = shard_record(
        labels={"科技": 3}, score_s=0.1 + 0.2, splits=(SplitRecord(shape="8", batch_tokens=9, limit_tokens=4),)
    )
    run = run_record(make_job(threshold=0.3), test_hook={"stand_in": True})
    for path, record in ((folder / "part-00000.json", shard), (folder / "run.json", run)):
        write_record(path, record, folder)
        assert read_record(path, type(record)) == record
    assert sorted(path.name for path in folder.iterdir()) == ["part-00000.json", "run.json"]


def test_a_record_is_json_that_people_can_read(folder: Path) -> None:
    """Names stand as they are, one field a line, and the file ends with a line end."""
    path = folder / "part-00000.json"
    write_record(path, shard_record(), folder)
    text = path.read_text(encoding="utf-8")
    assert '"科技": 5' in text
    assert text.endswith("}\n")
    assert len(text.splitlines()) > 20
    assert json.loads(text)["num_rows"] == 5


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"{", b"[]", b"null", b"\xff\xfe", b'{"index": 0}', b'{"index": "many"}'],
)
def test_torn_empty_and_alien_files_are_no_records(folder: Path, content: bytes) -> None:
    """A full disk or a crash leaves such files; what is done is derived from the shards."""
    path = folder / "part-00000.json"
    path.write_bytes(content)
    assert read_record(path, ShardRecord) is None
    assert read_record(folder / "absent.json", ShardRecord) is None
    assert read_record(folder, ShardRecord) is None


def test_a_record_cut_off_anywhere_is_none(folder: Path) -> None:
    """No beginning of a record is a record."""
    path = folder / "part-00000.json"
    write_record(path, shard_record(), folder)
    whole = path.read_bytes()
    for size in range(0, len(whole) - 2, 17):
        path.write_bytes(whole[:size])
        assert read_record(path, ShardRecord) is None


def test_another_kind_or_an_unknown_field_is_no_record(folder: Path) -> None:
    """A file of another batchzs is not half understood."""
    path = folder / "record.json"
    write_record(path, shard_record(), folder)
    assert read_record(path, RunRecord) is None
    path.write_text(json.dumps(shard_record().model_dump() | {"color": "red"}), encoding="utf-8")
    assert read_record(path, ShardRecord) is None


def test_json_is_read_or_none(folder: Path) -> None:
    """For files that are no records."""
    path = folder / "inputs.json"
    path.write_text('{"a": [1]}', encoding="utf-8")
    assert read_json(path) == {"a": [1]}
    path.write_bytes(b'{"a": [1')
    assert read_json(path) is None
    assert read_json(folder / "absent.json") is None
