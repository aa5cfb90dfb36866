"""What a checkpoint of the padded path says of its network: any sequence classifier that transformers itself has.

The network is built once without weights, on torch's meta device, and asked: how many words and positions it has, which
inputs it takes. Families differ in what their configurations call these, and some count positions from another number
than 0. Only classes of the installed transformers are used; code that a checkpoint brings along is refused.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchzs.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: What says how to run a network, or what it returns, and not what it computes: that is for the run to decide. Some
#: would fetch kernels from the hub.
_RUNTIME_KEYS = frozenset(
    {
        *(
            "attn_implementation",
            "_attn_implementation",
            "_attn_implementation_internal",
            "_attn_implementation_autoset",
        ),
        *("experts_implementation", "_experts_implementation", "_experts_implementation_internal"),
        *("fusion_config", "distributed_config", "reference_compile", "torchscript", "dtype", "torch_dtype"),
        *(
            "output_attentions",
            "output_hidden_states",
            "return_dict",
            "use_return_dict",
            "name_or_path",
            "transformers_weights",
        ),
    }
)
#: Far above any encoder. A file that says a billion would have its layers fill the memory.
_MAX_LAYERS = 1000
_LAYER_ENDINGS = ("layer", "layers")


@dataclass(frozen=True, slots=True)
class PaddedConfig:
    """A network of transformers', and what its inputs must be like."""

    values: dict[str, Any]  # config.json's, without what only says how to run it
    vocab_size: int
    max_length: int | None  # tokens of a pair at most; None where positions are relative or without limit
    pad_id: int
    num_classes: int
    num_token_types: int | None  # 0 where the network takes none; None where config.json does not count them
    eos_id: int | None  # of an encoder-decoder, which finds a pair's end by it


def import_transformers() -> Any:
    """Import transformers, offline and without its own lines on the terminal.

    Everything that is loaded is on disk: no part of it may ask a hub.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers' hub client is imported
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def read_padded_config(values: Mapping[str, Any], path: Path) -> PaddedConfig:
    """Read what config.json says of a network.

    Args:
        values: its content, with model_type.
        path: the file, for messages.

    Raises:
        ModelError: transformers has no such classifier, or batchzs does not run it.
    """
    if "auto_map" in values:
        raise ModelError(
            f"{path}: auto_map names Python code beside the weights, and no checkpoint's code is ever run: use a "
            "checkpoint whose network transformers itself has"
        )
    if values.get("quantization_config") is not None:
        raise ModelError(
            f"{path}: quantization_config: quantised weights are not built; use the ones in full precision"
        )
    refuse_endless_layers(values, path)
    kept = _without_runtime_keys(values)
    import_transformers()
    import torch

    config = network_config(kept, path)
    try:
        with torch.device("meta"):
            network = network_class(config, path)(config)
            vocab_size = len(network.get_input_embeddings().weight)
    except ModelError:
        raise
    except Exception as exc:  # whatever a wrong size or a missing key makes of a constructor
        raise ModelError(f"{path}: describes no network that transformers can build ({_one_line(exc)})") from exc
    inputs = inspect.signature(network.forward).parameters
    if not {"input_ids", "attention_mask"} <= inputs.keys():
        raise ModelError(
            f"{path}: a {config.model_type} takes no attention_mask, so padding would change its scores: batchzs "
            "does not run it"
        )
    if getattr(config, "attention_type", None) == "block_sparse":
        raise ModelError(
            f"{path}: attention_type is 'block_sparse', whose scores depend on the batches that came before: set it to "
            "'original_full'"
        )
    pad_id, eos_id = getattr(config, "pad_token_id", None), getattr(config, "eos_token_id", None)
    return PaddedConfig(
        values=kept,
        vocab_size=vocab_size,
        max_length=_max_length(config, network),
        pad_id=pad_id if isinstance(pad_id, int) and 0 <= pad_id < vocab_size else 0,
        num_classes=int(config.num_labels),
        num_token_types=getattr(config, "type_vocab_size", None) if "token_type_ids" in inputs else 0,
        eos_id=eos_id if getattr(config, "is_encoder_decoder", False) and isinstance(eos_id, int) else None,
    )


def network_config(values: Mapping[str, Any], path: Path) -> Any:
    """Make transformers' own configuration object; `path` is for messages.

    Raises:
        ModelError: transformers does not know the model_type, or refuses a value.
    """
    transformers = import_transformers()
    model_type = values["model_type"]
    if model_type not in transformers.CONFIG_MAPPING:
        raise ModelError(
            f"{path}: model_type is {model_type!r}, which transformers {transformers.__version__} does not know: "
            "expected a BERT-like natural language inference classifier, such as bert, roberta or deberta-v2"
        )
    try:
        return transformers.CONFIG_MAPPING[model_type].from_dict(dict(values))
    except Exception as exc:  # transformers checks values in ways that differ between its versions
        raise ModelError(f"{path}: transformers {transformers.__version__} refuses it ({_one_line(exc)})") from exc


def network_class(config: Any, path: Path) -> Any:
    """Find transformers' sequence classifier for a configuration.

    Raises:
        ModelError: it has none.
    """
    transformers = import_transformers()
    try:
        found = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    except KeyError as exc:
        raise ModelError(
            f"{path}: model_type is {config.model_type!r}, of which transformers {transformers.__version__} has no "
            "sequence classifier: use a checkpoint trained for natural language inference"
        ) from exc
    return found[0] if isinstance(found, tuple | list) else found


def refuse_endless_layers(values: Mapping[str, Any], path: Path) -> None:
    """Do nothing where no number of layers is absurd.

    Raises:
        ModelError: one is.
    """
    for key, value in values.items():
        if key.endswith(_LAYER_ENDINGS) and isinstance(value, int) and value > _MAX_LAYERS:
            raise ModelError(f"{path}: {key} is {value}, expected at most {_MAX_LAYERS}")


def _max_length(config: Any, network: Any) -> int | None:
    """How many tokens the network has positions for."""
    if getattr(config, "position_biased_input", True) is False:  # DeBERTa: relative positions alone
        return None
    limit = getattr(config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return None
    for name, module in network.named_modules():
        # RoBERTa and its like count positions from the padding's index + 1: 514 rows are 512 positions.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limit = min(limit, len(module.weight) - module.padding_idx - 1)
    return limit


def _without_runtime_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what only says how to run a network, in parts of it too."""
    return {
        key: _without_runtime_keys(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key not in _RUNTIME_KEYS
    }


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:200] or type(exc).__name__
