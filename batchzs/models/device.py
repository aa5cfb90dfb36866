"""Which device scores, in which precision, with how many threads.

`auto` takes the first NVIDIA GPU, `all` every one. They fall back to the CPU only on a machine that shows no NVIDIA
device at all: where one is present or allotted and torch cannot use it, the run stops, because a night on the CPU by
accident is worse than an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from batchzs.counted import counted
from batchzs.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping

Precision = Literal["fp32", "fp16", "bf16"]
RequestedPrecision = Literal["auto", "fp32", "fp16", "bf16"]
DeviceKind = Literal["cpu", "cuda"]

#: Set by Slurm and by users to say which GPUs a process may use.
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")

#: How torch is told to allocate, from 2.9 on by the first; what the user set stays.
ALLOCATOR_VARIABLES = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}


@dataclass(frozen=True, slots=True)
class Placement:
    """A device as torch names it, its kind, and its name for people."""

    device: str
    kind: DeviceKind
    name: str


def find_device(requested: str) -> Placement:
    """Settle `engine.device`.

    Args:
        requested: auto, cpu, cuda, cuda:N, or all, of which this is the first.

    Raises:
        MachineError: the device is not there, or a GPU is and torch cannot use it.
    """
    if requested != "cpu" and not os.environ.keys() & ALLOCATOR_VARIABLES:
        # Batches of many sizes leave an allocator of fixed segments with free memory that none of them fits into.
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    if requested == "cpu":
        return Placement("cpu", "cpu", _cpu_name())
    if torch.cuda.is_available():
        device = "cuda:0" if requested in ("auto", "cuda", "all") else requested
        index = int(device.partition(":")[2])
        if index >= torch.cuda.device_count():
            raise MachineError(
                f"engine.device is {requested}, but this machine shows {counted(torch.cuda.device_count(), 'GPU')}, "
                "numbered from 0"
            )
        return Placement(device, "cuda", torch.cuda.get_device_name(index))
    evidence = nvidia_evidence(os.environ, Path("/"))
    if requested in ("auto", "all") and evidence is None:
        return Placement("cpu", "cpu", _cpu_name())
    found = f"{evidence}, but torch {torch.__version__} cannot use it" if evidence else "no NVIDIA GPU on this machine"
    raise MachineError(
        f"engine.device is {requested}: {found}. Install a torch build with CUDA that fits the driver, "
        "or set engine.device: cpu"
    )


def all_gpus() -> tuple[Placement, ...]:
    """The GPUs that torch can use: those that CUDA_VISIBLE_DEVICES shows, numbered as it lists them."""
    import torch

    return tuple(
        Placement(f"cuda:{index}", "cuda", torch.cuda.get_device_name(index))
        for index in range(torch.cuda.device_count())
    )


def nvidia_evidence(environ: Mapping[str, str], root: Path) -> str | None:
    """Say what shows that this machine has, or this process was allotted, an NVIDIA GPU; None if nothing does.

    Args:
        environ: the process's environment.
        root: the file system's root, another one in tests.
    """
    for path in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/nvidia0"):
        if (root / path).exists():
            return f"/{path} is there"
    for name in GPU_VARIABLES:
        if environ.get(name, "") not in ("", "-1", "none", "NoDevFiles"):
            return f"{name} is {environ[name]!r}"
    return None


def choose_precision(requested: RequestedPrecision, kind: DeviceKind) -> tuple[Precision, str | None]:
    """Settle `engine.precision` for a device.

    Returns:
        The precision, and a notice where it is another one than the job names.

    >>> choose_precision("fp16", "cpu")
    ('fp32', 'fp16 is slow on a CPU: scoring in fp32')
    """
    if kind == "cuda":
        return ("fp16" if requested == "auto" else requested), None
    if requested == "fp16":
        return "fp32", "fp16 is slow on a CPU: scoring in fp32"
    if requested == "auto":
        return ("bf16" if cpu_has_bf16_units() else "fp32"), None
    return requested, None


def cpu_has_bf16_units() -> bool:
    """Whether the processor multiplies bf16 in hardware: AMX tiles, or AVX-512's dot products."""
    import torch

    # torch has no public way to ask; both have been there under these names since 2.6.
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()  # noqa: SLF001


def granted_cpus(environ: Mapping[str, str], cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """How many CPUs this process may keep busy: its affinity mask, its cgroup's quota, Slurm's grant, the least.

    Args:
        environ: the process's environment.
        cgroup: the cgroup v2 quota file, another one in tests.
    """
    limits = [len(os.sched_getaffinity(0))]
    try:
        quota, period = cgroup.read_text(encoding="ascii").split()
        if quota != "max":
            limits.append(max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no cgroup v2 here, or none that limits
    if environ.get("SLURM_CPUS_PER_TASK", "").isdecimal():
        limits.append(max(1, int(environ["SLURM_CPUS_PER_TASK"])))
    return min(limits)


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "CPU"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
