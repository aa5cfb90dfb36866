"""What a run computes with: the device, the precision, the threads and the batch size that `auto` comes to.

Settled once, at the first attempt, and used again on the same kind of device: a resumed shard is scored in the batches
that it would have been scored in.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from batchzs.errors import MachineError
from batchzs.models.device import Placement, choose_precision, cpu_has_bf16_units, find_device, granted_cpus
from batchzs.records import Resolved

if TYPE_CHECKING:
    from batchzs.engine import PairModel
    from batchzs.job import JobConfig
    from batchzs.models.checkpoint import Checkpoint
    from batchzs.models.device import DeviceKind, Precision
    from batchzs.test_hook import TestHook

logger = logging.getLogger(__name__)

#: Tokens of a batch. On a CPU larger ones gain nothing, their activations leaving the caches; on a GPU this many keep
#: it busy and fit beside a base-size model on the smallest cards in use.
MAX_BATCH_TOKENS: dict[DeviceKind, int] = {"cpu": 4096, "cuda": 65536}
#: More labels than this are planned and sorted a chunk at a time, which bounds what sorting needs beside the plan.
LABELS_PER_CHUNK = 64
STAND_IN = Placement("stand-in", "cpu", "stand-in model")


def place(job: JobConfig, hook: TestHook) -> Placement:
    """Find the job's device.

    Raises:
        MachineError: it is not there or cannot be used.
    """
    return STAND_IN if hook.stand_in else find_device(job.engine.device)


def resolve(job: JobConfig, placement: Placement, hook: TestHook) -> Resolved:
    """Settle what the job leaves to `auto`, at a run's first attempt."""
    precision, notice = _precision(job, placement.kind, hook)
    if notice is not None:
        logger.warning(notice)
    if precision != "fp32":
        logger.warning(
            "scoring in %s: where two labels are nearly tied, another one may win than in fp32; scoring such rows "
            "again (engine.rescore_close) is not built yet",
            precision,
        )
    return Resolved(
        device_kind=placement.kind,
        precision=precision,
        threads=num_threads(placement.kind),
        workers=num_workers(job, placement.kind),
        shard_rows=job.resolved_shard_rows,
        max_batch_tokens=max_batch_tokens(job, placement.kind),
        labels_per_chunk=(LABELS_PER_CHUNK if job.engine.labels_per_chunk == "auto" else job.engine.labels_per_chunk),
    )


def max_batch_tokens(job: JobConfig, kind: DeviceKind) -> int:
    """The token budget that batches are planned with on a kind of device."""
    return MAX_BATCH_TOKENS[kind] if job.engine.max_batch_tokens == "auto" else job.engine.max_batch_tokens


def num_threads(kind: DeviceKind) -> int:
    """Threads inside a worker: one on a CPU, where workers are the threads; all that are granted beside a GPU."""
    return 1 if kind == "cpu" else granted_cpus(os.environ)


def refuse_slow_bf16(placement: Placement) -> None:
    """Do nothing where the processor multiplies bf16 in hardware.

    Raises:
        MachineError: it does not; in software the night would not be enough.
    """
    if placement != STAND_IN and not cpu_has_bf16_units():
        raise MachineError(
            f"this run was begun in bf16, which {placement.name} does not multiply in hardware: go on on a machine "
            "that does, or say that you mean it with engine.precision: bf16"
        )


def num_workers(job: JobConfig, kind: DeviceKind) -> int:
    """How many batches are scored at once: as many as there are CPUs for them, one on a GPU."""
    if job.engine.workers != "auto":
        return job.engine.workers
    return granted_cpus(os.environ) if kind == "cpu" else 1


def precision_again(job: JobConfig, begun: Resolved, hook: TestHook) -> Precision:
    """The precision that this job asks for in a run that has begun: what `auto` came to then stays."""
    if job.engine.precision == "auto":
        return begun.precision
    return _precision(job, begun.device_kind, hook)[0]


def adopt(job: JobConfig, begun: Resolved, placement: Placement) -> Resolved:
    """Take over what a run's first attempt settled, on the device of this attempt.

    Raises:
        MachineError: this device cannot do the run's precision.
    """
    if begun.precision == "fp16" and placement.kind == "cpu":
        raise MachineError(
            f"this run was begun in fp16 on a GPU, and this machine's device is {placement.name}: "
            "go on where there is a GPU, or begin anew with --restart"
        )
    if begun.precision == "bf16" and placement.kind == "cpu" and job.engine.precision == "auto":
        refuse_slow_bf16(placement)
    if placement.kind == begun.device_kind:
        # The number of workers changes no bit: never more than this machine grants.
        return begun.model_copy(update={"workers": min(begun.workers, num_workers(job, placement.kind))})
    logger.warning("this run was begun on %s and goes on on %s", begun.device_kind, placement.kind)
    update = {
        "max_batch_tokens": max_batch_tokens(job, placement.kind),
        "workers": num_workers(job, placement.kind),
        "threads": num_threads(placement.kind),
    }
    return begun.model_copy(update=update)


def load_pair_model(checkpoint: Checkpoint, placement: Placement, resolved: Resolved, hook: TestHook) -> PairModel:
    """Load the model onto its device.

    Raises:
        ModelError: the weights are damaged or incomplete.
    """
    if hook.stand_in:
        from batchzs.test_hook import StandInModel

        return StandInModel(hook)
    import torch

    from batchzs.models.loaded import LoadedModel

    torch.set_num_threads(resolved.threads)
    return LoadedModel(checkpoint, placement.device, resolved.precision)


def _precision(job: JobConfig, kind: DeviceKind, hook: TestHook) -> tuple[Precision, str | None]:
    if hook.stand_in:
        return "fp32", None
    return choose_precision(job.engine.precision, kind)
