"""What a run computes with: the device, the precision, the threads and the batch size that `auto` comes to.

Settled once, at the first attempt, and used again on the same kind of device: a resumed shard is scored in the batches
that it would have been scored in.
"""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.engine import EngineSettings
from batchzs.errors import MachineError
from batchzs.models.device import Placement, all_gpus, choose_precision, cpu_has_bf16_units, find_device, granted_cpus
from batchzs.records import Resolved
from batchzs.scoring import CloseCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchzs.engine import PairModel
    from batchzs.job import JobConfig
    from batchzs.models.classes import ClassIndices
    from batchzs.models.device import DeviceKind, Precision
    from batchzs.models.opening import OpenedModel
    from batchzs.test_hook import TestHook

logger = logging.getLogger(__name__)

#: Tokens of a batch. On a CPU larger ones gain nothing, their activations leaving the caches; on a GPU this many keep
#: it busy and fit beside a base-size model on the smallest cards in use.
MAX_BATCH_TOKENS: dict[DeviceKind, int] = {"cpu": 4096, "cuda": 65536}
#: One puts the next batch together and queues it while the other's runs.
GPU_WORKERS = 2
#: More labels than this are planned and sorted a chunk at a time, which bounds what sorting needs beside the plan.
LABELS_PER_CHUNK = 64
#: A stop ends a run within these seconds, and a batch is a quarter of that or of `checkpoint_seconds` at most.
STOP_S = 20.0
BATCH_SHARE = 0.25
MIN_BATCH_TOKENS = 128
#: Of a GPU's free memory, what a batch may take: the allocator loses some of it to fragments, and other processes come.
MEMORY_SHARE = 0.6
STAND_IN = Placement("stand-in", "cpu", "stand-in model")


def place(job: JobConfig, hook: TestHook) -> Placement:
    """Find the job's device.

    Raises:
        MachineError: it is not there or cannot be used.
    """
    return STAND_IN if hook.stand_in else find_device(job.engine.device)


def place_workers(job: JobConfig, first: Placement) -> list[Placement]:
    """Find the device of each process of a run on all devices: one a GPU; on a CPU `engine.workers` processes.

    Args:
        job: the job.
        first: what `place` found.
    """
    return list(all_gpus()) if first.kind == "cuda" else [first] * num_workers(job, first.kind)


def release_device_memory(kind: DeviceKind) -> None:
    """Give a device back what a model held that is gone: torch keeps it, and other processes wait for it."""
    if kind == "cuda":
        import torch

        torch.cuda.empty_cache()


def resolve(job: JobConfig, placement: Placement, hook: TestHook) -> Resolved:
    """Settle what the job leaves to `auto`, at a run's first attempt."""
    precision, notice = _precision(job, placement.kind, hook)
    if notice is not None:
        logger.warning(notice)
    if precision != "fp32" and not job.rescores_close(precision):
        logger.warning(
            "scoring in %s: where two labels are nearly tied, another one may win than in fp32; engine.rescore_close: "
            "true has such rows scored again",
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


def bounded_batch_tokens(job: JobConfig, planned_tokens: int, tokens_per_s: float, fitting_tokens: float) -> int:
    """The budget that the job leaves to `auto`, made smaller where the device is slow or its memory small.

    A batch must not outlast what a kill may cost (`engine.checkpoint_seconds`), nor the time in which a stop ends.

    Args:
        job: the job.
        planned_tokens: the budget on a usual device.
        tokens_per_s: what a worker was measured to score.
        fitting_tokens: what the device's free memory was measured to hold.

    Returns:
        `planned_tokens` where it fits, otherwise a power of two, so that noise in a measurement seldom shows.
    """
    limit = min(tokens_per_s * min(job.engine.checkpoint_seconds, STOP_S) * BATCH_SHARE, fitting_tokens)
    return planned_tokens if planned_tokens <= limit else 2 ** int(math.log2(max(limit, MIN_BATCH_TOKENS)))


def settle_batch_tokens(job: JobConfig, resolved: Resolved, loaded: LoadedPairModel) -> Resolved:
    """Make the budget that the job leaves to `auto` fit what was measured of the loaded model."""
    if job.engine.max_batch_tokens != "auto":
        return resolved
    budget = bounded_batch_tokens(job, resolved.max_batch_tokens, loaded.tokens_per_s, loaded.fitting_tokens)
    if budget < resolved.max_batch_tokens:
        logger.info("%d tokens a batch: this device is slower or smaller than usual", budget)
    return resolved.model_copy(update={"max_batch_tokens": budget})


def engine_settings(job: JobConfig, resolved: Resolved, classes: ClassIndices) -> EngineSettings:
    """What the engine plans and scores by."""
    is_close = None
    if resolved.rescore_margin is not None:
        is_close = CloseCalls(
            classes,
            as_multi_label=job.scored_as_multi_label,
            threshold=job.resolved_threshold,
            margin=resolved.rescore_margin,
        )
    return EngineSettings(
        max_length=job.engine.max_length,
        truncate=job.engine.truncate,
        max_batch_tokens=resolved.max_batch_tokens,
        labels_per_chunk=resolved.labels_per_chunk,
        num_workers=resolved.workers,
        is_close=is_close,
    )


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
    """How many batches are scored at once: as many as there are CPUs for them, two on a GPU."""
    if job.engine.workers != "auto":
        return job.engine.workers
    return granted_cpus(os.environ) if kind == "cpu" else GPU_WORKERS


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


@dataclass(frozen=True, slots=True)
class LoadedPairModel:
    """A model on its device, and what was measured of it there."""

    model: PairModel
    tokens_per_s: float  # of one worker
    fitting_tokens: float  # what free memory holds


def load_pair_model(
    opened: OpenedModel,
    placement: Placement,
    resolved: Resolved,
    hook: TestHook,
    on_step: Callable[[], None] = lambda: None,
) -> LoadedPairModel:
    """Load the model onto its device, and try it there; `on_step` is called now and then, and may end that.

    Raises:
        ModelError: the weights are damaged or incomplete.
    """
    if hook.stand_in:
        from batchzs.test_hook import StandInModel

        return LoadedPairModel(StandInModel(hook), math.inf, math.inf)
    import torch

    from batchzs.models.allocator import keep_freed_memory
    from batchzs.models.loaded import LoadedModel
    from batchzs.models.self_check import probe_pairs

    torch.set_num_threads(resolved.threads)
    if placement.kind == "cpu":
        keep_freed_memory()
    checkpoint, tokenizer = opened.checkpoint, opened.tokenizer
    model = LoadedModel(checkpoint, placement.device, resolved.precision)
    on_step()
    pairs = (tokenizer.layout, checkpoint.vocab_size, checkpoint.max_length)
    tokens_per_s = model.check(probe_pairs(*pairs), on_step)
    if placement.kind == "cpu":
        return LoadedPairModel(model, tokens_per_s, math.inf)
    # What a few pairs take a GPU says nothing of its pace: the large probe does, which memory is measured with as well.
    large = probe_pairs(*pairs, [128] * 64)
    bytes_per_token = model.bytes_per_token(large)
    started_s = time.monotonic()
    model.forward(large)
    tokens_per_s = large.num_tokens / max(time.monotonic() - started_s, 1e-6)
    free_bytes, _ = torch.cuda.mem_get_info(placement.device)
    return LoadedPairModel(model, tokens_per_s, MEMORY_SHARE * free_bytes / max(bytes_per_token, 1.0))


def _precision(job: JobConfig, kind: DeviceKind, hook: TestHook) -> tuple[Precision, str | None]:
    if hook.stand_in:
        return "fp32", None
    return choose_precision(job.engine.precision, kind)
