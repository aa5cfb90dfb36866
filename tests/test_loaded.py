"""A loaded model: the run's precision for batches, and fp32 when a text needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.loaded import LoadedModel
from tests.builders import odd_folder, packed, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

BATCH = packed([[5, 6, 7], [8]], [[9, 10], [11]])


@pytest.mark.parametrize("layout", ["bin", "safetensors"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_scores_in_its_precision_and_exactly_when_asked(tmp_path: Path, layout: str, num_classes: int) -> None:
    """The exact forward of a bf16 model is what an fp32 model gives, to the bit, and the head decides the classes."""
    checkpoint = read_checkpoint(write_checkpoint(odd_folder(tmp_path), layout=layout, num_classes=num_classes))
    coarse, fine = LoadedModel(checkpoint, "cpu", "bf16"), LoadedModel(checkpoint, "cpu", "fp32")
    assert (coarse.num_classes, fine.num_classes) == (num_classes, num_classes)
    exact = fine.forward(BATCH)
    assert not np.array_equal(coarse.forward(BATCH), exact)
    assert np.array_equal(coarse.forward_exact(BATCH), exact)
    assert np.array_equal(fine.forward_exact(BATCH), exact)
    coarse.release_memory()
