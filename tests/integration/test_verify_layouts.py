"""`batchzs verify` passes whatever a job lays out, as long as nothing happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Workshop

LAYOUTS: dict[str, dict[str, Any]] = {
    "multi-label": {"multi_label": True, "threshold": 0.6},
    "the best two and no logits": {"output": {"scores": 2, "logits": False, "prefix": "zs_"}, "threshold": 0.7},
    "scores and no logits": {"output": {"logits": False, "compression": "none"}, "threshold": 0.4},
    "neither": {"output": {"scores": "none", "logits": False, "compression": "snappy"}},
    "one label": {"labels": ["科技"]},
    "the best two of multi-label": {"output": {"scores": 2}, "multi_label": True},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_passes(standard: Workshop, name: str) -> None:
    """Whatever columns a job asks for, its undamaged output passes."""
    result = standard.run("run", standard.job(**LAYOUTS[name]))
    assert result.code == 0, result.stderr
    assert standard.findings() == []


@pytest.mark.parametrize("options", [("--sample", "25"), ("--limit", "47")])
def test_a_part_of_the_input_passes(standard: Workshop, options: tuple[str, str]) -> None:
    """The rows of a sample are those that its seed draws."""
    assert standard.run("run", standard.standard_job, *options).code == 0
    assert standard.findings() == []


def test_carried_columns_of_every_kind_pass(workshop: Workshop) -> None:
    """Numbers, times, lists and folder names are in the schema that is expected."""
    for day in ("01", "02"):
        folder = workshop.folder / f"输入/day={day}"
        folder.mkdir(parents=True)
        frame = pl.DataFrame({"text": ["股市", None, "球队"], "n": [1, 2, None], "tags": [["a"], [], None]})
        frame.with_columns(pl.lit("2026-11-30").str.to_datetime().alias("at")).write_parquet(folder / "a.parquet")
    job = workshop.job(input={"path": "输入", "keep": "all", "partitions": "keep"}, output={"prefix": "zs_"})
    result = workshop.run("run", job)
    assert result.code == 0, result.stderr
    assert workshop.findings() == []


def test_an_input_without_rows_passes(workshop: Workshop) -> None:
    """One shard without rows has its schema."""
    (workshop.folder / "空.csv").write_text("id,text\n", encoding="utf-8")
    assert workshop.run("run", workshop.job(input={"path": "空.csv"})).code == 0
    assert workshop.findings() == []
