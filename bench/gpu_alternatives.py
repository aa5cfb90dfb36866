"""The section of `bench.gpu` that times parts of a layer by themselves, and other ways of doing them.

Not run by itself; see `bench/gpu.py`. Each part is timed at the usual batch's size, as it is done now and as it might
be, so that what a change would gain is known before it is made.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its customary name

from batchzs.models.attention import Sequences, choose_attention
from batchzs.models.packed_bert import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.gpu_setup import Deadline, Subject

#: Pairs of headlines, of bodies, and the longest.
_ATTENTION_LENGTHS = (33, 128, 512)


def alternatives(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Milliseconds of each part for one batch, and how far an approximate one lies from the exact one."""
    sizes, device = subject.checkpoint.encoder, torch.device(subject.device)
    tokens, hidden, inner = subject.scale.usual_batch_tokens, sizes.hidden_size, sizes.intermediate_size
    draw = torch.Generator(device).manual_seed(2)

    def make(*shape: int, spread: float = 1.0) -> torch.Tensor:
        return torch.randn(shape, generator=draw, device=device).mul_(spread).to(DTYPES[subject.precision])

    states, residual = make(tokens, hidden), make(tokens, hidden)
    weight, bias, scale = make(inner, hidden, spread=hidden**-0.5), make(inner), make(hidden)
    wide = F.linear(states, weight, bias)
    ids = torch.randint(0, sizes.vocab_size, (tokens,), generator=draw, device=device, dtype=torch.int32)
    words = make(sizes.vocab_size, hidden)

    def add_and_norm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(left + right, (hidden,), scale, scale, 1e-12)

    def linear_tanh_gelu() -> torch.Tensor:  # cuBLAS's own, in the product's last step; another function than erf's
        return torch._addmm_activation(bias, states, weight.t(), use_gelu=True)  # noqa: SLF001

    compiled = torch.compile(add_and_norm, backend="inductor" if subject.is_cuda else "eager")
    parts: dict[str, Callable[[], torch.Tensor]] = {
        "linear": lambda: F.linear(states, weight, bias),
        "gelu": lambda: F.gelu(wide),
        "linear_then_gelu": lambda: F.gelu(F.linear(states, weight, bias)),
        "linear_with_tanh_gelu": linear_tanh_gelu,
        "add_then_norm": lambda: add_and_norm(states, residual),
        "add_and_norm_compiled": lambda: compiled(states, residual),
        "embed_words": lambda: F.embedding(ids, words),
    }
    attention: Any = choose_attention(device, DTYPES[subject.precision], hidden // sizes.num_attention_heads)
    for length in _ATTENTION_LENGTHS:
        sequences = Sequences.of(np.full(tokens // length, length), device)
        projected = make(tokens // length * length, 3 * hidden)

        def attend(sequences: Sequences = sequences, projected: torch.Tensor = projected) -> torch.Tensor:
            attended: torch.Tensor = attention.everywhere(projected, sequences, sizes.num_attention_heads)
            return attended

        parts[f"attention_of_{length}"] = attend
    result: dict[str, Any] = {"tokens": tokens, "ms": {}}
    with torch.inference_mode():
        exact, approximate = parts["linear_then_gelu"](), linear_tanh_gelu()
        result["tanh_gelu_differs_by"] = float((exact.float() - approximate.float()).abs().max())
        for name, part in parts.items():
            if deadline.has_passed:
                break
            try:
                result["ms"][name] = _milliseconds(subject, part)
            except Exception as exc:  # noqa: BLE001 - a way that does not run here is worth knowing too
                result[name] = f"{type(exc).__name__}: {exc}"[:200]
    return result


def _milliseconds(subject: Subject, part: Callable[[], torch.Tensor]) -> float:
    """Median of some calls, each of several runs on a GPU, where a run is shorter than its start."""
    num_runs = 20 if subject.is_cuda else 1
    part()
    seconds = []
    for _ in range(7):
        subject.synchronize()
        started_s = time.perf_counter()
        for _ in range(num_runs):
            part()
        subject.synchronize()
        seconds.append((time.perf_counter() - started_s) / num_runs)
    return round(statistics.median(seconds) * 1e3, 4)
