"""How much a run's precision moves its scores, measured on some of its own rows.

A margin of twice the largest difference is what two scores can close between them: a row whose best two are further
apart names the same label in fp32. It is a measurement on a sample and no proof for the other rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from batchzs.engine import Engine
from batchzs.scoring import scores_from_logits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from batchzs.engine import EngineSettings, PairModel
    from batchzs.models.classes import ClassIndices
    from batchzs.pairs import PackedPairs, TextTokenizer

#: Pairs to measure on: a second or two of a CPU's work, and fewer texts than this at most.
MAX_PAIRS = 4096
MAX_TEXTS = 256
MIN_TEXTS = 16


@dataclass(frozen=True, slots=True)
class _Exact:
    """A model whose usual forward is its exact one."""

    model: PairModel

    @property
    def num_classes(self) -> int:
        return self.model.num_classes

    @property
    def path(self) -> str:
        return self.model.path

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        return self.model.forward_exact(pairs)

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        return self.model.forward_exact(pairs)

    def release_memory(self) -> None:
        self.model.release_memory()


def num_sample_texts(num_labels: int) -> int:
    """How many rows to measure on.

    >>> num_sample_texts(9), num_sample_texts(100), num_sample_texts(1000)
    (256, 40, 16)
    """
    return min(max(MAX_PAIRS // num_labels, MIN_TEXTS), MAX_TEXTS)


@dataclass(frozen=True, slots=True)
class MarginMeasurer:
    """What measuring needs: the run's model, tokenizer, hypotheses, batches and classes.

    `on_batch` is called as the engine calls it; what it raises ends the measurement.
    """

    model: PairModel
    tokenizer: TextTokenizer
    hypotheses: Sequence[str]
    settings: EngineSettings
    classes: ClassIndices
    as_multi_label: bool
    on_batch: Callable[[float, int], None]

    def measure(self, texts: Sequence[str]) -> float:
        """Score texts in the run's precision and in fp32.

        Returns:
            Twice the largest difference between two scores of one text and label; 0 without a scored text.
        """
        scores = [self._scores(model, texts) for model in (self.model, _Exact(self.model))]
        differences = np.abs(scores[0] - scores[1])
        finite = differences[np.isfinite(differences)]
        return 2.0 * float(finite.max()) if finite.size else 0.0

    def _scores(self, model: PairModel, texts: Sequence[str]) -> np.ndarray:
        settings = replace(self.settings, is_close=None)
        engine = Engine(model, self.tokenizer, self.hypotheses, settings, self.on_batch)
        scores = scores_from_logits(engine.score(texts).logits, self.classes, as_multi_label=self.as_multi_label)
        return scores.astype(np.float64)
