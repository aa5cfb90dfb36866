"""What the sections of `bench.gpu` share: a model with random weights, texts, and the count of its arithmetic.

Not run by itself; see `bench/gpu.py`. The model is a StructBERT checkpoint in ModelScope's layout, written to a folder
and loaded as any other, with the sample model's vocabulary in a table of the real one's size. Its weights are random
and wide enough that pairs differ: right or wrong it labels nothing, and it takes the time that a trained one takes.
Texts come from the sample data's sentence patterns.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from batchzs.engine import Engine, EngineSettings
from batchzs.models.checkpoint import Checkpoint, read_checkpoint
from batchzs.models.loaded import LoadedModel
from batchzs.models.tokenizer import CheckpointTokenizer, load_tokenizer
from batchzs.models.weights import expected_shapes
from sample_data.news_sentences import NewsWriter, Part
from sample_data.news_topics import TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.engine import PairModel
    from batchzs.models.checkpoint import EncoderConfig
    from batchzs.models.device import Precision
    from batchzs.pairs import TextTokenizer

LABELS = tuple(topic.name for topic in TOPICS)
TEMPLATE = "这篇文章的标题是{}"
MAX_LENGTH = 512
NUM_CLASSES = 3
VOCABULARY = Path("sample_data/model/vocab.txt")


@dataclass(frozen=True, slots=True)
class Scale:
    """How large everything is: for a GPU, or for a trial on a CPU."""

    encoder: dict[str, Any]  # as in config.json
    num_texts: dict[str, int]  # by kind
    batch_tokens: tuple[int, ...]
    usual_batch_tokens: int
    workers: tuple[int, ...]
    oversized_batch_tokens: int
    matrix_size: int
    num_peer_texts: int
    peer_batch_sizes: tuple[int, ...]
    max_repeats: int


_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
FULL = Scale(
    encoder=_BASE | {"vocab_size": 21128},
    num_texts={"headlines": 16_000, "bodies": 2_000},
    batch_tokens=(32_768, 65_536, 131_072, 262_144),
    usual_batch_tokens=65_536,
    workers=(1, 2, 3),
    oversized_batch_tokens=2**21,
    matrix_size=8192,
    num_peer_texts=600,
    peer_batch_sizes=(64, 256, 1024),
    max_repeats=5,
)
DRY = Scale(
    encoder=_TINY | {"vocab_size": 4200},
    num_texts={"headlines": 60, "bodies": 6},
    batch_tokens=(2048, 4096),
    usual_batch_tokens=2048,
    workers=(1, 2),
    oversized_batch_tokens=2**14,
    matrix_size=256,
    num_peer_texts=4,
    peer_batch_sizes=(4, 16),
    max_repeats=1,
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured, and where."""

    scale: Scale
    device: str
    precision: Precision  # of the run; fp16 on a GPU
    checkpoint: Checkpoint
    tokenizer: CheckpointTokenizer
    model: LoadedModel
    texts: dict[str, list[str]]  # by kind

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device != "cpu"

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def engine(
        self, batch_tokens: int, workers: int, model: PairModel | None = None, tokenizer: TextTokenizer | None = None
    ) -> Engine:
        """An engine as a run builds it, without rescoring."""
        settings = EngineSettings(
            max_length=MAX_LENGTH,
            truncate="head",
            max_batch_tokens=batch_tokens,
            labels_per_chunk=64,
            num_workers=workers,
        )
        hypotheses = [TEMPLATE.format(label) for label in LABELS]
        return Engine(model or self.model, tokenizer or self.tokenizer, hypotheses, settings, lambda *_: None)


def make_subject(folder: Path, scale: Scale, device: str, precision: Precision) -> Subject:
    """Write the checkpoint, load it, and write the texts."""
    checkpoint = write_checkpoint(folder, scale.encoder)
    return Subject(
        scale=scale,
        device=device,
        precision=precision,
        checkpoint=checkpoint,
        tokenizer=load_tokenizer(checkpoint),
        model=LoadedModel(checkpoint, device, precision),
        texts={kind: make_texts(kind, number) for kind, number in scale.num_texts.items()},
    )


def write_checkpoint(folder: Path, encoder: dict[str, Any]) -> Checkpoint:
    """Write a StructBERT checkpoint with random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "structbert", "max_position_embeddings": MAX_LENGTH, "type_vocab_size": 2} | encoder
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shutil.copy(VOCABULARY, folder / "vocab.txt")
    (folder / "pytorch_model.bin").touch()  # the shapes are asked of a checkpoint that is complete
    checkpoint = read_checkpoint(folder)
    draw = torch.Generator().manual_seed(0)
    state = {}
    for name, shape in expected_shapes(checkpoint).items():
        sizes = [NUM_CLASSES if size is None else size for size in shape]
        values = torch.randn(sizes, generator=draw).mul_(_spread(name, sizes))
        if name.endswith("LayerNorm.weight"):
            values += 1
        state[name if name.startswith("classifier.") else checkpoint.prefix + name] = values
    torch.save(state, folder / "pytorch_model.bin")
    return checkpoint


def _spread(name: str, sizes: Sequence[int]) -> float:
    """A parameter's standard deviation, so that nothing dies out or grows, and [CLS] hears of the other tokens."""
    if len(sizes) == 1:
        return 0.1
    if "embeddings" in name:
        return 1.0
    gains = {"classifier.": 4.0, ".query.": 1.5, ".key.": 1.5, ".value.": 3.0, "attention.output.": 3.0}
    return next((gain for part, gain in gains.items() if part in name), 1.0) / math.sqrt(sizes[1])


def make_texts(kind: str, number: int) -> list[str]:
    """Write different texts: headlines, or bodies of 100 characters and more, some beyond 512 tokens.

    Args:
        kind: headlines or bodies.
        number: how many.
    """
    writer = NewsWriter(7, Part.HELD_OUT)
    texts: dict[str, None] = {}
    while len(texts) < number:
        topic = writer.rng.choice(TOPICS)
        if kind == "headlines":
            texts[writer.headline(topic)] = None
        else:
            texts[writer.body(topic, 100 + int(800 * writer.rng.random() ** 5))] = None
    return list(texts)


def forward_flops(lengths: np.ndarray, sizes: EncoderConfig, num_classes: int = NUM_CLASSES) -> int:
    """Count what the matrix products of the packed forward take: two operations a multiplication and its addition.

    Attention counts with its two products, the last layer as it is done: keys and values of all tokens, the rest for
    one token a pair. Layer norms, activations, additions and softmax are left out, as is usual.

    Args:
        lengths: (pairs,) integers, tokens of each pair.
        sizes: the encoder's.
        num_classes: the head's.

    >>> from batchzs.models.checkpoint import EncoderConfig
    >>> one = EncoderConfig(9, 1, 1, 1, 1, 9, 2, 1e-12, "gelu")  # width 1, one layer
    >>> forward_flops(np.array([2]), one)  # 8 keys, values; 8 query, output, inner; 8 attention; 2 + 6 head
    32
    """
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    widths = lengths.astype(np.int64)
    tokens, pairs = int(widths.sum()), len(widths)
    whole = tokens * (8 * hidden**2 + 4 * hidden * inner) + 4 * hidden * int((widths**2).sum())
    last = tokens * 4 * hidden**2 + pairs * (4 * hidden**2 + 4 * hidden * inner) + 4 * hidden * tokens
    return (sizes.num_hidden_layers - 1) * whole + last + pairs * (2 * hidden**2 + 2 * hidden * num_classes)


class Deadline:
    """Until when a section may go on."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, negative when it has passed."""
        return self._end_s - time.monotonic()

    @property
    def has_passed(self) -> bool:
        """Whether a section should come to its end."""
        return self.left_s <= 0
