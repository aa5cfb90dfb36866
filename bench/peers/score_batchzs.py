"""batchzs' engine, loaded as a run loads it: the packed network, one-thread workers, as many as there are CPUs.

What a run does beside it (reading, the journal, writing) is left out, and so is the second step of a bf16 run, which
scores rows that are too close to call again in fp32: no peer has it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from batchzs.engine import Engine
from batchzs.job import JobConfig
from batchzs.models.opening import open_model
from batchzs.resources import engine_settings, load_pair_model, place, resolve, settle_batch_tokens
from batchzs.scoring import scores_from_logits
from batchzs.test_hook import TestHook
from bench.peers.serving import Question, Settings, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class BatchzsScorer:
    """The engine; `max_batch_tokens` is its token budget, 0 for what a run would settle on by itself."""

    def __init__(self, question: Question) -> None:
        hypotheses = zip(question.labels, question.hypotheses, strict=True)
        job = JobConfig.model_validate(
            {
                "input": {"path": ["/unread"], "text": ["text"]},
                "labels": [{"name": name, "hypothesis": hypothesis} for name, hypothesis in hypotheses],
                "model": {"path": str(Path(question.folder, "structbert"))},
                "output": {"path": "/unwritten"},
                "engine": {
                    "device": "cpu",
                    "precision": question.precision,
                    "workers": question.num_cpus,
                    "rescore_close": False,
                },
            }
        )
        hook = TestHook()
        opened = open_model(job, None, offline=True)
        placement = place(job, hook)
        loaded = load_pair_model(opened, placement, resolve(job, placement, hook), hook)
        if loaded.model.path != "packed":
            raise RuntimeError("batchzs' self-check failed: it would score on its plain path")
        self._model, self._tokenizer = loaded.model, opened.tokenizer
        self._classes = opened.classes(self._model.num_classes)
        self._hypotheses = question.hypotheses
        self._usual = engine_settings(
            job, settle_batch_tokens(job, resolve(job, placement, hook), loaded), self._classes
        )
        self._engine = self._engine_with(self._usual.max_batch_tokens)

    def configure(self, settings: Settings) -> None:
        """Take another token budget."""
        self._engine = self._engine_with(settings["max_batch_tokens"] or self._usual.max_batch_tokens)

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, labels) scores."""
        logits = self._engine.score(texts).logits
        return scores_from_logits(logits, self._classes, as_multi_label=False)

    def _engine_with(self, max_batch_tokens: int) -> Engine:
        settings = replace(self._usual, max_batch_tokens=max_batch_tokens)
        return Engine(self._model, self._tokenizer, self._hypotheses, settings, lambda *_: None)


if __name__ == "__main__":
    serve(BatchzsScorer, ["torch", "tokenizers", "numpy"])
