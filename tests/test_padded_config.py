"""What the padded path does not run is refused by name, most of it before a weight is read; nothing is guessed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from batchzs.errors import ModelError
from batchzs.models.loaded import LoadedModel
from batchzs.models.opening import open_model
from batchzs.models.weights import read_state_dict
from tests.architectures import LABELS, MAX_LENGTH, NAMES, change_json, write_architecture
from tests.builders import make_job, odd_folder, run_python, write_weights

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A RoBERTa to be spoiled."""
    return write_architecture(odd_folder(tmp_path), "roberta")


def opening_refusal(folder: Path, **model: Any) -> str:
    """The message that a checkpoint is refused with before its weights are read."""
    job = make_job(model={"path": str(folder)} | model, engine={"max_length": MAX_LENGTH}, labels=LABELS)
    with pytest.raises(ModelError) as caught:
        open_model(job, None, offline=True)
    return str(caught.value)


def loading_refusal(folder: Path) -> str:
    """The message that a checkpoint's weights are refused with."""
    job = make_job(model={"path": str(folder)}, engine={"max_length": MAX_LENGTH}, labels=LABELS)
    opened = open_model(job, None, offline=True)
    with pytest.raises(ModelError) as caught:
        LoadedModel(opened.checkpoint, "cpu", "fp32")
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoModel": "modeling.Net"}}, "auto_map names Python code beside the weights"),
        ({"auto_map": {}}, "auto_map names Python code"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantised weights are not built"),
        ({"model_type": "no-such"}, "model_type is 'no-such', which transformers"),
        ({"model_type": "clip"}, "model_type is 'clip', of which transformers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, expected at most 1000"),
        ({"num_attention_heads": 3}, "transformers"),
        ({"hidden_size": "big"}, "transformers"),
        ({"hidden_act": "no-such"}, "describes no network that transformers can build"),
        ({"model_type": "fnet", "pad_token_id": 0}, "a fnet takes no attention_mask"),
        ({"model_type": "big_bird"}, "attention_type is 'block_sparse'"),
    ],
)
def test_a_network_that_is_not_run_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    """The file, what was found, and no traceback, before any weight is read."""
    (folder / "model.safetensors").write_bytes(b"not read")
    change_json(folder / "config.json", **changes)
    text = opening_refusal(folder)
    assert text.startswith(f"{folder / 'config.json'}: ")
    assert message in text
    assert "\n" not in text


def test_keys_that_say_how_to_run_are_passed_over(folder: Path) -> None:
    """Kernels from a hub, another precision, other outputs: how it runs is the run's to decide."""
    change_json(
        folder / "config.json",
        attn_implementation="kernels-community/flash-attn",
        _attn_implementation="flash_attention_2",
        dtype="float16",
        torch_dtype="float16",
        output_hidden_states=True,
        return_dict=False,
        torchscript=True,
        transformers_weights="elsewhere.bin",
    )
    job = make_job(model={"path": str(folder)}, engine={"max_length": MAX_LENGTH}, labels=LABELS)
    LoadedModel(open_model(job, None, offline=True).checkpoint, "cpu", "fp32")


def test_files_that_are_missing_are_named(folder: Path) -> None:
    """Weights, shards of weights, and a tokenizer that only a slow class could read, with what to do."""
    (folder / "tokenizer.json").unlink()
    text = opening_refusal(folder)
    assert "has no tokenizer.json, found no vocabulary at all" in text
    (folder / "sentencepiece.bpe.model").touch()
    text = opening_refusal(folder)
    assert "found only sentencepiece.bpe.model, which a slow tokenizer is made from" in text
    assert "AutoTokenizer and write it into the directory with its save_pretrained" in text
    (folder / "model.safetensors").unlink()
    assert "it lacks: model.safetensors or pytorch_model.bin; vocab.txt or tokenizer.json" in opening_refusal(folder)
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "model-1.safetensors"}}', encoding="utf-8")
    assert "names model-1.safetensors, which is not there" in opening_refusal(folder)
    for content in ("{}", "[]", '{"weight_map": {"a": "../b"}}', '{"weight_map": {"a": 1}}', '{"weight_map": {}}'):
        index.write_text(content, encoding="utf-8")
        assert str(index) in opening_refusal(folder)


@pytest.mark.parametrize("names", [("LABEL_0", "LABEL_1", "LABEL_2"), ("neutral", "neither", "not_entailment")])
def test_names_that_do_not_say_which_class_is_entailment_are_refused(folder: Path, names: tuple[str, ...]) -> None:
    """Until the job states the indices."""
    change_json(folder / "config.json", id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)})
    assert "does not say which class is entailment" in opening_refusal(folder)
    stated = {"path": str(folder), "entailment_id": 0, "contradiction_id": 2}
    opened = open_model(make_job(model=stated, engine={"max_length": MAX_LENGTH}, labels=LABELS), None, offline=True)
    assert opened.classes(3).neutral == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no tokenizer file"),
        (b"{}", "is no tokenizer file"),
        ({"post_processor": None}, "puts nothing between the two texts of a pair"),
        ({"vocabulary": 9}, "but config.json says vocab_size"),
    ],
)
def test_a_tokenizer_that_fits_nothing_is_refused(folder: Path, content: bytes | dict[str, Any], message: str) -> None:
    """Damaged, without a separator, or of another checkpoint."""
    path = folder / "tokenizer.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif "vocabulary" in content:
        change_json(folder / "config.json", vocab_size=9)
    else:
        values = json.loads(path.read_bytes()) | content
        path.write_text(json.dumps(values), encoding="utf-8")
    text = opening_refusal(folder)
    assert text.startswith(f"{path}: ")
    assert message in text


def test_files_that_disagree_on_capitals_are_refused(tmp_path: Path) -> None:
    """Transformers goes by tokenizer_config.json, the tokenizers library by tokenizer.json."""
    folder = write_architecture(odd_folder(tmp_path), "electra")
    change_json(folder / "tokenizer_config.json", do_lower_case=False)
    assert "has lowercase True, but tokenizer_config.json says do_lower_case False" in opening_refusal(folder)


def test_token_types_that_nobody_counts_are_refused(tmp_path: Path) -> None:
    """GPT adds word number 1 for a token of type 1, Funnel compares types: what is meant cannot be told."""
    folder = write_architecture(odd_folder(tmp_path), "electra")
    change_json(folder / "config.json", model_type="gpt2", type_vocab_size=None)
    text = opening_refusal(folder)
    assert "tokenizer.json: gives token types, but config.json does not say how many the network has" in text
    change_json(folder / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    assert "lacks" in loading_refusal(folder)


@pytest.mark.parametrize(
    ("remove", "add", "message"),
    [
        ("classifier.out_proj.weight", {}, "lacks 1 parameters of a RobertaForSequenceClassification"),
        ("classifier.", {}, "lacks 4 parameters"),
        ("classifier.", {"lm_head.bias": 3}, "expected a checkpoint with a trained classifier"),
        ("roberta.encoder.layer.1.", {}, "lacks 16 parameters"),
        (
            "classifier.out_proj.weight",
            {"classifier.out_proj.weight": 4},
            "out_proj.weight has shape 4, config.json asks",
        ),
        ("", {"roberta.encoder.layer.2.output.dense.bias": 16}, "holds 1 parameters that the RobertaForSequence"),
        ("", {"head.weight": 3}, "such as head.weight: the files belong to different checkpoints"),
    ],
)
def test_weights_that_are_not_all_there_are_refused(
    folder: Path, remove: str, add: dict[str, int], message: str
) -> None:
    """No parameter stays as transformers would draw it, and none is left over that belongs to a deeper network."""
    path = folder / "model.safetensors"
    state = {key: value for key, value in read_state_dict(path).items() if not (remove and key.startswith(remove))}
    write_weights(folder, state | {key: torch.ones(size) for key, size in add.items()}, "safetensors")
    text = loading_refusal(folder)
    assert text.startswith(f"{path}: ")
    assert message in text


def test_what_pretraining_left_behind_does_no_harm(folder: Path) -> None:
    """Old buffers, heads and poolers are in many checkpoints."""
    names = ("roberta.embeddings.position_ids", "lm_head.bias", "roberta.pooler.dense.bias", "model.encoder.version")
    state = read_state_dict(folder / "model.safetensors") | {name: torch.ones(3) for name in names}
    write_weights(folder, state, "safetensors")
    job = make_job(model={"path": str(folder)}, engine={"max_length": MAX_LENGTH}, labels=LABELS)
    LoadedModel(open_model(job, None, offline=True).checkpoint, "cpu", "fp32")


def test_a_config_without_class_names_says_what_it_lacks(folder: Path) -> None:
    """Transformers then takes two classes, and the weights hold three."""
    change_json(folder / "config.json", id2label=None, label2id={NAMES[0]: 0, NAMES[2]: 1})
    assert "or config.json lacks the class names (id2label)" in loading_refusal(folder)


def test_a_pickle_that_runs_code_is_refused(folder: Path) -> None:
    """As on the packed path: tensors alone."""
    (folder / "model.safetensors").unlink()
    torch.save({"a": print}, folder / "pytorch_model.bin")
    assert "holds pickled objects and not tensors alone" in loading_refusal(folder)


@pytest.mark.slow
def test_nothing_beside_the_weights_is_looked_at(folder: Path) -> None:
    """Adapters, code and generation settings in the directory change nothing; no connection is tried."""
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "a/b"}', encoding="utf-8")
    (folder / "modeling_roberta.py").write_text("raise SystemExit(99)", encoding="utf-8")
    (folder / "generation_config.json").write_text("{", encoding="utf-8")
    program = """
import socket, sys
def refuse(*arguments, **named):
    raise SystemExit("a connection was tried")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from pathlib import Path
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.loaded import LoadedModel
print(LoadedModel(read_checkpoint(Path(sys.argv[1])), "cpu", "fp32").num_classes)
"""
    assert run_python(program, str(folder)) == "3\n"
