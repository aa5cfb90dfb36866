"""Sections of `bench.gpu` that say how fast texts are scored.

Not run by itself; see `bench/gpu.py`.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from batchzs.models.classes import ClassIndices
from batchzs.models.packed_bert import PackedBert
from batchzs.models.weights import load_weights
from batchzs.scoring import scores_from_logits
from bench.gpu_setup import Deadline, Subject, forward_flops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.engine import PreparedTexts
    from batchzs.pairs import PackedPairs

_CLASSES = ClassIndices(0, 2, 1)
GOAL_TOKENS_PER_S = 2.5e6
#: Dense fp16 with fp32 sums, TFLOP/s, by the vendor's data sheets, and what share of it large products reach.
_DATASHEET_TFLOPS = {"A100": 312.0, "L40S": 362.0}
_REACHED_SHARE = 0.8
_SHOWN = (
    *("batch_tokens", "workers", "tokens_per_s", "pairs_per_s"),
    *("scoring_tokens_per_s", "flops_per_token", "share_of_matrix_rate"),
)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Texts to scores, once."""

    prepare_s: float
    score_s: float
    num_pairs: int
    num_tokens: int
    flops: int

    @property
    def total_s(self) -> float:
        """Tokenising, planning, scoring."""
        return self.prepare_s + self.score_s


def score_once(subject: Subject, texts: Sequence[str], batch_tokens: int, workers: int) -> _Measured:
    """Tokenise, plan and score texts."""
    engine = subject.engine(batch_tokens, workers)
    subject.synchronize()
    started_s = time.perf_counter()
    prepared = engine.prepare(texts)
    prepared_s = time.perf_counter()
    logits = engine.score_prepared(prepared).logits
    scores_from_logits(logits, _CLASSES, as_multi_label=False)
    ended_s = time.perf_counter()
    lengths = prepared.plan.lengths
    flops = forward_flops(lengths, subject.checkpoint.encoder)
    return _Measured(prepared_s - started_s, ended_s - prepared_s, len(lengths), int(lengths.sum()), flops)


def throughput(subject: Subject, deadline: Deadline, best_tflops: float | None) -> dict[str, Any]:
    """Score both kinds of texts with every budget and number of workers, in turn, as often as time allows."""
    scale = subject.scale
    configurations = [
        (kind, budget, workers) for kind in subject.texts for budget in scale.batch_tokens for workers in scale.workers
    ]
    for kind, budget, workers in configurations:
        if workers == max(scale.workers):  # warm-up: kernels chosen, memory taken
            texts = subject.texts[kind]
            score_once(subject, texts[: max(1, len(texts) // 4)], budget, workers)
    runs: dict[tuple[str, int, int], list[_Measured]] = defaultdict(list)
    for _ in range(scale.max_repeats):
        for configuration in configurations:
            if deadline.has_passed:
                break
            kind, budget, workers = configuration
            runs[configuration].append(score_once(subject, subject.texts[kind], budget, workers))
    rows = [_row(*configuration, measured, best_tflops) for configuration, measured in runs.items()]
    result: dict[str, Any] = {"rows": rows, "configurations_left_out": len(configurations) - len(rows)}
    for kind in subject.texts:
        own = [row for row in rows if row["kind"] == kind]
        if own:
            best = max(own, key=lambda row: row["tokens_per_s"])
            result[f"best_{kind}"] = {name: best[name] for name in _SHOWN}
            # The best of a dozen is partly luck. What a run takes by itself is chosen before anything is measured.
            usual = [row for row in own if (row["batch_tokens"], row["workers"]) == (scale.usual_batch_tokens, 2)]
            result |= {f"usual_{kind}": {name: row[name] for name in _SHOWN} for row in usual}
    if "usual_headlines" in result:
        usual_rate, best_rate = (result[f"{which}_headlines"]["tokens_per_s"] for which in ("usual", "best"))
        result["goal"] = {
            "tokens_per_s": GOAL_TOKENS_PER_S,
            "reached": usual_rate >= GOAL_TOKENS_PER_S,
            "share": round(usual_rate / GOAL_TOKENS_PER_S, 3),
            "reached_by_best": best_rate >= GOAL_TOKENS_PER_S,
        }
        if subject.is_cuda and result["usual_headlines"]["share_of_matrix_rate"]:
            result["estimates_for_other_gpus"] = _estimates(result["usual_headlines"])
    return result


def _row(
    kind: str, budget: int, workers: int, measured: Sequence[_Measured], best_tflops: float | None
) -> dict[str, Any]:
    one = measured[0]
    total_s, score_s = (statistics.median(getattr(run, name) for run in measured) for name in ("total_s", "score_s"))
    tflops = one.flops / score_s / 1e12
    return {
        "kind": kind,
        "batch_tokens": budget,
        "workers": workers,
        "repeats": len(measured),
        "tokens_per_pair": round(one.num_tokens / one.num_pairs, 1),
        "tokens_per_s": round(one.num_tokens / total_s),
        "pairs_per_s": round(one.num_pairs / total_s),
        "scoring_tokens_per_s": round(one.num_tokens / score_s),  # tokenised and planned before
        "tflops": round(tflops, 4),
        "flops_per_token": round(one.flops / one.num_tokens),
        "share_of_matrix_rate": round(tflops / best_tflops, 4) if best_tflops else None,
        "total_s": [round(run.total_s, 3) for run in measured],
    }


def _estimates(usual: dict[str, Any]) -> dict[str, Any]:
    """What other GPUs should do: the same share of their fp16 matrix rate, which is that of their data sheets."""
    estimates: dict[str, Any] = {
        "note": f"estimates, not measured: this GPU's share of its matrix rate times {_REACHED_SHARE:.0%} of the data "
        "sheet's dense fp16 rate; slower memory, above all the L40S's, may take some of it"
    }
    for name, tflops in _DATASHEET_TFLOPS.items():
        estimates[name] = {
            "tokens_per_s": round(
                tflops * 1e12 * _REACHED_SHARE * usual["share_of_matrix_rate"] / usual["flops_per_token"]
            )
        }
    return estimates


def assemble(prepared: PreparedTexts, batch: slice) -> PackedPairs:
    """Put a planned batch together."""
    return prepared.assembler.assemble(prepared.plan.text_ids[batch], prepared.plan.label_ids[batch])


def evenly_chosen(batches: Sequence[slice], number: int) -> list[slice]:
    """At most `number` of the batches, from the longest pairs to the shortest."""
    return [batches[index] for index in np.unique(np.linspace(0, len(batches) - 1, number).astype(int))]


def compiled(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Compile the forward with torch.compile: what the first batches cost, and what the later ones gain."""
    sizes = subject.checkpoint.encoder
    network = PackedBert(load_weights(subject.checkpoint), sizes, subject.device, subject.precision)
    engine = subject.engine(subject.scale.usual_batch_tokens, 1)
    # On a CPU this is a trial of the script alone, and compiling, or tracing many runs of lengths, would outlast it.
    prepared = engine.prepare(subject.texts["headlines"][: None if subject.is_cuda else 1])
    batches = [assemble(prepared, batch) for batch in evenly_chosen(prepared.plan.batches, 12)]
    forward = torch.compile(network.logits, dynamic=True, backend="inductor" if subject.is_cuda else "eager")
    cold_s, difference = [], 0.0
    seconds: dict[str, list[float]] = {"eager": [], "compiled": []}
    with torch.inference_mode():
        for pairs in batches:
            started_s = time.perf_counter()
            logits = forward(network.upload(pairs))
            subject.synchronize()
            cold_s.append(round(time.perf_counter() - started_s, 3))
            difference = max(difference, float((logits - network.logits(network.upload(pairs))).abs().max()))
            if deadline.has_passed:
                return {"first_calls_s": cold_s, "note": "no time left to measure the rate"}
        for _ in range(5):
            for name, run in (("eager", network.logits), ("compiled", forward)):
                subject.synchronize()
                started_s = time.perf_counter()
                for pairs in batches:
                    run(network.upload(pairs))
                subject.synchronize()
                seconds[name].append(time.perf_counter() - started_s)
            if deadline.has_passed:
                break
    tokens = sum(pairs.num_tokens for pairs in batches)
    rates = {name: round(tokens / statistics.median(values)) for name, values in seconds.items()}
    return {
        "first_calls_s": cold_s,
        "largest_logit_difference": difference,
        "forward_tokens_per_s": rates,
        "ratio": round(rates["compiled"] / rates["eager"], 4),
    }
