"""BERT's forward pass over packed pairs: no padding, no mask, and the last layer for [CLS] alone.

All pairs' tokens lie in one flat tensor. Whatever works on single tokens (linear layers, layer norms, GELU) runs over
it as it is (`linear.py`); attention keeps each pair to itself (`attention.py`).

Only [CLS] reaches the classifier. In the last layer all tokens give keys and values, but only [CLS] asks, so the rest
of that layer runs for one token a pair; what comes out is the same number.

Architecture: Devlin et al. 2018, post-layer-norm, as in transformers' BertForSequenceClassification; ModelScope's
StructBERT computes the same at inference. Pooler and classifier always run in float32: in half precision their
rounding made exact ties between labels that were none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its customary name

from batchzs.models.attention import Sequences, choose_attention
from batchzs.models.linear import Linear, PlainLinear, make_linear
from batchzs.models.transfer import Fetching, queueing, to_device

if TYPE_CHECKING:
    from batchzs.models.checkpoint import EncoderConfig
    from batchzs.models.device import Precision
    from batchzs.pairs import PackedPairs

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_PARTS = ("query", "key", "value")


@dataclass(frozen=True, slots=True)
class _LayerNorm:
    weight: torch.Tensor  # (hidden,)
    bias: torch.Tensor  # (hidden,)
    eps: float

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True)
class _Layer:
    projections: tuple[Linear, ...]  # query, key and value in one; in the last layer query, and key and value
    attention_output: Linear
    attention_norm: _LayerNorm
    intermediate: Linear
    output: Linear
    output_norm: _LayerNorm


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    """Packed pairs on the device: where each pair lies, and (tokens,) int32 each."""

    sequences: Sequences
    input_ids: torch.Tensor
    token_type_ids: torch.Tensor
    positions: torch.Tensor


class PackedBert:
    """A BERT sequence classifier in one precision on one device.

    Args:
        weights: parameters as `load_weights` returns them; "classifier.weight" decides the number of classes.
        sizes: the encoder's sizes.
        device: as torch names it.
        precision: of everything but pooler and classifier.
    """

    def __init__(
        self, weights: dict[str, torch.Tensor], sizes: EncoderConfig, device: str, precision: Precision
    ) -> None:
        dtype = DTYPES[precision]
        self._device = torch.device(device)
        self._queueing = queueing(self._device)
        self._num_heads = sizes.num_attention_heads
        self._activation = sizes.hidden_act
        self._attention = choose_attention(self._device, dtype, sizes.hidden_size // sizes.num_attention_heads)

        def place(*keys: str, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.cat([weights[key] for key in keys]).to(self._device, dtype)

        def linear(*names: str) -> Linear:
            return make_linear(place(*(f"{name}.weight" for name in names)), place(*(f"{name}.bias" for name in names)))

        def exact_linear(name: str) -> Linear:
            weight, bias = (place(f"{name}.{part}", dtype=torch.float32) for part in ("weight", "bias"))
            return PlainLinear(weight, bias)

        def norm(name: str) -> _LayerNorm:
            return _LayerNorm(place(f"{name}.LayerNorm.weight"), place(f"{name}.LayerNorm.bias"), sizes.layer_norm_eps)

        def layer(index: int) -> _Layer:
            name = f"encoder.layer.{index}"
            is_last = index == sizes.num_hidden_layers - 1
            return _Layer(
                projections=tuple(
                    linear(*(f"{name}.attention.self.{part}" for part in parts))
                    for parts in ((_PARTS[:1], _PARTS[1:]) if is_last else (_PARTS,))
                ),
                attention_output=linear(f"{name}.attention.output.dense"),
                attention_norm=norm(f"{name}.attention.output"),
                intermediate=linear(f"{name}.intermediate.dense"),
                output=linear(f"{name}.output.dense"),
                output_norm=norm(f"{name}.output"),
            )

        self._words = place("embeddings.word_embeddings.weight")
        self._positions = place("embeddings.position_embeddings.weight")
        self._token_types = place("embeddings.token_type_embeddings.weight")
        self._embedding_norm = norm("embeddings")
        with torch.inference_mode():  # what oneDNN lays out anew belongs to inference
            self._layers = [layer(index) for index in range(sizes.num_hidden_layers)]
        self._pooler = exact_linear("pooler.dense")
        self._classifier = exact_linear("classifier")

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """Score pairs.

        Args:
            pairs: packed pairs; neighbours of equal length are scored together.

        Returns:
            (pairs, classes) float32 logits, in the order of `pairs`.

        Raises:
            RuntimeError: torch ran out of memory, among other things of torch's.
        """
        with torch.inference_mode():
            batch = self.upload(pairs)
            with self._queueing:
                logits = Fetching.start(self.logits(batch))
            return logits.wait()

    def upload(self, pairs: PackedPairs) -> DeviceBatch:
        """Copy pairs to the device; on a GPU the copy may still be under way on return."""
        sequences = Sequences.of(pairs.lengths, self._device)
        positions = np.arange(pairs.num_tokens) - np.repeat(sequences.starts, pairs.lengths)
        return DeviceBatch(sequences, *to_device((pairs.input_ids, pairs.token_type_ids, positions), self._device))

    def logits(self, batch: DeviceBatch) -> torch.Tensor:
        """(pairs, classes) float32 on the device; on a GPU they may still be under way on return."""
        sequences = batch.sequences
        hidden = self._embedding_norm(
            F.embedding(batch.input_ids, self._words)
            + F.embedding(batch.token_type_ids, self._token_types)
            + F.embedding(batch.positions, self._positions)
        )
        for layer in self._layers[:-1]:
            (query_key_value,) = layer.projections
            attended = self._attention.everywhere(query_key_value(hidden), sequences, self._num_heads)
            hidden = self._finish(layer, hidden, attended)
        last = self._layers[-1]
        query, key_value = last.projections
        first = hidden.index_select(0, sequences.first_tokens)
        attended = self._attention.first_only(query(first), key_value(hidden), sequences, self._num_heads)
        first = self._finish(last, first, attended)
        return self._classifier(torch.tanh(self._pooler(first.float())))

    def _finish(self, layer: _Layer, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """All of a layer that follows its attention."""
        hidden = layer.attention_norm(layer.attention_output.added_to(hidden, attended))
        inner = layer.intermediate.activated(hidden, self._activation)
        return layer.output_norm(layer.output.added_to(hidden, inner))
