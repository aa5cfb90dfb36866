"""Sections of `bench.gpu` that say where the time goes.

Not run by itself; see `bench/gpu.py`.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from batchzs.models.packed_bert import PackedBert
from batchzs.models.weights import load_weights
from bench.gpu_speed import assemble, evenly_chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from batchzs.engine import Engine, PreparedTexts
    from batchzs.pairs import PackedPairs, TextTokenizer, TokenLists
    from bench.gpu_setup import Deadline, Subject

_Result = TypeVar("_Result")

#: Enough batches for medians, few enough for the section's time.
_MAX_TIMED_BATCHES = 24
_TOP_KERNELS = 15
_MAX_ROUNDS = 9


class _TimedTokenizer:
    """The tokenizer, and the seconds that it took."""

    def __init__(self, inner: TextTokenizer) -> None:
        self._inner = inner
        self.layout = inner.layout
        self.seconds = 0.0

    def encode(self, texts: Sequence[str]) -> TokenLists:
        """Tokenise texts."""
        started_s = time.perf_counter()
        tokens = self._inner.encode(texts)
        self.seconds += time.perf_counter() - started_s
        return tokens


def breakdown(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Say how the time divides at the usual budget, each step by itself and waited for."""
    sizes = subject.checkpoint.encoder
    network = PackedBert(load_weights(subject.checkpoint), sizes, subject.device, subject.precision)
    return {kind: _steps(subject, network, texts, deadline) for kind, texts in subject.texts.items()}


def beside_preparing(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Score while another thread prepares texts all the time, as a run does now and then for its next shard.

    Threads take turns in Python, and each of a batch's kernels waits for a turn: how long a turn lasts may matter. One
    run of each says nothing of that, so the ways take turns themselves, and their quartiles are given.
    """
    texts = subject.texts["headlines"]
    engine = subject.engine(subject.scale.usual_batch_tokens, 2)
    prepared = engine.prepare(texts[: max(1, len(texts) // 8)])
    usual_s = sys.getswitchinterval()
    ways = (("alone", usual_s), ("beside", usual_s), ("beside_with_short_turns", usual_s / 20))
    rates: dict[str, list[float]] = {name: [] for name, _ in ways}
    engine.score_prepared(prepared)
    for turn in range(_MAX_ROUNDS if subject.scale.max_repeats > 1 else 2):
        for name, turn_s in ways[turn % 3 :] + ways[: turn % 3]:
            if deadline.has_passed and all(rates.values()):
                break
            seconds = _score_beside(engine, prepared, [] if name == "alone" else texts, turn_s)
            rates[name].append(prepared.plan.num_tokens / seconds)
    return {
        "turn_ms": usual_s * 1e3,
        "scoring_tokens_per_s": {name: round(statistics.median(values)) for name, values in rates.items()},
        "rounds": {name: [round(value) for value in values] for name, values in rates.items()},
    }


def _score_beside(engine: Engine, prepared: PreparedTexts, texts: Sequence[str], turn_s: float) -> float:
    """Seconds to score, with a thread beside that prepares texts, if there are any, until it is done."""
    is_over = threading.Event()

    def prepare_again() -> None:
        while texts and not is_over.is_set():
            engine.prepare(texts)

    before_s = sys.getswitchinterval()
    with ThreadPoolExecutor(1) as pool:
        sys.setswitchinterval(turn_s)
        try:
            pool.submit(prepare_again)
            started_s = time.perf_counter()
            engine.score_prepared(prepared)
            return time.perf_counter() - started_s
        finally:
            is_over.set()
            sys.setswitchinterval(before_s)


def _steps(subject: Subject, network: PackedBert, texts: Sequence[str], deadline: Deadline) -> dict[str, Any]:
    tokenizer = _TimedTokenizer(subject.tokenizer)
    engine = subject.engine(subject.scale.usual_batch_tokens, 1, tokenizer=tokenizer)
    tokenizer.seconds = 0.0
    started_s = time.perf_counter()
    prepared = engine.prepare(texts)
    plan_s = time.perf_counter() - started_s - tokenizer.seconds
    batches = evenly_chosen(prepared.plan.batches, _MAX_TIMED_BATCHES)
    totals: dict[str, float] = defaultdict(float)
    tokens = 0
    with torch.inference_mode():
        network.forward(assemble(prepared, batches[0]))
        for batch in batches:
            pairs = _timed(subject, totals, "assemble", partial(assemble, prepared, batch))
            on_device = _timed(subject, totals, "copy", partial(network.upload, pairs))
            started_s = time.perf_counter()
            logits = network.logits(on_device)
            totals["queue"] += time.perf_counter() - started_s  # on a GPU: until its kernels are all queued
            subject.synchronize()
            totals["forward"] += time.perf_counter() - started_s
            _timed(subject, totals, "fetch", logits.cpu)
            tokens += pairs.num_tokens
            if deadline.has_passed:
                break
    share = tokens / prepared.plan.num_tokens
    seconds = {"tokenise": tokenizer.seconds, "plan": plan_s}
    seconds |= {name: totals[name] / share for name in ("assemble", "copy", "forward", "fetch")}
    whole = sum(seconds.values())
    return {
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "shares": {name: round(value / whole, 4) for name, value in seconds.items()},
        "queue_share_of_forward": round(totals["queue"] / totals["forward"], 4),
        "timed_share_of_batches": round(share, 4),
        "one_batch": _profiled(subject, network, assemble(prepared, batches[len(batches) // 2])),
    }


def _timed(subject: Subject, totals: dict[str, float], name: str, step: Callable[[], _Result]) -> _Result:
    started_s = time.perf_counter()
    result = step()
    subject.synchronize()
    totals[name] += time.perf_counter() - started_s
    return result


def _profiled(subject: Subject, network: PackedBert, pairs: PackedPairs) -> dict[str, Any]:
    """One batch under torch's profiler: what its kernels take, and how much of its time the device is idle."""
    network.forward(pairs)
    seconds = []
    for _ in range(5):
        started_s = time.perf_counter()
        network.forward(pairs)
        seconds.append(time.perf_counter() - started_s)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if subject.is_cuda else [])]
    with profile(activities=activities) as profiler:
        network.forward(pairs)
        subject.synchronize()
    kernels = [
        (event.key, event.count, event.self_device_time_total if subject.is_cuda else event.self_cpu_time_total)
        for event in profiler.key_averages()
        if (event.device_type.name == "CUDA") == subject.is_cuda
    ]
    kernels.sort(key=lambda kernel: -kernel[2])
    busy_s = sum(micros for _, _, micros in kernels) / 1e6
    wall_s = statistics.median(seconds)
    return {
        "shape": pairs.shape,
        "tokens": pairs.num_tokens,
        "wall_ms": round(wall_s * 1e3, 3),
        "kernels_ms": round(busy_s * 1e3, 3),
        "num_kernels": sum(count for _, count, _ in kernels),
        "device_idle_share": round(1 - busy_s / wall_s, 4) if subject.is_cuda else None,
        "top_kernels": [
            {"name": name[:160], "count": count, "ms": round(micros / 1e3, 3)}
            for name, count, micros in kernels[:_TOP_KERNELS]
        ],
    }
