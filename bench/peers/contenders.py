"""Who is measured: each contender's module, environment, precisions, and the settings that are tried for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.serving import Settings

#: batchzs' own, the one that bench/make_peer_env.sh builds, or ModelScope's.
Environment = Literal["batchzs", "peers", "modelscope"]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to get scores."""

    name: str  # for people
    module: str  # in bench.peers
    environment: Environment
    precisions: tuple[str, ...]
    #: Settings to try, from the number of CPUs; the fastest is measured.
    candidates: Callable[[int], list[Settings]]


def _batch_sizes(_: int) -> list[Settings]:
    return [{"batch_size": size} for size in (1, 8, 32, 64)]


def _callers(num_cpus: int) -> list[Settings]:
    """One batch at a time on all CPUs, or a batch for every CPU."""
    shapes = dict.fromkeys([(1, num_cpus, 1024), (num_cpus, 1, 512), (num_cpus, 1, 1024)])
    return [{"callers": callers, "threads": threads, "batch_tokens": tokens} for callers, threads, tokens in shapes]


def _streams(num_cpus: int) -> list[Settings]:
    """As OpenVINO decides, a stream for every CPU, and one stream on all."""
    shapes = dict.fromkeys([(0, 1024), (num_cpus, 512), (num_cpus, 1024), (1, 1024)])
    return [{"streams": streams, "batch_tokens": tokens} for streams, tokens in shapes]


#: What the others are held against. Zero is what a run settles on by itself: 4096 on most machines, which leaves
#: workers idle where a turn has few batches.
BATCHZS = Contender(
    "batchzs",
    "score_batchzs",
    "batchzs",
    ("fp32", "bf16"),
    lambda _: [{"max_batch_tokens": tokens} for tokens in (0, 1024, 512)],
)
#: By the names that --peers takes.
PEERS: dict[str, Contender] = {
    "modelscope": Contender("ModelScope pipeline", "score_modelscope", "modelscope", ("fp32",), lambda _: [{}]),
    "transformers": Contender("transformers pipeline", "score_transformers", "batchzs", ("fp32", "bf16"), _batch_sizes),
    "cross-encoder": Contender("CrossEncoder", "score_cross_encoder", "peers", ("fp32", "bf16"), _batch_sizes),
    "onnxruntime": Contender("ONNX Runtime", "score_onnxruntime", "peers", ("fp32",), _callers),
    "openvino": Contender("OpenVINO", "score_openvino", "peers", ("fp32", "bf16"), _streams),
}
