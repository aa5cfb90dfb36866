"""The command's scores equal transformers' own zero-shot pipeline's on the same checkpoint in transformers' layout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE_DATA = Path(__file__).parent.parent.parent / "sample_data"
LABELS = ["文化", "体育", "娱乐", "财经", "家居", "汽车", "教育", "科技", "军事"]
TEMPLATE = "这篇文章的标题是{}"
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample model, saved by transformers as a BERT classifier with class names."""
    folder = tmp_path_factory.mktemp("变形金刚 [布局]")
    settings = json.loads((SAMPLE_DATA / "model/config.json").read_bytes())
    del settings["model_type"], settings["architectures"]
    names = ["entailment", "neutral", "contradiction"]
    config = BertConfig(**settings, id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)})
    model = BertForSequenceClassification(config)
    state = torch.load(SAMPLE_DATA / "model/pytorch_model.bin", weights_only=True)
    del state["bert.embeddings.position_ids"]  # a buffer that ModelScope saves and transformers does not
    model.load_state_dict(state)
    model.save_pretrained(folder)
    BertTokenizer(str(SAMPLE_DATA / "model/vocab.txt"), model_max_length=512).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Sample texts short and long, and two that must be cut."""
    news = [text for text in pl.read_parquet(SAMPLE_DATA / "news.parquet")["text"].to_list() if text and text.strip()]
    long = [text for text in news if len(text) > 300]
    return [*news[:12], *long[:2], "".join(long[2:5]), "央" * 600]


@pytest.fixture(autouse=True)
def _quiet_pipeline() -> Iterator[None]:
    """Keep transformers' hints about speed out of the test's warnings."""
    import transformers.utils.logging as transformers_logging

    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    yield
    transformers_logging.set_verbosity(before)


@pytest.mark.slow
@pytest.mark.parametrize("multi_label", [False, True])
def test_scores_equal_the_pipelines(checkpoint: Path, texts: list[str], tmp_path: Path, *, multi_label: bool) -> None:
    """Every score agrees within 1e-5, and every clear best label."""
    pl.DataFrame({"text": texts}).write_parquet(tmp_path / "texts.parquet")
    job = {
        "input": {"path": "texts.parquet", "text": "text"},
        "labels": LABELS,
        "template": TEMPLATE,
        "multi_label": multi_label,
        "model": {"path": str(checkpoint)},
        "output": {"path": "out"},
        "engine": {"precision": "fp32", "device": "cpu"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "batchzs", "run", tmp_path / "job.yaml"], check=True, timeout=300)
    frame = pl.read_parquet(tmp_path / "out/scores")

    zero_shot = pipeline("zero-shot-classification", model=str(checkpoint), device="cpu")
    results = zero_shot(texts, candidate_labels=LABELS, hypothesis_template=TEMPLATE, multi_label=multi_label)
    theirs = np.array([[dict(zip(r["labels"], r["scores"], strict=True))[label] for label in LABELS] for r in results])

    np.testing.assert_allclose(np.array(frame["scores"].to_list()), theirs, atol=TOLERANCE, rtol=0)
    ranked = np.sort(theirs, axis=1)
    clear = ranked[:, -1] - ranked[:, -2] > TOLERANCE
    best = np.array([LABELS.index(label) for label in frame["label"]])
    assert clear.sum() > len(texts) // 2
    assert (best == theirs.argmax(axis=1))[clear].all()
