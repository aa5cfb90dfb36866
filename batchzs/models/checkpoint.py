"""What a checkpoint directory says of itself, refused with a plain message where it is unfit.

Two kinds. StructBERT and BERT take the packed path, are read without torch, and come in ModelScope's layout
(`pytorch_model.bin`, `vocab.txt`) or transformers' (`model.safetensors` or `pytorch_model.bin`, `vocab.txt` or
`tokenizer.json`). Every other sequence classifier that transformers knows takes the padded path, and comes in
transformers' layout alone; `padded_config` reads what it says of its network. Nothing in a model directory is ever
executed. Loading the weights is the business of `weights`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from batchzs.errors import ModelError
from batchzs.models.padded_config import PaddedConfig, read_padded_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PACKED_MODEL_TYPES = ("structbert", "bert")
SUPPORTED_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
#: In the order of preference; beside the first one found, its settings.
_VOCABULARY_FILES = ("vocab.txt", "tokenizer.json")
_TOKENIZER_SETTINGS = "tokenizer_config.json"
#: Far above any BERT. A file that says a billion would have its list of parameters fill the memory.
_MAX_LAYERS = 1000
_CHUNK_BYTES = 2**24
_WEIGHT_FILES: Mapping[str, tuple[str, ...]] = {
    # Each family's own tool prefers its own file; so do we, so that both are given the same weights.
    "structbert": ("pytorch_model.bin", "model.safetensors"),
    "bert": ("model.safetensors", "pytorch_model.bin"),
}
_INDEX_ENDING = ".index.json"
#: In transformers' own order of preference.
_PADDED_WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors" + _INDEX_ENDING,
    "pytorch_model.bin",
    "pytorch_model.bin" + _INDEX_ENDING,
)
#: What slow tokenizers are made from, which the `tokenizers` library does not read.
_SLOW_VOCABULARIES = ("*.model", "vocab.txt", "vocab.json", "merges.txt")

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"]


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The encoder's sizes, named as in config.json."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_act: Activation

    @property
    def max_length(self) -> int:
        """Tokens of a pair at most: each has a position of its own."""
        return self.max_position_embeddings


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk: where its parts lie and what its config says."""

    directory: Path
    model_type: str
    network: EncoderConfig | PaddedConfig  # which of the two decides the path
    id2label: dict[int, str]
    prefix: str  # of the encoder's keys in the state dict, with its dot; the padded path leaves it to transformers
    weights_paths: tuple[Path, ...]  # more than one only on the padded path
    tokenizer_paths: tuple[Path, ...]

    @property
    def encoder(self) -> EncoderConfig:
        """The encoder's sizes, which only a checkpoint of the packed path has."""
        if not isinstance(self.network, EncoderConfig):
            raise TypeError(f"{self.directory}: a {self.model_type} takes the padded path")
        return self.network

    @property
    def weights_path(self) -> Path:
        """The weights, or the first file of them."""
        return self.weights_paths[0]

    @property
    def vocab_size(self) -> int:
        """Rows of the table of word embeddings."""
        return self.network.vocab_size

    @property
    def max_length(self) -> int | None:
        """Tokens of a pair at most, special ones included; None where the network sets no limit."""
        return self.network.max_length

    @property
    def is_structbert(self) -> bool:
        """Whether ModelScope's own pipeline would take this checkpoint for StructBERT."""
        return self.model_type == "structbert"

    @property
    def files(self) -> tuple[Path, ...]:
        """The files whose bytes decide scores: weights, configuration, tokenizer."""
        return (*self.weights_paths, self.directory / "config.json", *self.tokenizer_paths)


def read_checkpoint(directory: Path) -> Checkpoint:
    """Read a checkpoint directory's configuration and see that its files are there.

    Raises:
        ModelError: the directory or one of its files is missing, or the configuration describes a network that
            batchzs does not run.
    """
    if not directory.is_dir():
        raise ModelError(f"{directory}: no such model directory (model.path in the job)", key="model.path")
    _refuse_gaps(directory)
    config = _read_json(directory / "config.json")
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ModelError(f"{directory / 'config.json'}: model_type is {model_type!r}, expected a name such as 'bert'")
    id2label = _id2label(config, directory / "config.json")
    if model_type in PACKED_MODEL_TYPES:
        return Checkpoint(
            directory=directory,
            model_type=model_type,
            network=_encoder_config(config, directory / "config.json"),
            id2label=id2label,
            prefix=f"{config.get('base_model_prefix') or 'bert'}.",
            weights_paths=(_weights_path(directory, model_type),),
            tokenizer_paths=_tokenizer_paths(directory),
        )
    return Checkpoint(
        directory=directory,
        model_type=model_type,
        network=read_padded_config(config, directory / "config.json"),
        id2label=id2label,
        prefix="",
        weights_paths=_padded_weights_paths(directory),
        tokenizer_paths=_padded_tokenizer_paths(directory),
    )


def file_digest(path: Path, on_chunk: Callable[[], None] = lambda: None) -> str:
    """SHA-256 of a file's bytes, in hexadecimal; calls `on_chunk` now and then, and what that raises ends it.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                on_chunk()
            return digest.hexdigest()
    except OSError as exc:
        raise ModelError(f"{path}: cannot be read: {exc.strerror}") from exc


def _refuse_gaps(directory: Path) -> None:
    """Name everything that is missing at once; where it is one thing alone, what looks for it says more."""
    groups = (("config.json",), _PADDED_WEIGHT_FILES, _VOCABULARY_FILES)
    missing = [names for names in groups if not any((directory / name).is_file() for name in names)]
    if len(missing) > 1:
        lacks = "; ".join(" or ".join(name for name in names if not name.endswith(_INDEX_ENDING)) for names in missing)
        raise ModelError(f"{directory}: the checkpoint is incomplete, it lacks: {lacks}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as exc:
        raise ModelError(f"{path.parent}: has no {path.name}: a checkpoint directory needs one") from exc
    except OSError as exc:
        raise ModelError(f"{path}: cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:  # bad JSON, bad UTF-8, thousands of brackets
        raise ModelError(f"{path}: is not JSON ({exc}): the file is damaged or incomplete") from exc
    if not isinstance(content, dict):
        raise ModelError(f"{path}: found {type(content).__name__} at the top, expected a JSON object")
    return content


def _encoder_config(config: Mapping[str, Any], path: Path) -> EncoderConfig:
    position_type = config.get("position_embedding_type", "absolute")
    if position_type != "absolute":
        raise ModelError(f"{path}: position_embedding_type is {position_type!r}, only 'absolute' is built")
    activation = config.get("hidden_act", "gelu")
    if activation not in SUPPORTED_ACTIVATIONS:
        raise ModelError(f"{path}: hidden_act is {activation!r}, expected one of {', '.join(SUPPORTED_ACTIVATIONS)}")
    # The defaults are BERT's own, which its configuration files may leave out.
    encoder = EncoderConfig(
        vocab_size=_positive(config, "vocab_size", 30522, path),
        hidden_size=_positive(config, "hidden_size", 768, path),
        num_hidden_layers=_positive(config, "num_hidden_layers", 12, path),
        num_attention_heads=_positive(config, "num_attention_heads", 12, path),
        intermediate_size=_positive(config, "intermediate_size", 3072, path),
        max_position_embeddings=_positive(config, "max_position_embeddings", 512, path),
        type_vocab_size=_positive(config, "type_vocab_size", 2, path),
        layer_norm_eps=_small(config, "layer_norm_eps", 1e-12, path),
        hidden_act=activation,
    )
    if encoder.type_vocab_size < 2:
        raise ModelError(f"{path}: type_vocab_size is 1, expected 2: texts and hypotheses could not be told apart")
    if encoder.num_hidden_layers > _MAX_LAYERS:
        raise ModelError(f"{path}: num_hidden_layers is {encoder.num_hidden_layers}, expected at most {_MAX_LAYERS}")
    if encoder.hidden_size % encoder.num_attention_heads:
        raise ModelError(
            f"{path}: hidden_size {encoder.hidden_size} is no multiple of num_attention_heads "
            f"{encoder.num_attention_heads}"
        )
    return encoder


def _positive(config: Mapping[str, Any], key: str, default: int, path: Path) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{path}: {key} is {value!r}, expected a whole number of at least 1")
    return value


def _small(config: Mapping[str, Any], key: str, default: float, path: Path) -> float:
    value = config.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
        raise ModelError(f"{path}: {key} is {value!r}, expected a number between 0 and 1")
    return float(value)


def _id2label(config: Mapping[str, Any], path: Path) -> dict[int, str]:
    key = "id2label" if config.get("id2label") is not None else "label2id"
    names = config.get(key) or {}
    try:
        pairs = names.items() if key == "id2label" else [(index, name) for name, index in names.items()]
        return {int(index): str(name) for index, name in pairs}
    except (AttributeError, TypeError, ValueError) as exc:
        raise ModelError(f"{path}: {key} is {names!r}, expected class names with their indices") from exc


def _weights_path(directory: Path, model_type: str) -> Path:
    names = _WEIGHT_FILES[model_type]
    for name in names:
        if (directory / name).is_file():
            return directory / name
    if sharded := sorted(directory.glob("*.index.json")):
        raise ModelError(f"{sharded[0]}: weights in several files are not built; save them as one {names[0]}")
    raise ModelError(f"{directory}: has neither {' nor '.join(names)}: the checkpoint is incomplete")


def _tokenizer_paths(directory: Path) -> tuple[Path, ...]:
    vocabularies = [directory / name for name in _VOCABULARY_FILES if (directory / name).is_file()]
    if not vocabularies:
        raise ModelError(f"{directory}: has neither vocab.txt nor tokenizer.json: the checkpoint is incomplete")
    settings = directory / _TOKENIZER_SETTINGS
    return (vocabularies[0], settings) if settings.is_file() else (vocabularies[0],)


def _padded_weights_paths(directory: Path) -> tuple[Path, ...]:
    found = [directory / name for name in _PADDED_WEIGHT_FILES if (directory / name).is_file()]
    if not found:
        names = [name for name in _PADDED_WEIGHT_FILES if not name.endswith(_INDEX_ENDING)]
        raise ModelError(f"{directory}: has neither {' nor '.join(names)}: the checkpoint is incomplete")
    if not found[0].name.endswith(_INDEX_ENDING):
        return (found[0],)
    weight_map = _read_json(found[0]).get("weight_map")
    files = set(weight_map.values()) if isinstance(weight_map, dict) else set()
    if not files or not all(isinstance(name, str) and name == Path(name).name for name in files):
        raise ModelError(f"{found[0]}: weight_map is not a table of parameters and the files beside it that hold them")
    paths = tuple(directory / name for name in sorted(files))
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ModelError(f"{found[0]}: names {', '.join(missing)}, which is not there: the checkpoint is incomplete")
    return paths


def _padded_tokenizer_paths(directory: Path) -> tuple[Path, ...]:
    vocabulary, settings = directory / "tokenizer.json", directory / _TOKENIZER_SETTINGS
    if not vocabulary.is_file():
        slow = sorted({path.name for pattern in _SLOW_VOCABULARIES for path in directory.glob(pattern)})
        found = f"only {', '.join(slow)}, which a slow tokenizer is made from" if slow else "no vocabulary at all"
        raise ModelError(
            f"{directory}: has no tokenizer.json, found {found}: load the fast tokenizer once with transformers' "
            "AutoTokenizer and write it into the directory with its save_pretrained"
        )
    return (vocabulary, settings) if settings.is_file() else (vocabulary,)
