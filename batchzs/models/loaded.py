"""A checkpoint in memory, ready to score: the one object that the engine holds of all that torch does.

Here, and nowhere else, a checkpoint gets its path: packed for BERT and StructBERT, padded for every other classifier.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import torch

from batchzs.models.checkpoint import EncoderConfig
from batchzs.models.packed_bert import PackedBert
from batchzs.models.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from batchzs.models.checkpoint import Checkpoint
    from batchzs.models.device import Precision
    from batchzs.pairs import PackedPairs


class Network(Protocol):
    """A network in one precision on one device."""

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits."""


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
        self._device = device
        self._lock = threading.Lock()
        self._precision: Precision = precision
        self._network: Callable[[Precision], Network]
        if isinstance(checkpoint.network, EncoderConfig):
            sizes, weights = checkpoint.network, load_weights(checkpoint)
            self.num_classes = len(weights["classifier.weight"])
            self._network = lambda precision: PackedBert(weights, sizes, device, precision)
        else:
            from batchzs.models.padded import PaddedNetwork, read_padded_weights  # transformers takes seconds to import

            state = read_padded_weights(checkpoint)
            self.num_classes = checkpoint.network.num_classes
            self._network = lambda precision: PaddedNetwork(checkpoint, state, device, precision)
        self._networks: dict[Precision, Network] = {precision: self._network(precision)}

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
