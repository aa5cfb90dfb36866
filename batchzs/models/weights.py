"""A checkpoint's weights, loaded without running code, and checked to be all there.

`torch.load(weights_only=True)` or safetensors. Every parameter that the network needs must be present in its shape and
nothing may be left over that a classifier could have been: a head that stays random answers as confidently as a
trained one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from batchzs.errors import MachineError, ModelError
from batchzs.models.memory import is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchzs.models.checkpoint import Checkpoint

#: Left over from pretraining, or kept by ModelScope as a buffer; no part of a classifier.
_HARMLESS_ENDINGS = ("embeddings.position_ids",)
_HARMLESS_PREFIXES = ("cls.",)
_SHOWN_KEYS = 5


def load_weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Load a checkpoint's parameters to the CPU, named as BERT names them below the encoder's prefix.

    Returns:
        Tensors as stored; encoder keys without prefix ("encoder.layer.0.attention.self.query.weight"), and
        "classifier.weight" (classes, hidden), "classifier.bias".

    Raises:
        ModelError: the file is damaged, a parameter is missing or misshapen, or an unknown one is there.
        MachineError: memory is short.
    """
    path = checkpoint.weights_path
    state = read_state_dict(path)
    weights: dict[str, torch.Tensor] = {}
    unknown = []
    for stored_key, tensor in state.items():
        # Checkpoints converted from TensorFlow call the layer norms' parameters gamma and beta.
        key = stored_key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if key.startswith(checkpoint.prefix):
            key = key.removeprefix(checkpoint.prefix)
        elif not key.startswith("classifier."):
            unknown.append(stored_key)
            continue
        weights[key] = tensor
    expected = expected_shapes(checkpoint)
    missing = [key for key in expected if key not in weights]
    if missing:
        raise ModelError(
            f"{path}: lacks {len(missing)} parameters, such as {shown_keys(missing)}; it holds "
            f"{shown_keys(list(state))}: expected a sequence classifier whose encoder's keys begin with "
            f"{checkpoint.prefix!r}"
        )
    unknown += [key for key in weights if key not in expected]
    unknown = [key for key in unknown if not key.endswith(_HARMLESS_ENDINGS) and not key.startswith(_HARMLESS_PREFIXES)]
    if unknown:
        raise ModelError(
            f"{path}: holds {len(unknown)} parameters that a BERT sequence classifier does not have, such as "
            f"{shown_keys(unknown)}: it belongs to another architecture"
        )
    for key, shape in expected.items():
        found = list(weights[key].shape)
        if len(found) != len(shape) or any(want not in {None, have} for want, have in zip(shape, found, strict=True)):
            wanted = " x ".join("classes" if size is None else str(size) for size in shape)
            raise ModelError(f"{path}: {key} has shape {' x '.join(map(str, found))}, config.json asks for {wanted}")
    num_classes = len(weights["classifier.weight"])
    if len(weights["classifier.bias"]) != num_classes:
        raise ModelError(
            f"{path}: classifier.bias has shape {len(weights['classifier.bias'])}, classifier.weight has {num_classes} "
            "classes"
        )
    return {key: weights[key] for key in expected}


def expected_shapes(checkpoint: Checkpoint) -> dict[str, tuple[int | None, ...]]:
    """Every parameter of a BERT sequence classifier and its shape; None is the number of classes, known from the file.

    The names are those of transformers' BertForSequenceClassification, which ModelScope's StructBERT shares.
    """
    sizes = checkpoint.encoder
    hidden, intermediate = sizes.hidden_size, sizes.intermediate_size
    shapes: dict[str, tuple[int | None, ...]] = {
        "embeddings.word_embeddings.weight": (sizes.vocab_size, hidden),
        "embeddings.position_embeddings.weight": (sizes.max_position_embeddings, hidden),
        "embeddings.token_type_embeddings.weight": (sizes.type_vocab_size, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    for layer in range(sizes.num_hidden_layers):
        name = f"encoder.layer.{layer}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[f"{name}.{part}.weight"] = (hidden, hidden)
            shapes[f"{name}.{part}.bias"] = (hidden,)
        shapes[f"{name}.intermediate.dense.weight"] = (intermediate, hidden)
        shapes[f"{name}.intermediate.dense.bias"] = (intermediate,)
        shapes[f"{name}.output.dense.weight"] = (hidden, intermediate)
        shapes[f"{name}.output.dense.bias"] = (hidden,)
        for part in ("attention.output", "output"):
            shapes[f"{name}.{part}.LayerNorm.weight"] = (hidden,)
            shapes[f"{name}.{part}.LayerNorm.bias"] = (hidden,)
    shapes["pooler.dense.weight"] = (hidden, hidden)
    shapes["pooler.dense.bias"] = (hidden,)
    shapes["classifier.weight"] = (None, hidden)
    shapes["classifier.bias"] = (None,)
    return shapes


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of weights to the CPU, tensors by name as they are stored.

    Raises:
        ModelError: the file is damaged, or holds something else.
        MachineError: memory is short.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: object = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as exc:  # a damaged pickle fails in every way that a pickle can
        if is_out_of_memory(exc):
            raise MachineError(f"{path}: out of memory while loading the weights: free memory on the machine") from exc
        raise ModelError(f"{path}: cannot be loaded as weights ({_one_line(exc)}): the file is damaged") from exc
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ModelError(f"{path}: holds no table of tensors by name: expected a model's state dict")
    return state


def shown_keys(keys: Sequence[str]) -> str:
    """The first few keys, for a message."""
    return ", ".join(keys[:_SHOWN_KEYS]) + (", ..." if len(keys) > _SHOWN_KEYS else "")


def _one_line(exc: Exception) -> str:
    return str(exc).partition("\n")[0][:200] or type(exc).__name__
