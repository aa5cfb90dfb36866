"""ModelScope's own zero-shot pipeline, as its model card calls it: one text at a time with all its labels, in fp32.

Needs an environment of its own, as tests/golden/make_golden.py describes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from modelscope.pipelines import pipeline

from bench.peers.serving import Question, Settings, serve

if TYPE_CHECKING:
    from collections.abc import Sequence


class ModelScopeScorer:
    """The pipeline; it has no settings: it cannot put several texts into a batch."""

    def __init__(self, question: Question) -> None:
        torch.set_num_threads(question.num_cpus)
        self._pipeline = pipeline(
            "zero-shot-classification", model=str(Path(question.folder, "structbert")), device="cpu"
        )
        self._pipeline.model.float().eval()
        self._question = question

    def configure(self, settings: Settings) -> None:
        """There is nothing to choose."""

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, labels) scores."""
        labels = self._question.labels
        rows = []
        for text in texts:
            found = self._pipeline(text, candidate_labels=labels, hypothesis_template=self._question.template)
            score_of = dict(zip(found["labels"], found["scores"], strict=True))
            rows.append([score_of[label] for label in labels])
        return np.array(rows)


if __name__ == "__main__":
    serve(ModelScopeScorer, ["modelscope", "transformers", "torch"])
