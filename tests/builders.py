"""Small things that several tests build: jobs, rows, checkpoints with random weights, tokenizers and models.

Plain functions and classes, no fixtures. Whatever is heavy (torch, transformers, polars) is imported where it is used.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import settings

from batchzs.job import JobConfig
from batchzs.pairs import PackedPairs, PairAssembler, PairLayout, TokenLists
from batchzs.records import ModelFile, ModelRecord, Resolved, RunRecord, ShardRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from batchzs.inputs.rows import ShardRows

#: For hypothesis: a busy machine may take longer over an example than hypothesis expects, and the time varies.
PATIENT = settings(deadline=None, max_examples=60)
#: The same where an example runs a network or writes files.
PATIENT_AND_BRIEF = settings(deadline=None, max_examples=12)

#: A BERT vocabulary in small: special tokens, a few characters of each kind, and word pieces.
VOCABULARY = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *"这篇文章的标题是科技体育财经娱乐央行降息中新闻0123456789abcdehlnortuwy,.!?，。！？（）-",
    *("##a", "##b", "##c", "##l", "##o", "##0", "##1", "##2", "##ing", "news", "bank", "rate", "cafe", "hello"),
)


def odd_folder(parent: Path) -> Path:
    """Make a folder with the kind of name that people have."""
    folder = parent / "模型 [1] {a} 'b' *"
    folder.mkdir(exist_ok=True)
    return folder


def run_python(program: str, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
    """Run a program in a Python of its own and return what it prints; its failure is the test's."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environ,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_job(**changes: Any) -> JobConfig:
    """Build a job; changes are keys with two underscores for the dot, such as output__scores=3."""
    values: dict[str, Any] = {
        "input": {"path": ["/data/news.parquet"], "text": ["text"]},
        "labels": ["科技", "体育", "财经"],
        "model": {"path": "/models/base"},
        "output": {"path": "/out"},
        "engine": {},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            values.setdefault(section, {})[name] = value
        else:
            values[section] = value
    values["labels"] = [
        label if isinstance(label, dict) else {"name": label, "hypothesis": f"这篇文章的标题是{label}"}
        for label in values["labels"]
    ]
    return JobConfig.model_validate(values)


def shard_rows(
    texts: Sequence[str],
    *,
    bad: Mapping[int, tuple[str, str]] | None = None,
    carried: Mapping[str, Sequence[object]] | None = None,
) -> ShardRows:
    """Make a shard's rows; `bad` gives some of them, by position, a status and a reason."""
    import polars as pl

    from batchzs.inputs.rows import ShardRows

    bad = bad or {}
    return ShardRows(
        texts=["" if index in bad else text for index, text in enumerate(texts)],
        statuses=[bad[index][0] if index in bad else "ok" for index in range(len(texts))],
        reasons=[bad[index][1] if index in bad else None for index in range(len(texts))],
        carried=pl.DataFrame(dict(carried or {})),
        source_files=["新闻 1.csv"] * len(texts),
        source_rows=np.arange(len(texts), dtype=np.int64),
    )


def model_record(**changes: Any) -> ModelRecord:
    """Make the record of a checkpoint."""
    values: dict[str, Any] = {
        "directory": "/models/base",
        "hub_id": None,
        "revision": None,
        "files": (ModelFile(name="vocab.txt", size_bytes=10, mtime_ns=1, sha256="a" * 64),),
        "num_classes": 3,
        "entailment_id": 0,
        "contradiction_id": 2,
        "neutral_id": 1,
    }
    return ModelRecord(**values | changes)


def resolved(**changes: Any) -> Resolved:
    """Make what `auto` came to."""
    values: dict[str, Any] = {
        "device_kind": "cpu",
        "precision": "fp32",
        "threads": 2,
        "workers": 1,
        "shard_rows": 1000,
        "max_batch_tokens": 4096,
        "labels_per_chunk": 64,
    }
    return Resolved(**values | changes)


def run_record(job: JobConfig, **changes: Any) -> RunRecord:
    """Make a run's record."""
    values: dict[str, Any] = {
        "format_version": 1,
        "batchzs_version": "0.0.0",
        "created_at": "2026-11-30T03:00:00+00:00",
        "job": job.model_dump(mode="json"),
        "fingerprint": {"scores": {}, "layout": {}, "decision": {}},
        "resolved": resolved(),
        "model": model_record(),
        "input_digest": "0" * 64,
        "num_rows": 10,
        "num_shards": 2,
        "test_hook": {},
    }
    return RunRecord(**values | changes)


def shard_record(**changes: Any) -> ShardRecord:
    """Make a shard's record."""
    values: dict[str, Any] = {
        "index": 0,
        "first_row": 0,
        "num_rows": 5,
        "statuses": {"ok": 5},
        "labels": {"科技": 5},
        "num_truncated": 0,
        "num_duplicates": 0,
        "num_nul_texts": 0,
        "num_scored_alone": 0,
        "num_rescored": 0,
        "num_pairs": 15,
        "num_tokens": 150,
        "size_bytes": 1000,
        "sha256": "b" * 64,
        "read_s": 0.5,
        "score_s": 2.0,
        "exact_s": 0.0,
        "write_s": 0.25,
        "finished_at": "2026-11-30T03:01:00+00:00",
        "attempt": 1,
        "host": "node1",
        "device": "cpu",
        "device_name": "A CPU",
        "precision": "fp32",
        "path": "packed",
        "threads": 2,
        "max_batch_tokens": 4096,
        "splits": (),
    }
    return ShardRecord(**values | changes)


def write_vocabulary(folder: Path, tokens: Iterable[str] = VOCABULARY, newline: str = "\n") -> Path:
    """Write vocab.txt."""
    path = folder / "vocab.txt"
    path.write_bytes("".join(token + newline for token in tokens).encode())
    return path


def network_config(**changes: Any) -> dict[str, Any]:
    """Make config.json's content for a tiny StructBERT."""
    return {
        "model_type": "structbert",
        "vocab_size": len(VOCABULARY),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    } | changes


def reference_network(config: Mapping[str, Any], num_classes: int = 3, seed: int = 0) -> Any:
    """Build transformers' BertForSequenceClassification with random weights, wide enough to tell pairs apart.

    Biases and layer norms are random too: as transformers initialises them, 0 and 1, a mix-up would go unseen.
    """
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {key: value for key, value in config.items() if key not in ("model_type", "id2label")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = BertForSequenceClassification(BertConfig(**sizes, num_labels=num_classes)).eval()
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.normal_(mean=1.0 if name.endswith("LayerNorm.weight") else 0.0, std=0.2)
    return network


@cache
def products_keep_rows() -> bool:
    """Whether this machine's matrix products give a row the same bits whatever rows, 8 and more, are beside it.

    On one thread MKL does on processors with AVX2; what it does on others is not known here.
    """
    import torch
    import torch.nn.functional as F  # noqa: N812 - its customary name

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        draw = torch.Generator().manual_seed(0)
        for width, out in ((32, 32), (32, 96), (64, 32), (128, 512), (512, 128), (32, 3)):
            weight, bias, rows = (torch.randn(shape, generator=draw) for shape in ((out, width), (out,), (600, width)))
            whole = F.linear(rows, weight, bias)
            for size in (*range(8, 70), 127, 255, 400):
                if not torch.equal(F.linear(rows[:size], weight, bias), whole[:size]):
                    return False
        return True
    finally:
        torch.set_num_threads(before)


def write_checkpoint(folder: Path, *, layout: str = "bin", num_classes: int = 3, **changes: Any) -> Path:
    """Write a tiny checkpoint: config.json, vocab.txt, and weights in ModelScope's layout or in safetensors."""
    config = network_config(**changes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_vocabulary(folder)
    write_weights(folder, dict(reference_network(config, num_classes).state_dict()), layout)
    return folder


def write_weights(folder: Path, state: dict[str, Any], layout: str = "bin") -> Path:
    """Write a state dict the way a checkpoint holds it."""
    import torch
    from safetensors.torch import save_file

    if layout == "bin":
        path = folder / "pytorch_model.bin"
        torch.save(state, path)
    else:
        path = folder / "model.safetensors"
        save_file(state, path)
    return path


class CharacterTokenizer:
    """One token a character, none for spaces; ids are code points, so that they can be read in a test."""

    layout = PairLayout.bert(cls_id=1, sep_id=2)

    def encode(self, texts: Sequence[str]) -> TokenLists:
        """Tokenise texts."""
        return TokenLists.from_lists([[ord(character) for character in text if character != " "] for text in texts])


@dataclass
class RecordingModel:
    """Arithmetic on token ids in place of a network: a pair's logits depend on its ids and their order alone.

    Keeps every batch that it was given; `before` is called first with each one, and may raise.
    """

    num_classes: int = 3
    path: str = "recording"
    before: Callable[[PackedPairs], None] = lambda _: None
    batches: list[PackedPairs] = field(default_factory=list)
    num_releases: int = 0
    num_exact: int = 0

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits."""
        self.before(pairs)
        self.batches.append(pairs)
        return self.logits(pairs)

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits."""
        self.num_exact += 1
        return self.logits(pairs)

    def release_memory(self) -> None:
        """Count the call."""
        self.num_releases += 1

    def logits(self, pairs: PackedPairs) -> np.ndarray:
        """What the forwards give, unless a test's own class says otherwise."""
        return np.array([self.pair_logits(ids) for ids in split_pairs(pairs)], dtype=np.float32).reshape(
            len(pairs.lengths), self.num_classes
        )

    def pair_logits(self, ids: Sequence[int]) -> list[float]:
        """One pair's logits."""
        value = 0
        for token in ids:
            value = (value * 31 + token) % 65521  # a prime: another order gives another value
        return [((value * prime) % 4096) / 512 - 4 for prime in (7919, 6101, 4507)[: self.num_classes]]


def split_pairs(pairs: PackedPairs) -> list[list[int]]:
    """The token ids of each pair of a packed batch."""
    stops = np.cumsum(pairs.lengths)
    return [pairs.input_ids[stop - length : stop].tolist() for stop, length in zip(stops, pairs.lengths, strict=True)]


def batch_tokens(pairs: PackedPairs) -> int:
    """A batch's tokens, padding counted."""
    return len(pairs.lengths) * int(pairs.lengths.max())


def packed(texts: Sequence[Sequence[int]], hypotheses: Sequence[Sequence[int]], max_length: int = 64) -> PackedPairs:
    """Pack each text with the hypothesis at its place."""
    assembler = PairAssembler(
        TokenLists.from_lists(texts),
        TokenLists.from_lists(hypotheses),
        PairLayout.bert(2, 3),
        max_length,
        truncate="head",
    )
    return assembler.assemble(np.arange(len(texts)), np.arange(len(hypotheses)))
