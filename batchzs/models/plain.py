"""The plain forward pass: transformers' own network, fp32, padded, on the CPU, one batch as it is given.

Slow, and independent of `packed_bert`: what finished results are held against. A checkpoint of the padded path has
transformers' network in any case; here it gets one pair at a time, without padding and without a mask that matters.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

from batchzs.models.checkpoint import EncoderConfig
from batchzs.models.padded import PaddedNetwork, read_padded_weights
from batchzs.models.weights import load_weights
from batchzs.pairs import PackedPairs

if TYPE_CHECKING:
    from batchzs.engine import PairModel
    from batchzs.models.checkpoint import Checkpoint


def load_plain_model(checkpoint: Checkpoint) -> PairModel:
    """Load a checkpoint of either path.

    Raises:
        ModelError: the weights are damaged or incomplete.
        MachineError: memory is short.
    """
    return PlainModel(checkpoint) if isinstance(checkpoint.network, EncoderConfig) else PlainAutoModel(checkpoint)


class PlainAutoModel:
    """A checkpoint of the padded path, one pair at a time.

    Args:
        checkpoint: what to load.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._network = PaddedNetwork(checkpoint, read_padded_weights(checkpoint), "cpu", "fp32")
        self.num_classes = self._network.num_classes

    @property
    def path(self) -> str:
        """The plain path."""
        return "plain"

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits; see `batchzs.engine.PairModel`."""
        stops = np.cumsum(pairs.lengths)
        return np.concatenate(
            [
                self._network.forward(
                    PackedPairs(pairs.input_ids[start:stop], pairs.token_type_ids[start:stop], np.array([stop - start]))
                )
                for start, stop in zip(stops - pairs.lengths, stops, strict=True)
            ]
        )

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits; this forward is exact already."""
        return self.forward(pairs)

    def release_memory(self) -> None:
        """Nothing is cached on the CPU."""


class PlainModel:
    """A checkpoint as transformers' BertForSequenceClassification.

    Args:
        checkpoint: what to load.

    Raises:
        ModelError: the weights are damaged or incomplete.
        MachineError: memory is short.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        weights = load_weights(checkpoint)
        self.num_classes = len(weights["classifier.weight"])
        # EncoderConfig's fields are named as in config.json; other keys there do not change what BERT computes.
        config = BertConfig(**asdict(checkpoint.encoder), num_labels=self.num_classes)
        self._network = BertForSequenceClassification(config).eval()
        self._network.load_state_dict(
            {key if key.startswith("classifier.") else f"bert.{key}": value.float() for key, value in weights.items()}
        )

    @property
    def path(self) -> str:
        """The plain path."""
        return "plain"

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits; see `batchzs.engine.PairModel`."""
        padded = pairs.padded()
        with torch.inference_mode():
            logits = self._network(
                input_ids=torch.from_numpy(padded.input_ids),
                token_type_ids=torch.from_numpy(padded.token_type_ids),
                attention_mask=torch.from_numpy(padded.mask.astype(np.int64)),
            ).logits
        return np.asarray(logits.numpy())

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits; this forward is exact already."""
        return self.forward(pairs)

    def release_memory(self) -> None:
        """Nothing is cached on the CPU."""
