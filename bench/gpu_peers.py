"""The section of `bench.gpu` that runs other tools on the same GPU, weights, precision and texts, in short turns.

Not run by itself; see `bench/gpu.py`. The peers are transformers' zero-shot pipeline, at the best of a few batch sizes,
and, where it is installed, sentence-transformers' CrossEncoder. Each turn runs every tool once over the same headlines,
so that a drift of the machine's speed falls on all of them; ratios are taken within turns.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import statistics
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from batchzs.models.packed_bert import DTYPES
from batchzs.models.weights import load_weights
from bench.gpu_setup import LABELS, MAX_LENGTH, NUM_CLASSES, TEMPLATE, VOCABULARY, Deadline, Subject
from bench.gpu_speed import score_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_CLASS_NAMES = ("entailment", "neutral", "contradiction")
_MAX_TURNS = 5


@dataclass(frozen=True, slots=True)
class _Peer:
    """A tool that scores texts, with a batch size."""

    name: str
    run: Callable[[Sequence[str], int], None]


def peers(subject: Subject, deadline: Deadline) -> dict[str, Any]:
    """Compare seconds for the same headlines."""
    folder = subject.checkpoint.directory.parent / "peer"
    network = _save_for_peers(subject, folder)
    texts = subject.texts["headlines"][: subject.scale.num_peer_texts]
    result: dict[str, Any] = {"texts": len(texts), "pairs": len(texts) * len(LABELS)}
    batch_sizes = {}
    found = []
    makers: dict[str, Callable[[], Callable[[Sequence[str], int], None]]] = {
        "transformers_pipeline": partial(_pipeline, subject, network, folder),
        "cross_encoder": partial(_cross_encoder, subject, folder),
    }
    for name, make in makers.items():
        try:
            peer = _Peer(name, make())
            batch_sizes[name] = _best_batch_size(subject, peer, texts[: max(1, len(texts) // 8)], deadline)
        except Exception as exc:  # noqa: BLE001 - a peer that does not run here must not take the others along
            result[name] = {"not_run": f"{type(exc).__name__}: {exc}"[:300]}
        else:
            found.append(peer)
    seconds: dict[str, list[float]] = {"batchzs": [], **{peer.name: [] for peer in found}}
    score_once(subject, texts, subject.scale.usual_batch_tokens, 2)
    for turn in range(_MAX_TURNS if subject.scale.max_repeats > 1 else 1):
        if turn and deadline.has_passed:
            break
        seconds["batchzs"].append(score_once(subject, texts, subject.scale.usual_batch_tokens, 2).total_s)
        for peer in found:
            seconds[peer.name].append(_seconds(subject, partial(peer.run, texts, batch_sizes[peer.name])))
    result["batchzs"] = {"pairs_per_s": round(result["pairs"] / statistics.median(seconds["batchzs"]))}
    for peer in found:
        ratios = [theirs / ours for theirs, ours in zip(seconds[peer.name], seconds["batchzs"], strict=True)]
        result[peer.name] = {
            "batch_size": batch_sizes[peer.name],
            "pairs_per_s": round(result["pairs"] / statistics.median(seconds[peer.name])),
            "batchzs_is_faster_by": round(statistics.median(ratios), 2),
            "ratios_of_turns": [round(ratio, 2) for ratio in ratios],
        }
    return result


def _save_for_peers(subject: Subject, folder: Path) -> Any:
    """Write the same weights as a BERT of transformers', and return the network."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        **asdict(subject.checkpoint.encoder),
        num_labels=NUM_CLASSES,
        id2label=dict(enumerate(_CLASS_NAMES)),
        label2id={name: index for index, name in enumerate(_CLASS_NAMES)},
    )
    network = BertForSequenceClassification(config).eval()
    network.load_state_dict(
        {
            key if key.startswith("classifier.") else f"bert.{key}": value
            for key, value in load_weights(subject.checkpoint).items()
        }
    )
    network.save_pretrained(folder)
    shutil.copy(VOCABULARY, folder / "vocab.txt")
    settings = {"tokenizer_class": "BertTokenizer", "model_max_length": MAX_LENGTH, "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return network.to(subject.device, DTYPES[subject.precision])


def _pipeline(subject: Subject, network: Any, folder: Path) -> Callable[[Sequence[str], int], None]:
    from transformers import AutoTokenizer, pipeline

    tokenizer = AutoTokenizer.from_pretrained(folder)
    zero_shot = pipeline("zero-shot-classification", model=network, tokenizer=tokenizer, device=subject.device)

    def run(texts: Sequence[str], batch_size: int) -> None:
        zero_shot(list(texts), candidate_labels=list(LABELS), hypothesis_template=TEMPLATE, batch_size=batch_size)

    return run


def _cross_encoder(subject: Subject, folder: Path) -> Callable[[Sequence[str], int], None]:
    if importlib.util.find_spec("sentence_transformers") is None:
        raise ImportError("sentence-transformers is not installed here")
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(str(folder), device=subject.device)
    encoder.to(DTYPES[subject.precision])
    hypotheses = [TEMPLATE.format(label) for label in LABELS]

    def run(texts: Sequence[str], batch_size: int) -> None:
        pairs = [(text, hypothesis) for text in texts for hypothesis in hypotheses]
        encoder.predict(pairs, batch_size=batch_size, show_progress_bar=False)

    return run


def _best_batch_size(subject: Subject, peer: _Peer, texts: Sequence[str], deadline: Deadline) -> int:
    """The fastest of a few on a part of the texts, each warmed up first."""
    seconds: dict[int, float] = {}
    for batch_size in subject.scale.peer_batch_sizes:
        if seconds and deadline.has_passed:
            break
        peer.run(texts[: max(1, len(texts) // 4)], batch_size)
        seconds[batch_size] = _seconds(subject, partial(peer.run, texts, batch_size))
    return min(seconds, key=lambda batch_size: seconds[batch_size])


def _seconds(subject: Subject, run: Callable[[], None]) -> float:
    with torch.inference_mode():
        subject.synchronize()
        started_s = time.perf_counter()
        run()
        subject.synchronize()
        return time.perf_counter() - started_s
