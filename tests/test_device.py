"""Which device, precision and threads: never the CPU by accident, never more CPUs than were granted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from batchzs.errors import MachineError
from batchzs.models import device
from batchzs.models.device import (
    all_gpus,
    choose_precision,
    cpu_has_bf16_units,
    find_device,
    granted_cpus,
    nvidia_evidence,
)
from tests.builders import odd_folder

if TYPE_CHECKING:
    from batchzs.models.device import DeviceKind, RequestedPrecision


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system's root."""
    return odd_folder(tmp_path)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where torch finds no GPU, and which shows none."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(device, "nvidia_evidence", lambda *_: None)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs that torch can use."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")


@pytest.mark.parametrize("name", ["proc/driver/nvidia/version", "dev/nvidiactl", "dev/nvidia0"])
def test_a_driver_or_device_file_shows_a_gpu(root: Path, name: str) -> None:
    """The message names the file."""
    assert nvidia_evidence({}, root) is None
    (root / name).parent.mkdir(parents=True)
    (root / name).write_bytes(b"")
    assert nvidia_evidence({}, root) == f"/{name} is there"


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"])
def test_a_variable_shows_an_allotted_gpu(root: Path, name: str) -> None:
    """Slurm allots a GPU by them; the values that allot none are none."""
    assert nvidia_evidence({name: "0,1"}, root) == f"{name} is '0,1'"
    for value in ("", "-1", "none", "NoDevFiles"):
        assert nvidia_evidence({name: value}, root) is None


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_where_there_is_no_gpu_at_all() -> None:
    """So is `all`, and `cpu` always is."""
    for requested in ("auto", "all", "cpu"):
        placement = find_device(requested)
        assert (placement.device, placement.kind) == ("cpu", "cpu")
        assert placement.name


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("requested", ["cuda", "cuda:1"])
def test_a_gpu_that_is_asked_for_and_not_there_is_refused(requested: str) -> None:
    """Case M4: no silent fallback."""
    with pytest.raises(MachineError, match=f"engine.device is {requested}: no NVIDIA GPU on this machine"):
        find_device(requested)


@pytest.mark.parametrize(
    ("requested", "variable", "expected"),
    [("cuda", None, "expandable_segments:True"), ("cpu", None, None), ("cuda", "PYTORCH_CUDA_ALLOC_CONF", None)],
)
@pytest.mark.usefixtures("two_gpus")
def test_the_allocator_is_told_of_batches_of_many_sizes(
    monkeypatch: pytest.MonkeyPatch, requested: str, variable: str | None, expected: str | None
) -> None:
    """On a GPU, unless the user has told it something (case O5)."""
    monkeypatch.setattr(os, "environ", {} if variable is None else {variable: "max_split_size_mb:64"})
    find_device(requested)
    assert os.environ.get("PYTORCH_ALLOC_CONF") == expected


@pytest.mark.parametrize("requested", ["auto", "all", "cuda", "cuda:0"])
def test_a_gpu_that_torch_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch, requested: str) -> None:
    """A night on the CPU by accident is worse than an error: the message says what shows the GPU and what to do."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(MachineError, match=r"CUDA_VISIBLE_DEVICES is '3', but torch .* cannot use it\. Install"):
        find_device(requested)
    assert find_device("cpu").kind == "cpu"


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("requested", "found"), [("auto", 0), ("all", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_the_first_gpu_or_the_one_asked_for(requested: str, found: int) -> None:
    """With its index in the device's name, so that it stays the same device."""
    placement = find_device(requested)
    assert (placement.device, placement.kind, placement.name) == (f"cuda:{found}", "cuda", f"GPU {found}")


@pytest.mark.usefixtures("two_gpus")
def test_all_gpus_are_those_that_torch_shows() -> None:
    """By CUDA_VISIBLE_DEVICES, which torch heeds; each keeps its index."""
    assert [(each.device, each.kind, each.name) for each in all_gpus()] == [
        ("cuda:0", "cuda", "GPU 0"),
        ("cuda:1", "cuda", "GPU 1"),
    ]


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_beyond_the_last_is_refused() -> None:
    """The message says how many there are."""
    with pytest.raises(MachineError, match=r"engine\.device is cuda:2, but this machine shows 2 GPU"):
        find_device("cuda:2")


@pytest.mark.parametrize(
    ("requested", "kind", "has_units", "precision", "is_told"),
    [
        ("auto", "cuda", False, "fp16", False),
        ("auto", "cpu", True, "bf16", False),
        ("auto", "cpu", False, "fp32", False),
        ("fp32", "cuda", False, "fp32", False),
        ("fp32", "cpu", True, "fp32", False),
        ("fp16", "cuda", False, "fp16", False),
        ("fp16", "cpu", True, "fp32", True),
        ("bf16", "cuda", False, "bf16", False),
        ("bf16", "cpu", False, "bf16", False),
    ],
)
def test_precision(
    monkeypatch: pytest.MonkeyPatch,
    requested: RequestedPrecision,
    kind: DeviceKind,
    *,
    has_units: bool,
    precision: str,
    is_told: bool,
) -> None:
    """What is asked for is done; only fp16 on a CPU becomes fp32, with a notice; auto takes the fast one."""
    monkeypatch.setattr(device, "cpu_has_bf16_units", lambda: has_units)
    chosen, notice = choose_precision(requested, kind)
    assert chosen == precision
    assert (notice is not None) == is_told


def test_torch_still_tells_of_bf16_units() -> None:
    """The names in torch that are not public are there."""
    assert cpu_has_bf16_units() in (True, False)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 8),
        ("400000 100000", 4),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("", 8),
        ("what", 8),
    ],
)
def test_cpus_by_the_cgroups_quota(root: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int) -> None:
    """A container's quota counts in whole CPUs, at least one; a file that says nothing limits nothing."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    path = root / "cpu.max"
    path.write_text(quota + "\n", encoding="ascii")
    assert granted_cpus({}, path) == expected


@pytest.mark.parametrize(
    ("variable", "expected"), [("3", 3), ("16", 8), ("0", 1), ("", 8), ("many", 8), ("-2", 8), ("²", 8)]
)
def test_cpus_by_slurms_grant(monkeypatch: pytest.MonkeyPatch, root: Path, variable: str, expected: int) -> None:
    """The least of affinity, quota and grant."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert granted_cpus({"SLURM_CPUS_PER_TASK": variable}, root / "absent") == expected


def test_cpus_are_the_least_of_all_limits(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Affinity 8, quota 6, Slurm 5."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (root / "cpu.max").write_text("600000 100000\n", encoding="ascii")
    assert granted_cpus({}, root / "cpu.max") == 6
    assert granted_cpus({"SLURM_CPUS_PER_TASK": "5"}, root / "cpu.max") == 5
