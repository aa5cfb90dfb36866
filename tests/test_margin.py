"""How far a precision may be off, measured on the job's own rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from batchzs.engine import EngineSettings
from batchzs.margin import MarginMeasurer
from batchzs.models.classes import ClassIndices
from tests.builders import CharacterTokenizer, RecordingModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.pairs import PackedPairs

SETTINGS = EngineSettings(max_length=32, truncate="head", max_batch_tokens=100, labels_per_chunk=8, num_workers=1)


@dataclass
class OffModel(RecordingModel):
    """Entailment is 0 in fp32; in the run's precision it is ln 3 for the hypothesis `y`."""

    def pair_logits(self, ids: Sequence[int]) -> list[float]:
        """One pair's exact logits."""
        del ids
        return [0.0, 0.0, 0.0]

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits."""
        logits = super().forward(pairs)
        last = pairs.input_ids[np.cumsum(pairs.lengths) - 2]
        logits[last == ord("y"), 0] = math.log(3)
        return logits


def measurer(model: RecordingModel, *, as_multi_label: bool = False) -> MarginMeasurer:
    """Measure with two labels."""
    tokenizer = CharacterTokenizer()
    classes = ClassIndices(0, 2, 1)
    return MarginMeasurer(model, tokenizer, ["x", "y"], SETTINGS, classes, as_multi_label, lambda *_: None)


@pytest.mark.parametrize("as_multi_label", [False, True])
def test_worked_by_hand(as_multi_label: bool) -> None:  # noqa: FBT001 - parametrised
    """Exact scores are 1/2 each; off by ln 3 the second is 3/4, either way of scoring: twice a quarter is a half."""
    assert measurer(OffModel(), as_multi_label=as_multi_label).measure(["一条", "两条"]) == pytest.approx(0.5)


def test_an_exact_model_has_no_margin() -> None:
    """Where both forwards agree nothing is close but an exact tie; texts without tokens have no say."""
    assert measurer(RecordingModel()).measure(["一条", ""]) == 0
    assert measurer(RecordingModel()).measure([]) == 0
