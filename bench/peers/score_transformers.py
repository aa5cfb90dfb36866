"""transformers' zero-shot pipeline: padded batches of pairs in the order of the texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import pipeline

from bench.peers.serving import Question, Settings, serve

if TYPE_CHECKING:
    from collections.abc import Sequence


class TransformersScorer:
    """The pipeline; `batch_size` counts pairs."""

    def __init__(self, question: Question) -> None:
        torch.set_num_threads(question.num_cpus)
        self._pipeline = pipeline(
            "zero-shot-classification",
            model=str(Path(question.folder, "bert")),
            device="cpu",
            dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[question.precision],
        )
        self._question = question
        self._batch_size = 1

    def configure(self, settings: Settings) -> None:
        """Take another batch size."""
        self._batch_size = settings["batch_size"]

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, labels) scores."""
        labels = self._question.labels
        found = self._pipeline(
            list(texts),
            candidate_labels=labels,
            hypothesis_template=self._question.template,
            batch_size=self._batch_size,
        )
        score_of = [dict(zip(row["labels"], row["scores"], strict=True)) for row in found]
        return np.array([[row[label] for label in labels] for row in score_of])


if __name__ == "__main__":
    serve(TransformersScorer, ["transformers", "torch"])
