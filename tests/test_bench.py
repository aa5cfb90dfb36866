"""Benchmarks run: a small round of each, whose figures nobody looks at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # nothing of the product depends on them

ROOT = Path(__file__).parent.parent


def run_bench(module: str, json_path: Path, *options: str) -> dict[str, object]:
    """Run a benchmark in a process of its own; returns what it wrote."""
    command = [sys.executable, "-m", module, *options, "--json", str(json_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(json_path.read_text(encoding="utf-8"))
    return result


def test_a_small_round_of_the_job_benchmark(tmp_path: Path) -> None:
    """A whole job beside its engine, and everything but the model."""
    options = ("--seconds", "1", "--turns", "1", "--num-labels", "9", "--feed-rows", "1000")
    result = run_bench("bench.job", tmp_path / "job.json", *options)
    assert set(result) == {"machine", "against_engine", "feed"}


@pytest.mark.slow
def test_a_small_round_of_the_scale_benchmark(tmp_path: Path) -> None:
    """Two sizes of each format."""
    result = run_bench("bench.scale", tmp_path / "scale.json", "--rows", "1000", "3000", "--repeats", "1")
    assert len(result["runs"]) == 4  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_small_round_of_the_precision_benchmark(tmp_path: Path) -> None:
    """fp32 and bf16 on a few sample texts."""
    result = run_bench("bench.precision", tmp_path / "precision.json", "--rows", "20")
    assert [row["precision"] for row in result["rows"]] == ["fp32", "bf16"]  # type: ignore[attr-defined]
