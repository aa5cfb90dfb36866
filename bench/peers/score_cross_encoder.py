"""sentence-transformers' CrossEncoder: padded batches of pairs, which it sorts by length itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sentence_transformers import CrossEncoder

from bench.peers.serving import Question, Settings, serve, softmax_over_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class CrossEncoderScorer:
    """The cross-encoder; `batch_size` counts pairs."""

    def __init__(self, question: Question) -> None:
        torch.set_num_threads(question.num_cpus)
        self._encoder = CrossEncoder(
            str(Path(question.folder, "bert")),
            device="cpu",
            max_length=512,
            model_kwargs={"dtype": {"fp32": torch.float32, "bf16": torch.bfloat16}[question.precision]},
        )
        self._question = question
        self._batch_size = 32

    def configure(self, settings: Settings) -> None:
        """Take another batch size."""
        self._batch_size = settings["batch_size"]

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, labels) scores."""
        hypotheses = self._question.hypotheses
        logits = self._encoder.predict(
            [(text, hypothesis) for text in texts for hypothesis in hypotheses],
            batch_size=self._batch_size,
            activation_fn=torch.nn.Identity(),
            show_progress_bar=False,
        )
        return softmax_over_labels(logits[:, 0].reshape(len(texts), len(hypotheses)))


if __name__ == "__main__":
    serve(CrossEncoderScorer, ["sentence-transformers", "transformers", "torch"])
