"""What a run will need on disk, said beside what is free."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pytest

from batchzs.inputs.rows import FoundFile, InputFile
from batchzs.space import carried_bytes, compare_space, estimated_bytes
from tests.builders import make_job

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.inputs.rows import InputFormat


class Usage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


def input_file(path: Path, input_format: InputFormat = "parquet") -> InputFile:
    """A file as the first pass leaves it, as far as its size goes."""
    return InputFile(FoundFile(path, path.name, input_format, path.stat().st_size, 0, ()), "", 1000, 0, (), (), ())


def test_estimate_by_hand() -> None:
    """Two labels: 24 + 2 * 4 + 2 * 12 = 56 bytes a row, and 24 a row for the journal of the one shard under way."""
    job = make_job(labels=["科技", "体育"], output__shard_rows=1000)
    assert estimated_bytes(job, num_rows=10_000, carried=0) == 10_000 * 56 + 1000 * 24


def test_carried_columns_are_counted_as_they_lie_in_parquet_files(tmp_path: Path) -> None:
    """Without the texts, which are most of an input and are not carried; nested columns whole; of text files all."""
    path = tmp_path / "新闻 [1].parquet"
    table = {"id": list(range(1000)), "tags": [{"a": "x", "b": place} for place in range(1000)]}
    pl.DataFrame({**table, "text": [f"第{place}条" * 300 for place in range(1000)]}).write_parquet(path)
    alone = tmp_path / "alone.parquet"
    pl.DataFrame(table).write_parquet(alone)
    files = [input_file(path), input_file(path)]
    assert carried_bytes(make_job(), files) == 0
    assert carried_bytes(make_job(input__keep="all"), files) == 2 * path.stat().st_size
    carried = carried_bytes(make_job(input__keep=["id", "tags"]), files)
    assert carried == pytest.approx(2 * alone.stat().st_size, rel=0.3)
    assert carried_bytes(make_job(input__keep=["id"]), [input_file(path, "csv")]) == path.stat().st_size
    job = make_job(input__keep=["id"])
    assert estimated_bytes(job, 10, 5000) - estimated_bytes(job, 10, 0) == 5000


def test_a_top_n_without_logits_takes_less() -> None:
    """Only what is written counts."""
    job = make_job(labels=["科技", "体育"], output={"path": "/out", "scores": 1, "logits": False, "shard_rows": 1000})
    assert estimated_bytes(job, 10_000, 0) == 10_000 * (24 + 8) + 1000 * 24


@pytest.mark.parametrize(("free", "level"), [(2_000_000, "INFO"), (1_000_000, "WARNING")])
def test_both_numbers_are_said(
    free: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning where the need is larger; the run is not refused, since an estimate may be wrong."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free))
    with caplog.at_level("INFO", logger="batchzs"):
        compare_space(tmp_path, 1_500_000)
    (record,) = caplog.records
    assert record.levelname == level
    assert record.getMessage().startswith(f"disk: about 1.5 MB needed, {free / 1e6:.1f} MB free in ")
