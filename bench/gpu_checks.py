"""Sections of `bench.gpu` that say whether results are right: the machine, parity, running out of memory, matrix rate.

Not run by itself; see `bench/gpu.py`.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from batchzs.models.attention import RunAttention, Sequences, choose_attention
from batchzs.models.classes import ClassIndices
from batchzs.models.packed_bert import DTYPES, PackedBert
from batchzs.models.reference_bert import ReferenceBert
from batchzs.models.self_check import TOLERANCES, largest_difference, probe_pairs
from batchzs.models.weights import load_weights
from batchzs.scoring import rank_labels, scores_from_logits
from bench.gpu_setup import LABELS, MAX_LENGTH, Deadline, Subject
from bench.machine import describe_machine

if TYPE_CHECKING:
    from batchzs.engine import PairModel
    from batchzs.models.device import Precision
    from batchzs.pairs import PackedPairs

#: Mixed, longest first, as a batch has them; runs of equal lengths and lengths that occur once.
PARITY_LENGTHS = (
    *(512, 512, 511, 480, 399, 384, 300, 300, 257, 256, 200, 177),
    *[128] * 6,
    *[100, 90, 77, 65, 64, 63] * 2,
    *[33] * 20,
    *[20] * 9,
    *(17, 16, 15, 9, 8, 7, 6, 5),
)
_CLASSES = ClassIndices(0, 2, 1)
#: Largest rounding of attention's output, whose values are averages of numbers around 1, against fp32.
_ATTENTION_TOLERANCE = 0.02


def machine(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Name everything that the figures depend on."""
    del deadline
    found = describe_machine() | {
        "cuda": torch.version.cuda,
        "device": subject.device,
        "precision": subject.precision,
        "torch_threads": torch.get_num_threads(),
        "attention": type(_attention(subject)).__name__,
    }
    if subject.is_cuda:
        properties = torch.cuda.get_device_properties(subject.device)
        free_bytes, total_bytes = torch.cuda.mem_get_info(subject.device)
        found |= {
            "gpu": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_gib": round(total_bytes / 2**30, 1),
            "free_gib": round(free_bytes / 2**30, 1),
            "driver": _driver(),
        }
    return found


def _driver() -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return done.stdout.strip() or None


def _attention(subject: Subject) -> object:
    sizes = subject.checkpoint.encoder
    head_size = sizes.hidden_size // sizes.num_attention_heads
    return choose_attention(torch.device(subject.device), DTYPES[subject.precision], head_size)


def parity(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Hold the packed forward in each precision against the plain one in fp32, and the two ways of attention."""
    del deadline
    weights, sizes = load_weights(subject.checkpoint), subject.checkpoint.encoder
    pairs = probe_pairs(subject.tokenizer.layout, sizes.vocab_size, MAX_LENGTH, PARITY_LENGTHS)
    expected = ReferenceBert(weights, sizes, subject.device).forward(pairs)
    probabilities = _softmax(expected)
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "bf16") if subject.is_cuda else ("fp32", "bf16")
    differences = {
        precision: largest_difference(PackedBert(weights, sizes, subject.device, precision).forward(pairs), expected)
        for precision in precisions
    }
    attention = _attention_differences(subject)
    bits = _changed_logits(subject)
    within = all(value <= TOLERANCES[precision] for precision, value in differences.items())
    return {
        "pairs": len(pairs.lengths),
        "tokens": pairs.num_tokens,
        # Where pairs hardly differ from each other, a small difference would say nothing.
        "spread_of_probabilities": round(float(probabilities.std(axis=0).max()), 4),
        "largest_probability_difference": differences,
        "allowed": {precision: TOLERANCES[precision] for precision in precisions},
        "attention": attention,
        "logits_changed": bits,
        "ok": within
        and not any(bits.values())
        and max(attention["largest_difference_from_fp32"].values()) <= _ATTENTION_TOLERANCE,
    }


def _changed_logits(subject: Subject) -> dict[str, int]:
    """How many logits have other bits when the same batches are scored again, and by three workers at once."""
    texts = subject.texts["headlines"][: max(16, len(subject.texts["headlines"]) // 8)]
    budget = min(subject.scale.batch_tokens)
    first, again, at_once = (subject.engine(budget, workers).score(texts).logits for workers in (1, 1, 3))
    return {
        "by_scoring_again": int((first.view(np.int32) != again.view(np.int32)).sum()),
        "by_three_workers": int((first.view(np.int32) != at_once.view(np.int32)).sum()),
    }


def _attention_differences(subject: Subject) -> dict[str, Any]:
    """Both ways of attention in the run's precision against runs of equal lengths in fp32."""
    device = torch.device(subject.device)
    heads, hidden = subject.checkpoint.encoder.num_attention_heads, subject.checkpoint.encoder.hidden_size
    sequences = Sequences.of(np.array(PARITY_LENGTHS), device)
    draw = torch.Generator().manual_seed(1)
    projected = torch.randn(sum(PARITY_LENGTHS), 3 * hidden, generator=draw).to(device, DTYPES[subject.precision])
    chosen: Any = _attention(subject)
    outputs = {}
    with torch.inference_mode():
        for name, way, values in (
            ("exact", RunAttention(), projected.float()),
            ("runs", RunAttention(), projected),
            ("chosen", chosen, projected),
        ):
            everywhere = way.everywhere(values, sequences, heads)
            first = values.index_select(0, sequences.first_tokens)[:, :hidden]
            first_only = way.first_only(first.contiguous(), values[:, hidden:].contiguous(), sequences, heads)
            outputs[name] = torch.cat((everywhere, first_only)).float()
    return {
        "chosen": type(chosen).__name__,
        "largest_difference_from_fp32": {
            name: float((outputs[name] - outputs["exact"]).abs().max()) for name in ("runs", "chosen")
        },
        "largest_difference_between_them": float((outputs["runs"] - outputs["chosen"]).abs().max()),
    }


@dataclass
class _CountingModel:
    """A model that counts the pairs that it gave logits for, and fails above `limit_tokens` where there is a limit."""

    inner: PairModel
    limit_tokens: float = float("inf")
    num_pairs: list[int] = field(default_factory=list)  # of each batch that was scored; appending needs no lock

    @property
    def num_classes(self) -> int:
        """The model's."""
        return self.inner.num_classes

    @property
    def path(self) -> str:
        """The model's."""
        return self.inner.path

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """Score, or fail as a CPU's allocator does."""
        if pairs.num_tokens > self.limit_tokens:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory (a stand-in's failure)")
        logits = self.inner.forward(pairs)
        self.num_pairs.append(len(pairs.lengths))
        return logits

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """The model's."""
        return self.inner.forward_exact(pairs)

    def release_memory(self) -> None:
        """The model's."""
        self.inner.release_memory()


def memory(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Score with a budget that is far too large for the memory allowed, and compare with an unhindered run."""
    del deadline
    texts = subject.texts["headlines"][: len(subject.texts["headlines"]) // 2] + subject.texts["bodies"]
    calm = subject.engine(subject.scale.usual_batch_tokens, 2).score(texts)
    model = _CountingModel(subject.model)
    result: dict[str, Any] = {"planned_batch_tokens": subject.scale.oversized_batch_tokens}
    if subject.is_cuda:
        result |= _limit_memory(subject)
    else:
        model.limit_tokens = subject.scale.oversized_batch_tokens // 5
    started_s = time.monotonic()
    try:
        pressed = subject.engine(subject.scale.oversized_batch_tokens, 2, model).score(texts)
    finally:
        if subject.is_cuda:
            torch.cuda.set_per_process_memory_fraction(1.0, subject.device)
            torch.cuda.empty_cache()
    seconds = time.monotonic() - started_s
    calm_scores, pressed_scores = (
        scores_from_logits(run.logits, _CLASSES, as_multi_label=False) for run in (calm, pressed)
    )
    difference = float(np.abs(calm_scores - pressed_scores).max())  # NaN, which no comparison lets pass, if any is
    splits = pressed.counts.splits
    result |= {
        "texts": len(texts),
        "pairs": pressed.counts.num_pairs,
        "pairs_scored": sum(model.num_pairs),
        "splits": len(splits),
        "limits_after_splits": [split.limit_tokens for split in splits],
        "seconds": round(seconds, 2),
        "largest_score_difference": difference,
        "allowed": TOLERANCES[subject.precision],
        "same_label_share": float((rank_labels(calm_scores)[:, 0] == rank_labels(pressed_scores)[:, 0]).mean()),
    }
    every_pair_once = result["pairs_scored"] == result["pairs"] == len(texts) * len(LABELS)
    finite = bool(np.isfinite(pressed.logits).all())
    result["ok"] = every_pair_once and finite and bool(splits) and difference <= TOLERANCES[subject.precision]
    return result


def _limit_memory(subject: Subject) -> dict[str, Any]:
    """Leave torch about a tenth of what the oversized batch would take, beside what it holds."""
    probes = probe_pairs(subject.tokenizer.layout, subject.checkpoint.vocab_size, MAX_LENGTH, [128] * 64)
    bytes_per_token = subject.model.bytes_per_token(probes)
    torch.cuda.empty_cache()
    _, total_bytes = torch.cuda.mem_get_info(subject.device)
    wanted_bytes = bytes_per_token * subject.scale.oversized_batch_tokens
    allowed_bytes = torch.cuda.memory_reserved(subject.device) + wanted_bytes / 10
    torch.cuda.set_per_process_memory_fraction(min(1.0, allowed_bytes / total_bytes), subject.device)
    return {
        "bytes_per_token": round(bytes_per_token),
        "oversized_batch_gib": round(wanted_bytes / 2**30, 2),
        "allowed_gib": round(allowed_bytes / 2**30, 2),
    }


def matrix_rate(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Measure torch's rate of matrix products: a large one, and those of the encoder's layers at the usual batch."""
    sizes, dtype = subject.checkpoint.encoder, DTYPES[subject.precision]
    tokens, large = subject.scale.usual_batch_tokens, subject.scale.matrix_size
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    rates = {}
    for rows, depth, columns in (
        (large, large, large),
        (tokens, hidden, 3 * hidden),
        (tokens, hidden, hidden),
        (tokens, hidden, inner),
        (tokens, inner, hidden),
    ):
        left, right = (
            torch.randn(shape, device=subject.device).to(dtype) for shape in ((rows, depth), (columns, depth))
        )
        seconds = []
        for _ in range(12):
            subject.synchronize()
            started_s = time.perf_counter()
            for _ in range(10 if subject.is_cuda else 1):
                torch.nn.functional.linear(left, right)
            subject.synchronize()
            seconds.append((time.perf_counter() - started_s) / (10 if subject.is_cuda else 1))
            if deadline.has_passed:
                break
        flops = 2 * rows * depth * columns
        rates[f"{rows} x {depth} x {columns}"] = flops / statistics.median(seconds[2:] or seconds) / 1e12
    return {"tflops": {name: round(rate, 3) for name, rate in rates.items()}, "best_tflops": max(rates.values())}


def _softmax(logits: np.ndarray) -> np.ndarray:
    values: np.ndarray = torch.from_numpy(logits).double().softmax(dim=1).numpy()
    return values
