"""A checkpoint in memory, ready to score: the one object that the engine holds of all that torch does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

from batchzs.models.packed_bert import PackedBert
from batchzs.models.weights import load_weights

if TYPE_CHECKING:
    import numpy as np

    from batchzs.models.checkpoint import Checkpoint
    from batchzs.models.device import Precision
    from batchzs.pairs import PackedPairs


class LoadedModel:
    """A checkpoint's network on a device.

    Args:
        checkpoint: what to load.
        device: as torch names it.
        precision: that batches are scored in.

    Raises:
        ModelError: the weights are damaged, incomplete, or not what the config says.
    """

    def __init__(self, checkpoint: Checkpoint, device: str, precision: Precision) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._lock = threading.Lock()
        self._weights = load_weights(checkpoint)
        self._networks = {precision: self._network(precision)}
        self._precision: Precision = precision
        self.num_classes = int(self._weights["classifier.weight"].shape[0])

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits in the run's precision."""
        return self._networks[self._precision].forward(pairs)

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits, computed in fp32 whatever the run's precision."""
        with self._lock:  # several workers may ask at once
            if "fp32" not in self._networks:
                self._networks["fp32"] = self._network("fp32")
        return self._networks["fp32"].forward(pairs)

    def release_memory(self) -> None:
        """Give cached blocks back to the device after running out of memory."""
        if self._device != "cpu":
            torch.cuda.empty_cache()

    def _network(self, precision: Precision) -> PackedBert:
        return PackedBert(self._weights, self._checkpoint.encoder, self._device, precision)
