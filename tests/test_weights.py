"""Weights are loaded without running code, and only if they are all there (case Z13)."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import MachineError, ModelError
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.weights import expected_shapes, load_weights
from tests.builders import PATIENT, network_config, odd_folder, reference_network, write_checkpoint, write_weights

LAYOUTS = ("bin", "safetensors")


def state_dict(num_classes: int = 3) -> dict[str, torch.Tensor]:
    """A tiny classifier's state dict as transformers saves it."""
    return dict(reference_network(network_config(), num_classes).state_dict())


def state_dict_of_one() -> dict[str, torch.Tensor]:
    """A file that is never a whole checkpoint, so that it is refused for its damage or for what it lacks."""
    return {"classifier.weight": torch.zeros(3, 16), "classifier.bias": torch.zeros(3)}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose weights are written anew for every example."""
    return write_checkpoint(odd_folder(tmp_path_factory.mktemp("weights")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole checkpoint, whose weights a test may replace."""
    return write_checkpoint(odd_folder(tmp_path))


def load(folder: Path, state: dict[str, Any] | None = None, layout: str = "bin") -> dict[str, torch.Tensor]:
    """Write a state dict, if given, and load the checkpoint's weights."""
    if state is not None:
        (folder / "pytorch_model.bin").unlink(missing_ok=True)
        write_weights(folder, state, layout)
    return load_weights(read_checkpoint(folder))


def refusal(folder: Path, state: dict[str, Any] | None = None) -> str:
    """The message that weights are refused with."""
    with pytest.raises(ModelError) as caught:
        load(folder, state)
    message = str(caught.value)
    assert message.startswith(f"{folder / 'pytorch_model.bin'}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_classes", [2, 3])
def test_both_layouts_load(folder: Path, layout: str, num_classes: int) -> None:
    """What comes out is what was saved, under the names below the prefix; the head decides the number of classes."""
    state = state_dict(num_classes)
    weights = load(folder, state, layout)
    assert set(weights) == {key.removeprefix("bert.") for key in state}
    assert all(torch.equal(weights[key.removeprefix("bert.")], tensor) for key, tensor in state.items())
    assert weights["classifier.weight"].shape == (num_classes, 16)


def test_the_expected_shapes_are_transformers_own(folder: Path) -> None:
    """Every parameter of BertForSequenceClassification is expected, in its shape, and no other."""
    shapes = expected_shapes(read_checkpoint(folder))
    own = {key.removeprefix("bert."): tuple(tensor.shape) for key, tensor in state_dict().items()}
    assert {key: tuple(3 if size is None else size for size in shape) for key, shape in shapes.items()} == own


def test_gamma_and_beta_are_layer_norms_weight_and_bias(folder: Path) -> None:
    """Checkpoints converted from TensorFlow name them so."""
    state = state_dict()
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for key, tensor in state.items()
    }
    assert set(old) != set(state)
    weights = load(folder, old)
    assert torch.equal(weights["embeddings.LayerNorm.weight"], state["bert.embeddings.LayerNorm.weight"])


def test_buffers_and_pretraining_heads_are_left_aside(folder: Path) -> None:
    """ModelScope saves position_ids; a pretraining head is no part of a classifier either."""
    state = state_dict()
    extra = {"bert.embeddings.position_ids": torch.arange(64)[None], "cls.predictions.bias": torch.zeros(5)}
    assert set(load(folder, state | extra)) == {key.removeprefix("bert.") for key in state}


def test_another_prefix_that_the_config_names_is_read(tmp_path: Path) -> None:
    """base_model_prefix says under which name the encoder was saved."""
    folder = write_checkpoint(odd_folder(tmp_path), base_model_prefix="encoder")
    state = {key.replace("bert.", "encoder.", 1): tensor for key, tensor in state_dict().items()}
    assert "embeddings.LayerNorm.weight" in load(folder, state)


@pytest.mark.parametrize("key", ["classifier.weight", "classifier.bias", "bert.pooler.dense.weight"])
def test_a_missing_parameter_is_refused(folder: Path, key: str) -> None:
    """A head that stays random answers as confidently as a trained one."""
    state = state_dict()
    del state[key]
    assert f"lacks 1 parameters, such as {key.removeprefix('bert.')}" in refusal(folder, state)


def test_a_foreign_prefix_is_refused(folder: Path) -> None:
    """The message shows what the file holds and what prefix was expected."""
    state = {f"roberta.{key.removeprefix('bert.')}": tensor for key, tensor in state_dict().items()}
    message = refusal(folder, state)
    assert "roberta.embeddings.word_embeddings.weight" in message
    assert "begin with 'bert.'" in message


@pytest.mark.parametrize(
    "key", ["classifier.dense.weight", "head.weight", "bert.encoder.layer.2.output.dense.bias", "bert.encoder.extra"]
)
def test_an_unknown_parameter_is_refused(folder: Path, key: str) -> None:
    """Another head, a third layer where the config says two: the file belongs to another network."""
    assert f"such as {key.removeprefix('bert.')}" in refusal(folder, state_dict() | {key: torch.zeros(16)}).replace(
        "such as bert.", "such as "
    )


@pytest.mark.parametrize(
    ("key", "shape", "message"),
    [
        ("bert.embeddings.word_embeddings.weight", (7, 16), "word_embeddings.weight has shape 7 x 16"),
        ("bert.encoder.layer.1.output.dense.bias", (17,), "layer.1.output.dense.bias has shape 17"),
        ("classifier.weight", (3, 15), "classifier.weight has shape 3 x 15, config.json asks for classes x 16"),
        ("classifier.weight", (3,), "classifier.weight has shape 3, config.json asks for classes x 16"),
        ("classifier.bias", (2,), "classifier.bias"),
    ],
)
def test_a_wrong_shape_is_refused(folder: Path, key: str, shape: tuple[int, ...], message: str) -> None:
    """The parameter, its shape, and what the config asks for."""
    assert message in refusal(folder, state_dict() | {key: torch.zeros(shape)})


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_truncated_file_is_refused(folder: Path, size: int) -> None:
    """A download or a copy that was cut off."""
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:size])
    assert "the file is damaged" in refusal(folder)


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_truncated_safetensors_file_is_refused(folder: Path, size: int) -> None:
    """The same for the other layout, header and data."""
    path = write_weights(folder, state_dict(), "safetensors")
    (folder / "pytorch_model.bin").unlink()
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot be loaded as weights"):
        load(folder)


@PATIENT
@given(data=st.data(), zipped=st.booleans())
def test_a_damaged_file_is_refused_whatever_the_damage(
    scratch: Path,
    data: st.DataObject,
    zipped: bool,  # noqa: FBT001 - drawn
) -> None:
    """Bytes that changed on a disk end in a plain refusal, whatever error the loader makes of them."""
    path = scratch / "pytorch_model.bin"
    torch.save(state_dict_of_one(), path, _use_new_zipfile_serialization=zipped)
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of pickle protocols that the damage made up
        with pytest.raises((ModelError, MachineError)):  # a size that the damage made up may ask for all memory
            load(scratch)


def test_text_in_the_weights_place_is_refused(folder: Path) -> None:
    """A pointer file of Git LFS is what a clone without LFS leaves."""
    (folder / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n")
    assert "the file is damaged" in refusal(folder)


class _Code:
    """Pickles as a call that makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_does_not(folder: Path, tmp_path: Path, zipped: bool) -> None:  # noqa: FBT001 - parametrised
    """Nothing in a model directory is ever executed."""
    trace = tmp_path / "code ran"
    path = folder / "pytorch_model.bin"
    torch.save({"classifier.weight": _Code(trace)}, path, _use_new_zipfile_serialization=zipped)
    assert "holds pickled objects and not tensors alone" in refusal(folder)
    path.write_bytes(pickle.dumps(_Code(trace), protocol=2))
    assert "holds pickled objects and not tensors alone" in refusal(folder)
    assert not trace.exists()


@pytest.mark.parametrize("content", [[1, 2], {"classifier.weight": "text"}, {"model": {"a": torch.zeros(1)}}])
def test_a_file_that_holds_no_state_dict_is_refused(folder: Path, content: object) -> None:
    """A training checkpoint with the weights one level down is not guessed at."""
    torch.save(content, folder / "pytorch_model.bin")
    assert "holds no table of tensors by name" in refusal(folder)
