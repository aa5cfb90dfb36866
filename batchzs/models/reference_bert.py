"""BERT's forward pass as the paper has it: padded, masked, every layer for every token, fp32.

Slow and without a trick: what `packed_bert` is held against when a run starts, and what scores where the two disagree.
It shares nothing with the packed pass but the weights, and needs torch alone (`batchzs.models.plain` needs
transformers, which takes seconds to import).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchzs.models.checkpoint import EncoderConfig
    from batchzs.pairs import PackedPairs


class ReferenceBert:
    """A BERT sequence classifier in fp32 on one device.

    Args:
        weights: parameters as `load_weights` returns them.
        sizes: the encoder's sizes.
        device: as torch names it.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], sizes: EncoderConfig, device: str) -> None:
        self._weights = {key: value.to(device, torch.float32) for key, value in weights.items()}
        self._sizes = sizes
        self._device = device

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits, in the order of `pairs`."""
        padded = pairs.padded()
        arrays = (padded.input_ids, padded.token_type_ids, padded.mask)
        with torch.inference_mode():
            logits = self._forward(*(torch.from_numpy(array).to(self._device) for array in arrays))
            return np.asarray(logits.cpu().numpy())

    def _forward(self, input_ids: torch.Tensor, token_type_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        words, positions, token_types = (
            self._weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        hidden = words[input_ids] + token_types[token_type_ids] + positions[: input_ids.shape[1]]
        hidden = self._norm("embeddings", hidden)
        for index in range(self._sizes.num_hidden_layers):
            hidden = self._layer(f"encoder.layer.{index}", hidden, mask)
        pooled = torch.tanh(self._linear("pooler.dense", hidden[:, 0]))
        return self._linear("classifier", pooled)

    def _layer(self, name: str, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = (len(hidden), -1, self._sizes.num_attention_heads, hidden.shape[2] // self._sizes.num_attention_heads)
        query, key, value = (
            self._linear(f"{name}.attention.self.{part}", hidden).view(heads).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        weights = query @ key.transpose(2, 3) / math.sqrt(heads[3])
        weights = weights.masked_fill(~mask[:, None, None, :], -math.inf).softmax(dim=-1)
        attended = self._linear(f"{name}.attention.output.dense", (weights @ value).transpose(1, 2).flatten(2))
        hidden = self._norm(f"{name}.attention.output", attended + hidden)
        inner = self._activation(self._linear(f"{name}.intermediate.dense", hidden))
        return self._norm(f"{name}.output", self._linear(f"{name}.output.dense", inner) + hidden)

    def _linear(self, name: str, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, name: str, hidden: torch.Tensor) -> torch.Tensor:
        centred = hidden - hidden.mean(dim=-1, keepdim=True)
        deviation = (centred.square().mean(dim=-1, keepdim=True) + self._sizes.layer_norm_eps).sqrt()
        return centred / deviation * self._weights[f"{name}.LayerNorm.weight"] + self._weights[f"{name}.LayerNorm.bias"]

    def _activation(self, hidden: torch.Tensor) -> torch.Tensor:
        """GELU by the error function, its approximation by tanh (Hendrycks & Gimpel 2016), or ReLU."""
        match self._sizes.hidden_act:
            case "relu":
                return hidden.clamp(min=0)
            case "gelu":
                return hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
            case _:  # gelu_new, gelu_pytorch_tanh
                return 0.5 * hidden * (1 + torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
