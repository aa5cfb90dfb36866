"""The script for a GPU runs from end to end on a CPU, where none of what a GPU machine lacks is there either."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from batchzs.models.checkpoint import EncoderConfig
from batchzs.models.packed_bert import PackedBert
from bench import gpu
from bench.gpu_setup import Deadline, forward_flops
from bench.gpu_speed import evenly_chosen
from tests.builders import network_config, packed, reference_network

ROOT = Path(__file__).parents[1]
#: Importing any of them is an error in what follows.
ABSENT = ("polars", "pyarrow", "pydantic", "modelscope", "click")
WITHOUT = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({ABSENT!r}))
sys.argv[0] = "bench.gpu"
runpy.run_module("bench.gpu", run_name="__main__", alter_sys=True)
"""


def run_bench(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the script from the repository's root; returns what it printed and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments],
        cwd=ROOT,
        env=os.environ | {"OUT": str(folder), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=300,
    )
    path = folder / "gpu.json"
    return done, json.loads(path.read_bytes()) if path.exists() else {}


@pytest.mark.slow
def test_the_dry_run_goes_through_every_section(tmp_path: Path) -> None:
    """Each section is there, none is broken, and what is checked holds."""
    done, report = run_bench(tmp_path / "新 [1]", "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    names = list(report)[1:]
    assert names[:5] == ["machine", "parity", "memory", "matrix_rate", "throughput"]
    assert names[5:] == ["breakdown", "beside_preparing", "peers", "alternatives", "compiled"]
    assert [line for line in done.stdout.splitlines() if line.startswith("==")] == [f"== {name}" for name in names]
    assert not any("error" in report[name] or "skipped" in report[name] for name in names)
    assert report["parity"]["ok"] is report["memory"]["ok"] is True
    assert report["memory"]["splits"] > 0
    assert report["memory"]["pairs_scored"] == report["memory"]["pairs"] == 9 * report["memory"]["texts"]
    assert {(row["kind"], row["batch_tokens"], row["workers"]) for row in report["throughput"]["rows"]} == {
        (kind, budget, workers) for kind in ("headlines", "bodies") for budget in (2048, 4096) for workers in (1, 2)
    }
    assert report["throughput"]["goal"]["reached"] is False
    assert report["throughput"]["usual_bodies"]["batch_tokens"] == 2048
    assert "estimates_for_other_gpus" not in report["throughput"]  # from a CPU nothing follows for them
    for kind in ("headlines", "bodies"):
        assert sum(report["breakdown"][kind]["shares"].values()) == pytest.approx(1, abs=0.01)
        assert len(report["breakdown"][kind]["one_batch"]["top_kernels"]) == 15
    assert min(report["beside_preparing"]["scoring_tokens_per_s"].values()) > 0
    assert report["peers"]["transformers_pipeline"]["batchzs_is_faster_by"] > 0
    assert len(report["alternatives"]["ms"]) == 10
    assert report["compiled"]["largest_logit_difference"] < 1e-4


def test_one_section_alone(tmp_path: Path) -> None:
    """For another look at it, without the others' time."""
    done, report = run_bench(tmp_path, "--dry-run", "--only", "machine")
    assert done.returncode == 0, done.stderr
    assert list(report) == ["dry_run", "machine"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    """And measures nothing that could be taken for a GPU's figures."""
    done, report = run_bench(tmp_path)
    assert (done.returncode, report) == (2, {})
    assert "torch sees no GPU here" in done.stderr


def test_a_section_that_breaks_or_lasts_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raised is its result; one that does not end is broken off; without time none is begun."""
    monkeypatch.setattr(gpu, "GRACE_S", 0.05)
    subject: Any = None

    def breaks(*_: object) -> dict[str, Any]:
        raise RuntimeError("no kernel image is available")

    def lasts(*_: object) -> dict[str, Any]:
        time.sleep(60)
        return {}

    def keeps_to_its_time(_: object, deadline: Deadline) -> dict[str, Any]:
        return {"left_s": deadline.left_s}

    whole = Deadline(30)
    broken = gpu.run_section(gpu.Section("a", 5, breaks), subject, whole)
    assert broken["error"] == "RuntimeError: no kernel image is available"
    assert "SectionTimeoutError" in gpu.run_section(gpu.Section("b", 0.05, lasts), subject, whole)["error"]
    assert 0 < gpu.run_section(gpu.Section("c", 5, keeps_to_its_time), subject, whole)["left_s"] <= 5
    assert gpu.run_section(gpu.Section("d", 5, breaks), subject, Deadline(1)) == {"skipped": "no time left"}


def test_flops_are_those_that_torch_counts() -> None:
    """One run of equal lengths, and several: every product of the forward, and nothing else."""
    config = network_config(num_hidden_layers=3)
    sizes = EncoderConfig(**{key: value for key, value in config.items() if key != "model_type"})
    weights = {key.removeprefix("bert."): value for key, value in reference_network(config).state_dict().items()}
    network = PackedBert(weights, sizes, "cpu", "fp32")
    for texts in ([[5] * 9] * 4, [[5] * 20, [5] * 20, [5] * 7, []]):
        pairs = packed(texts, [[7, 8]] * len(texts))
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # which is made of products
            network.forward(pairs)
        assert counter.get_total_flops() == forward_flops(pairs.lengths, sizes)


def test_chosen_batches_reach_from_first_to_last() -> None:
    """Never more than there are, and none twice."""
    batches = [slice(index, index + 1) for index in range(10)]
    assert evenly_chosen(batches, 4) == [batches[index] for index in (0, 3, 6, 9)]
    assert evenly_chosen(batches, 99) == batches
    assert evenly_chosen(batches[:1], 5) == batches[:1]
    assert evenly_chosen(batches, 1) == batches[:1]
