"""A checkpoint in memory, ready to score: the one object that the engine holds of all that torch does.

Here, and nowhere else, a checkpoint gets its path: packed for BERT and StructBERT, padded for every other classifier,
and plain, in fp32, where the network that was chosen gives other results than its plain fp32 counterpart.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from batchzs.models.allocator import give_back_freed_memory
from batchzs.models.checkpoint import EncoderConfig
from batchzs.models.packed_bert import PackedBert
from batchzs.models.reference_bert import ReferenceBert
from batchzs.models.self_check import TOLERANCES, largest_difference
from batchzs.models.weights import load_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from batchzs.models.checkpoint import Checkpoint
    from batchzs.models.device import Precision
    from batchzs.pairs import PackedPairs

logger = logging.getLogger(__name__)

#: Which network scores.
Path = Literal["packed", "padded", "plain"]


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
        self._plain: Callable[[], Network]
        self.path: Path
        if isinstance(checkpoint.network, EncoderConfig):
            sizes, weights = checkpoint.network, load_weights(checkpoint)
            self.path = "packed"
            self.num_classes = len(weights["classifier.weight"])
            self._network = lambda precision: PackedBert(weights, sizes, device, precision)
            self._plain = lambda: ReferenceBert(weights, sizes, device)
        else:
            from batchzs.models.padded import PaddedNetwork, read_padded_weights  # transformers takes seconds to import

            state = read_padded_weights(checkpoint)
            self.path = "padded"
            self.num_classes = checkpoint.network.num_classes
            self._network = lambda precision: PaddedNetwork(checkpoint, state, device, precision)
            self._plain = lambda: PaddedNetwork(checkpoint, state, device, "fp32")
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
        if self._device == "cpu":
            give_back_freed_memory()
        else:
            torch.cuda.empty_cache()

    def check(self, probes: PackedPairs, on_step: Callable[[], None] = lambda: None) -> float:
        """Try the network against the plain one in fp32; keep the plain one, loudly, where they disagree.

        Args:
            probes: pairs to try it on.
            on_step: called between the forwards; what it raises ends the trial.

        Returns:
            Real tokens a second of one worker, as the probes showed it.
        """
        self.forward(probes)  # the first call prepares what later ones find ready: it says nothing of the speed
        on_step()
        started_s = time.monotonic()
        logits = self.forward(probes)
        tokens_per_s = probes.num_tokens / max(time.monotonic() - started_s, 1e-6)
        on_step()
        if self.path == "padded" and self._precision == "fp32":
            return tokens_per_s  # this is the plain one
        plain = self._plain()
        on_step()
        difference = largest_difference(logits, plain.forward(probes))
        if difference <= TOLERANCES[self._precision]:
            return tokens_per_s
        logger.warning(
            "self-check failed: the %s forward in %s differs from the plain one by %.3g in a probability (at most %g "
            "is rounding): scoring on the plain path in fp32, which is right and slow. Please report this with the "
            "device's name and torch's version (%s)",
            self.path,
            self._precision,
            difference,
            TOLERANCES[self._precision],
            torch.__version__,
        )
        self.path = "plain"
        self._networks = {self._precision: plain, "fp32": plain}
        return tokens_per_s

    def bytes_per_token(self, probes: PackedPairs) -> float:
        """Device memory that a token of a batch needs beside the weights, measured; CUDA only."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        self.forward(probes)
        return (torch.cuda.max_memory_allocated(self._device) - before) / probes.num_tokens
