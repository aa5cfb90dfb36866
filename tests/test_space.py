"""What a run will need on disk, said beside what is free."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from batchzs.space import compare_space, estimated_bytes
from tests.builders import make_job

if TYPE_CHECKING:
    from pathlib import Path


class Usage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


def test_estimate_by_hand() -> None:
    """Two labels: 24 + 2 * 4 + 2 * 12 = 56 bytes a row, and 24 a row for the journal of the one shard under way."""
    job = make_job(labels=["科技", "体育"], output__shard_rows=1000)
    assert estimated_bytes(job, num_rows=10_000, input_bytes=777) == 10_000 * 56 + 1000 * 24


def test_carried_columns_are_taken_to_need_as_much_as_the_input() -> None:
    """What they hold is not known before it is read."""
    plain, carrying = make_job(), make_job(input__keep=["id"])
    assert estimated_bytes(carrying, 10, 5000) - estimated_bytes(plain, 10, 5000) == 5000


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
