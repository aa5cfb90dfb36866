"""A checkpoint with random weights, in the two layouts that the contenders read.

`structbert/` is what the ModelScope hub has: config.json with model_type structbert, configuration.json, vocab.txt and
pytorch_model.bin. `bert/` holds the same weights for transformers and what builds on it: model_type bert, and classes
with names. Speed does not depend on what the weights are; that every contender gives the same scores does depend on
the weights telling pairs apart, so they are wider than a fresh network's.

The vocabulary is the sample model's, filled up with unused tokens to the usual size.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE_MODEL = Path(__file__).parents[2] / "sample_data/model"
SIZES: dict[str, dict[str, int]] = {
    "base": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "vocab_size": 21128,
    },
    "tiny": {  # for trying the benchmark itself
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 4200,
    },
}
#: Spreads of the random weights, the first and the last over the root of the width; see the module's docstring. Larger
#: ones would amplify rounding from layer to layer until contenders differ for no fault of theirs.
_SPREAD, _NORM_SPREAD, _CLASSIFIER_SPREAD = 0.8, 0.1, 6.0


def make_checkpoint(folder: Path, size: str, seed: int) -> dict[str, Any]:
    """Write `structbert/` and `bert/` into a folder, unless the same ones are there.

    Args:
        folder: where to.
        size: one of `SIZES`.
        seed: of the weights.

    Returns:
        The configuration, as in config.json.
    """
    config: dict[str, Any] = {
        **SIZES[size],
        "hidden_act": "gelu",
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "initializer_range": 0.02,
    }
    made_of = json.dumps({"config": config, "seed": seed, "spreads": [_SPREAD, _NORM_SPREAD, _CLASSIFIER_SPREAD]})
    stamp = folder / "checkpoint.json"  # written last
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == made_of:
        return config
    shutil.rmtree(folder, ignore_errors=True)
    structbert, bert = folder / "structbert", folder / "bert"
    for path in (structbert, bert):
        path.mkdir(parents=True)
        (path / "vocab.txt").write_text("".join(f"{token}\n" for token in _vocabulary(config["vocab_size"])), "utf-8")
    _write_json(
        structbert / "config.json",
        config
        | {"model_type": "structbert", "architectures": ["SbertForSequenceClassification"], "num_labels": 3}
        | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    )
    shutil.copyfile(SAMPLE_MODEL / "configuration.json", structbert / "configuration.json")
    names = {0: "entailment", 1: "neutral", 2: "contradiction"}
    _write_json(
        bert / "config.json",
        config
        | {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
        | {"id2label": names, "label2id": {name: index for index, name in names.items()}},
    )
    _write_json(
        bert / "tokenizer_config.json",
        {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512},
    )
    _write_weights(structbert / "pytorch_model.bin", config, seed)
    (bert / "pytorch_model.bin").hardlink_to(structbert / "pytorch_model.bin")
    stamp.write_text(made_of, encoding="utf-8")
    return config


def _vocabulary(size: int) -> list[str]:
    tokens = (SAMPLE_MODEL / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    return tokens + [f"[unused{index}]" for index in range(len(tokens), size)]


def _write_weights(path: Path, config: dict[str, Any], seed: int) -> None:
    import torch

    draw = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in _parameters(config):
        if name.endswith("LayerNorm.weight"):
            weights[name] = torch.randn(shape, generator=draw) * _NORM_SPREAD + 1.0
        else:
            spread = _CLASSIFIER_SPREAD if name.startswith("classifier.") else _SPREAD
            weights[name] = torch.randn(shape, generator=draw) * (spread / config["hidden_size"] ** 0.5)
    torch.save(weights, path)


def _parameters(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes, as BertForSequenceClassification has them."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    num_words, num_positions = config["vocab_size"], config["max_position_embeddings"]
    for name, rows in (("word", num_words), ("position", num_positions), ("token_type", config["type_vocab_size"])):
        yield f"bert.embeddings.{name}_embeddings.weight", (rows, hidden)
    norms = ["embeddings"]
    products = {}
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}"
        norms += [f"{layer}.attention.output", f"{layer}.output"]
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            products[f"bert.{layer}.{name}"] = (hidden, hidden)
        products[f"bert.{layer}.intermediate.dense"] = (inner, hidden)
        products[f"bert.{layer}.output.dense"] = (hidden, inner)
    products |= {"bert.pooler.dense": (hidden, hidden), "classifier": (3, hidden)}
    for name in norms:
        yield f"bert.{name}.LayerNorm.weight", (hidden,)
        yield f"bert.{name}.LayerNorm.bias", (hidden,)
    for name, shape in products.items():
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
