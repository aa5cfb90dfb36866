"""What a checkpoint says of itself is read without torch, and what is unfit is refused by name."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from batchzs.errors import InterruptedRunError, ModelError
from batchzs.models.checkpoint import Checkpoint, file_digest, read_checkpoint
from tests.builders import network_config, odd_folder, write_vocabulary

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint's folder; the weights are not read here."""
    folder = odd_folder(tmp_path)
    write_vocabulary(folder)
    (folder / "pytorch_model.bin").write_bytes(b"weights")
    return folder


def read(folder: Path, content: Any = None, **changes: Any) -> Checkpoint:
    """Write config.json and read the checkpoint."""
    config = network_config(**changes) if content is None else content
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return read_checkpoint(folder)


def refusal(folder: Path, content: Any = None, **changes: Any) -> str:
    """The message that a config is refused with."""
    with pytest.raises(ModelError) as caught:
        read(folder, content, **changes)
    return str(caught.value)


def test_sizes_names_and_files_are_read(folder: Path) -> None:
    """A tiny StructBERT in ModelScope's layout."""
    checkpoint = read(folder, id2label={"0": "entailment", "1": "neutral"}, hidden_act="relu", layer_norm_eps=1e-7)
    sizes = checkpoint.encoder
    assert (sizes.hidden_size, sizes.num_hidden_layers, sizes.num_attention_heads) == (16, 2, 2)
    assert (sizes.hidden_act, sizes.layer_norm_eps) == ("relu", 1e-7)
    assert checkpoint.is_structbert
    assert checkpoint.id2label == {0: "entailment", 1: "neutral"}
    assert checkpoint.prefix == "bert."
    assert [path.name for path in checkpoint.files] == ["pytorch_model.bin", "config.json", "vocab.txt"]


def test_what_a_config_leaves_out_is_berts_own(folder: Path) -> None:
    """BERT's configuration files name only what differs from BERT-base."""
    sizes = read(folder, {"model_type": "bert"}).encoder
    assert (sizes.vocab_size, sizes.hidden_size, sizes.num_hidden_layers, sizes.intermediate_size) == (
        30522,
        768,
        12,
        3072,
    )
    assert (sizes.num_attention_heads, sizes.max_position_embeddings, sizes.type_vocab_size) == (12, 512, 2)
    assert (sizes.layer_norm_eps, sizes.hidden_act) == (1e-12, "gelu")


def test_the_encoders_prefix_is_the_configs(folder: Path) -> None:
    """ModelScope saves under base_model_prefix where the config has one."""
    assert read(folder, base_model_prefix="encoder").prefix == "encoder."
    assert read(folder, base_model_prefix="").prefix == "bert."


def test_each_family_prefers_its_own_weights_file(folder: Path) -> None:
    """With both files there, ModelScope takes the .bin and transformers the safetensors; so do we for each."""
    (folder / "model.safetensors").write_bytes(b"weights")
    assert read(folder, model_type="structbert").weights_path.name == "pytorch_model.bin"
    assert read(folder, model_type="bert").weights_path.name == "model.safetensors"
    (folder / "pytorch_model.bin").unlink()
    assert read(folder, model_type="structbert").weights_path.name == "model.safetensors"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, {0: "a", 1: "b"}),
        ({"id2label": None, "label2id": {"a": 0, "b": 1}}, {0: "a", 1: "b"}),
        ({"label2id": {"a": "1"}}, {1: "a"}),
        ({"id2label": {"0": 5}}, {0: "5"}),
        ({"id2label": {}}, {}),
        ({}, {}),
    ],
)
def test_class_names_come_from_either_table(folder: Path, config: dict[str, Any], expected: dict[int, str]) -> None:
    """id2label, or label2id the other way round, or none."""
    assert read(folder, **config).id2label == expected


@pytest.mark.parametrize("names", [["a", "b"], {"zero": "a"}, "a", 3, {"0.5": "a"}])
def test_odd_class_names_are_refused(folder: Path, names: object) -> None:
    """Names that have no index are not read as if there were none."""
    assert "id2label is" in refusal(folder, id2label=names)


@pytest.mark.parametrize("names", [["a"], "a", 3, {"a": None}])
def test_odd_class_indices_are_refused(folder: Path, names: object) -> None:
    """label2id is checked like id2label."""
    assert "label2id" in refusal(folder, label2id=names)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "word2vec"}, "model_type is 'word2vec', which transformers"),
        ({"model_type": "clip"}, "model_type is 'clip', of which transformers"),
        ({"model_type": None}, "model_type is None"),
        ({"model_type": ["bert"]}, "model_type is ['bert']"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu', expected one of gelu, gelu_new, gelu_pytorch_tanh, relu"),
        ({"hidden_act": {"a": 1}}, "hidden_act is"),
        ({"hidden_size": 0}, "hidden_size is 0, expected a whole number of at least 1"),
        ({"hidden_size": "16"}, "hidden_size is '16'"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_attention_heads": 3}, "hidden_size 16 is no multiple of num_attention_heads 3"),
        ({"vocab_size": 2.5}, "vocab_size is 2.5"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps is 'small'"),
        ({"layer_norm_eps": None}, "layer_norm_eps is None"),
        ({"layer_norm_eps": 0}, "layer_norm_eps is 0"),
    ],
)
def test_a_network_that_is_not_built_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    """The file, the key, what was found and what was expected."""
    text = refusal(folder, **changes)
    assert text.startswith(f"{folder / 'config.json'}: ")
    assert message in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[]", "found list at the top, expected a JSON object"),
        (b"null", "found NoneType at the top"),
    ],
)
def test_a_damaged_config_is_refused(folder: Path, content: bytes, message: str) -> None:
    """A config that was cut off, or is none."""
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_checkpoint(folder)
    assert message in str(caught.value)


def test_missing_files_are_named(folder: Path, tmp_path: Path) -> None:
    """The directory, the config, the weights, the vocabulary: each by its own message."""
    with pytest.raises(ModelError, match=r"absent: no such model directory \(model\.path in the job\)"):
        read_checkpoint(tmp_path / "absent")
    with pytest.raises(ModelError, match=r"has no config\.json"):
        read_checkpoint(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "has neither pytorch_model.bin nor model.safetensors: the checkpoint is incomplete" in refusal(folder)
    (folder / "pytorch_model.bin").mkdir()
    assert "has neither pytorch_model.bin" in refusal(folder)
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "vocab.txt").unlink()
    assert "has neither vocab.txt nor tokenizer.json" in refusal(folder)


def test_weights_in_several_files_are_refused_as_such(folder: Path) -> None:
    """A checkpoint in shards is not called incomplete."""
    (folder / "pytorch_model.bin").unlink()
    (folder / "pytorch_model.bin.index.json").write_text("{}", encoding="utf-8")
    assert "weights in several files are not built; save them as one pytorch_model.bin" in refusal(folder)


def test_a_file_in_the_directorys_place_is_refused(tmp_path: Path) -> None:
    """model.path that names the weights themselves."""
    path = tmp_path / "model.bin"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="no such model directory"):
        read_checkpoint(path)


def test_digest_is_that_of_the_bytes(folder: Path) -> None:
    """SHA-256 of the whole file; one that cannot be read is named."""
    assert file_digest(folder / "pytorch_model.bin") == hashlib.sha256(b"weights").hexdigest()
    with pytest.raises(ModelError, match=r"absent\.bin: cannot be read"):
        file_digest(folder / "absent.bin")


def test_a_stop_is_heard_while_weights_are_digested(folder: Path) -> None:
    """What is called for every piece of a file may end the digesting."""

    def stop() -> None:
        raise InterruptedRunError("stopped")

    with pytest.raises(InterruptedRunError):
        file_digest(folder / "pytorch_model.bin", stop)
