"""The sample model's answers equal ModelScope's own pipeline's, as frozen in `golden/golden.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchzs.engine import Engine, EngineSettings
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.classes import StatedIndices, resolve_classes
from batchzs.models.loaded import LoadedModel
from batchzs.models.tokenizer import CheckpointTokenizer, load_tokenizer
from batchzs.scoring import scores_from_logits

GOLDEN = Path(__file__).parent / "golden" / "golden.jsonl"
SAMPLE_MODEL = Path(__file__).parent.parent / "sample_data" / "model"
CASES: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").split("\n") if line]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def tokenizer() -> CheckpointTokenizer:
    """The sample checkpoint's tokenizer."""
    return load_tokenizer(read_checkpoint(SAMPLE_MODEL))


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    """The sample checkpoint in fp32."""
    return LoadedModel(read_checkpoint(SAMPLE_MODEL), "cpu", "fp32")


def test_golden_cases_cover_what_they_should() -> None:
    """There are 200 cases or more: texts that are cut, 1 to 60 labels, both templates, multi-label and not."""
    assert len(CASES) >= 200
    assert {1, 60} <= {len(case["labels"]) for case in CASES}
    assert {case["template"] for case in CASES} == {"这篇文章的标题是{}", "{}"}
    assert {case["multi_label"] for case in CASES} == {True, False}
    assert sum(len(case["text"]) > 512 for case in CASES) >= 10


@pytest.mark.parametrize("number", range(len(CASES)))
def test_logits_and_scores_equal_modelscopes(number: int, tokenizer: CheckpointTokenizer, model: LoadedModel) -> None:
    """Each case's logits and scores are ModelScope's within 1e-5, and so is the best label."""
    case = CASES[number]
    hypotheses = [case["template"].replace("{}", label) for label in case["labels"]]
    settings = EngineSettings(
        max_length=512, truncate="head", max_batch_tokens=4096, labels_per_chunk=64, num_workers=2
    )
    logits = Engine(model, tokenizer, hypotheses, settings, lambda *_: None).score([case["text"]]).logits
    classes = resolve_classes(
        is_structbert=True, id2label={}, num_classes=model.num_classes, stated=StatedIndices(None, None)
    )
    as_multi_label = case["multi_label"] or len(case["labels"]) == 1
    scores = scores_from_logits(logits, classes, as_multi_label=as_multi_label)
    np.testing.assert_allclose(logits[0], case["logits"], atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(scores[0], case["scores"], atol=TOLERANCE, rtol=0)
    best, runner_up = np.sort(case["scores"])[::-1][:2] if len(case["scores"]) > 1 else (1.0, 0.0)
    if best - runner_up > TOLERANCE:
        assert scores[0].argmax() == np.argmax(case["scores"])
