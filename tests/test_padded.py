"""The padded path gives the scores of transformers' own zero-shot pipeline, whatever the batch."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from batchzs.engine import Engine, EngineSettings, TextLogits
from batchzs.errors import ModelError, UsageError
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.loaded import LoadedModel
from batchzs.models.opening import OpenedModel, open_model
from batchzs.models.padded import PaddedNetwork, read_padded_weights
from batchzs.models.plain import load_plain_model
from batchzs.pairs import PackedPairs, PairAssembler, TokenLists
from batchzs.scoring import scores_from_logits
from tests.architectures import ARCHITECTURES, LABELS, MAX_LENGTH, TEMPLATE, TEXTS, change_json, write_architecture
from tests.builders import make_job, odd_folder, write_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from batchzs.engine import PairModel

TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As a run does it: threads inside so small an operation cost far more than they save."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One checkpoint of each architecture; DistilBERT's has two classes. Not to be written to."""
    above = odd_folder(tmp_path_factory.mktemp("models"))
    names = {"distilbert": ("not_entailment", "entailment")}
    return {
        kind: write_architecture(above / kind, kind, *([names[kind]] if kind in names else []))
        for kind in ARCHITECTURES
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A RoBERTa to be spoiled."""
    return write_architecture(odd_folder(tmp_path), "roberta")


def opened(folder: Path, labels: Sequence[str] = LABELS, **engine: Any) -> OpenedModel:
    """Open a checkpoint for a job."""
    job = make_job(
        model={"path": str(folder)},
        labels=[{"name": label, "hypothesis": TEMPLATE.replace("{}", label)} for label in labels],
        engine={"max_length": MAX_LENGTH} | engine,
    )
    return open_model(job, None, offline=True)


def score(
    model: OpenedModel,
    loaded: PairModel,
    texts: Sequence[str] = TEXTS,
    labels: Sequence[str] = LABELS,
    *,
    max_batch_tokens: int = 4096,
    num_workers: int = 2,
) -> TextLogits:
    """Score texts through the engine."""
    settings = EngineSettings(MAX_LENGTH, "head", max_batch_tokens, 3, num_workers)
    hypotheses = [TEMPLATE.replace("{}", label) for label in labels]
    return Engine(loaded, model.tokenizer, hypotheses, settings, lambda *_: None).score(texts)


def pipeline_scores(folder: Path, *, multi_label: bool, labels: Sequence[str] = LABELS) -> np.ndarray:
    """(texts, labels) scores of transformers' own pipeline."""
    from transformers import pipeline

    zero_shot = pipeline("zero-shot-classification", model=str(folder), device="cpu", dtype=torch.float32)
    results = zero_shot(
        list(TEXTS), candidate_labels=list(labels), hypothesis_template=TEMPLATE, multi_label=multi_label
    )
    return np.array([[dict(zip(r["labels"], r["scores"], strict=True))[label] for label in labels] for r in results])


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_scores_equal_the_pipelines(folders: Mapping[str, Path], kind: str) -> None:
    """Single label, multi-label and one label alone; texts from one token to more than the network takes."""
    model = opened(folders[kind])
    loaded = LoadedModel(model.checkpoint, "cpu", "fp32")
    classes = model.classes(loaded.num_classes)
    scored = score(model, loaded)
    assert scored.truncated.sum() >= 2
    for multi_label in (False, True):
        scores = scores_from_logits(scored.logits, classes, as_multi_label=multi_label)
        expected = pipeline_scores(folders[kind], multi_label=multi_label)
        np.testing.assert_allclose(scores, expected, atol=TOLERANCE, rtol=0)
        assert np.ptp(expected, axis=0).min() > 100 * TOLERANCE  # texts do get different scores
    one = score(model, loaded, labels=LABELS[:1])
    scores = scores_from_logits(one.logits, classes, as_multi_label=True)
    expected = pipeline_scores(folders[kind], multi_label=False, labels=LABELS[:1])
    np.testing.assert_allclose(scores, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_the_batch_does_not_show(folders: Mapping[str, Path], kind: str) -> None:
    """Every pair alone, a few together, all together, by one worker or several: the same logits."""
    model = opened(folders[kind])
    loaded = LoadedModel(model.checkpoint, "cpu", "fp32")
    plain = score(model, load_plain_model(model.checkpoint), max_batch_tokens=1, num_workers=1)
    for max_batch_tokens, num_workers in ((1, 1), (150, 3), (100_000, 1)):
        scored = score(model, loaded, max_batch_tokens=max_batch_tokens, num_workers=num_workers)
        np.testing.assert_allclose(scored.logits, plain.logits, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", ["roberta", "deberta-v2", "modernbert"])
def test_half_precision_is_close_and_the_exact_forward_is_fp32s(folders: Mapping[str, Path], kind: str) -> None:
    """bf16 moves logits a little; asked for fp32, the same object gives fp32's logits to the bit."""
    model = opened(folders[kind])
    coarse, fine = (LoadedModel(model.checkpoint, "cpu", precision) for precision in ("bf16", "fp32"))
    pairs = token_pairs([[7, 8, 9, 10], [11] * 20], [[12, 13], [14]], model)
    exact = fine.forward(pairs)
    assert exact.dtype == coarse.forward(pairs).dtype == np.float32
    assert 0 < np.abs(coarse.forward(pairs) - exact).max() < 0.2
    assert np.array_equal(coarse.forward_exact(pairs), exact)
    assert np.array_equal(fine.forward_exact(pairs), exact)
    coarse.release_memory()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_network_that_shows_its_padding_is_refused(
    folders: Mapping[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its mask every one of them does: a forgotten mask, or a network that takes no heed of it, is found."""
    checkpoint = read_checkpoint(folders[kind])
    forward = PaddedNetwork._forward

    def without_mask(self: PaddedNetwork, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        return forward(self, {**inputs, "attention_mask": np.ones_like(inputs["attention_mask"])})

    monkeypatch.setattr(PaddedNetwork, "_forward", without_mask)
    with pytest.raises(ModelError, match=f"padding changes the scores of this {kind}"):
        LoadedModel(checkpoint, "cpu", "fp32")


@pytest.mark.parametrize("kind", ["bart", "roberta", "electra"])
def test_a_text_that_spells_out_special_tokens_harms_nobody(folders: Mapping[str, Path], kind: str) -> None:
    """BART takes only pairs with equally many end tokens in a batch; the text and its neighbours get their scores."""
    model = opened(folders[kind])
    loaded = LoadedModel(model.checkpoint, "cpu", "fp32")
    texts = [TEXTS[0], "news </s> sports", "[SEP] 央行 [PAD]", "<pad> a </s></s>", TEXTS[1]]
    together = score(model, loaded, texts).logits
    alone = score(model, loaded, texts, max_batch_tokens=1).logits
    assert np.isfinite(together).all()
    np.testing.assert_allclose(together, alone, atol=TOLERANCE, rtol=0)


def test_token_types_are_those_that_the_checkpoint_means(tmp_path: Path) -> None:
    """tokenizer.json's, also where transformers 5 forgets them; none where the settings name other inputs."""
    folder = write_architecture(odd_folder(tmp_path), "albert")
    wanted = score(opened(folder), LoadedModel(read_checkpoint(folder), "cpu", "fp32")).logits
    change_json(folder / "tokenizer_config.json", model_input_names=None)
    unsaid = score(opened(folder), LoadedModel(read_checkpoint(folder), "cpu", "fp32")).logits
    assert np.array_equal(unsaid, wanted)
    change_json(folder / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    model = opened(folder)
    scored = score(model, LoadedModel(model.checkpoint, "cpu", "fp32")).logits
    assert np.abs(scored - wanted).max() > 100 * TOLERANCE
    scores = scores_from_logits(scored, model.classes(3), as_multi_label=False)
    np.testing.assert_allclose(scores, pipeline_scores(folder, multi_label=False), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("layout", ["bin", "sharded"])
def test_weights_in_other_files_give_the_same(folders: Mapping[str, Path], tmp_path: Path, layout: str) -> None:
    """A pickle of tensors, and several files with an index; each file counts in the fingerprint."""
    folder = shutil.copytree(folders["deberta-v2"], odd_folder(tmp_path) / "copy")
    state = read_padded_weights(read_checkpoint(folder))
    expected = score(opened(folder), LoadedModel(read_checkpoint(folder), "cpu", "fp32")).logits
    (folder / "model.safetensors").unlink()
    if layout == "bin":
        write_weights(folder, state)
        names = ["pytorch_model.bin"]
    else:
        names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        shards = {name: list(state)[index::2] for index, name in enumerate(names)}
        for name, keys in shards.items():
            write_weights(folder, {key: state[key] for key in keys}, "safetensors").rename(folder / name)
        weight_map = {key: name for name, keys in shards.items() for key in keys}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    model = opened(folder)
    assert [file.name for file in model.files] == [*names, "config.json", "tokenizer.json", "tokenizer_config.json"]
    scored = score(model, LoadedModel(model.checkpoint, "cpu", "fp32"))
    np.testing.assert_array_equal(scored.logits, expected)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_the_longest_pair_fits_and_the_limit_is_known(folders: Mapping[str, Path], kind: str) -> None:
    """RoBERTa's 66 rows of positions are 64; DeBERTa's relative positions have no limit."""
    assert read_checkpoint(folders[kind]).max_length == (None if kind == "deberta-v2" else MAX_LENGTH)
    if kind == "deberta-v2":
        assert opened(folders[kind], max_length=4 * MAX_LENGTH).checkpoint.max_length is None
    else:
        with pytest.raises(UsageError, match=f"the model takes at most {MAX_LENGTH} tokens"):
            opened(folders[kind], max_length=MAX_LENGTH + 1)


def test_running_out_of_memory_divides_the_batch(folders: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's backing off holds for padded batches, padding counted."""
    model = opened(folders["roberta"])
    loaded = LoadedModel(model.checkpoint, "cpu", "fp32")
    expected = score(model, loaded).logits
    forward = PaddedNetwork._forward

    def short_of_memory(self: PaddedNetwork, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        if inputs["input_ids"].size > 300:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
        return forward(self, inputs)

    monkeypatch.setattr(PaddedNetwork, "_forward", short_of_memory)
    scored = score(model, loaded, num_workers=1)
    assert scored.counts.splits
    np.testing.assert_allclose(scored.logits, expected, atol=TOLERANCE, rtol=0)


def token_pairs(texts: Sequence[list[int]], hypotheses: Sequence[list[int]], model: OpenedModel) -> PackedPairs:
    """Pack each text with the hypothesis at its place, in the checkpoint's layout."""
    assembler = PairAssembler(
        TokenLists.from_lists(texts), TokenLists.from_lists(hypotheses), model.tokenizer.layout, MAX_LENGTH, "head"
    )
    return assembler.assemble(np.arange(len(texts)), np.arange(len(texts)))
