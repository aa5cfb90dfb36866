"""The plain forward pass gives the packed one's logits: two networks, one from transformers and one of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.loaded import LoadedModel
from batchzs.models.plain import PlainModel
from tests.builders import odd_folder, packed, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("num_classes", "changes"),
    [(3, {}), (2, {"hidden_act": "gelu_new"}), (3, {"model_type": "bert", "hidden_act": "relu"})],
)
def test_plain_and_packed_agree(tmp_path: Path, num_classes: int, changes: dict[str, Any]) -> None:
    """Pairs of different lengths in one batch: padding changes nothing."""
    checkpoint = read_checkpoint(write_checkpoint(odd_folder(tmp_path), num_classes=num_classes, **changes))
    pairs = packed([[7, 8, 9], [10], list(range(5, 45))], [[11, 12], [13], [14, 15, 16]])
    plain = PlainModel(checkpoint)
    assert plain.num_classes == num_classes
    logits = plain.forward(pairs)
    assert logits.shape == (3, num_classes)
    assert logits.std() > 0.01
    np.testing.assert_allclose(logits, LoadedModel(checkpoint, "cpu", "fp32").forward(pairs), atol=1e-5)
    np.testing.assert_array_equal(plain.forward_exact(pairs), logits)
