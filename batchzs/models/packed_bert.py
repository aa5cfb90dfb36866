"""BERT's forward pass over packed pairs: no padding, no mask, and the last layer for [CLS] alone.

All pairs' tokens lie in one flat tensor. Whatever works on single tokens (linear layers, layer norms, GELU) runs over
it as it is; attention runs once for every run of neighbouring pairs of equal length, viewed as a small unpadded batch.
Pairs come sorted by length, so such runs are long.

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

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchzs.models.checkpoint import EncoderConfig
    from batchzs.models.device import Precision
    from batchzs.pairs import PackedPairs

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: torch.Tensor  # (out, in)
    bias: torch.Tensor  # (out,)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class _LayerNorm:
    weight: torch.Tensor  # (hidden,)
    bias: torch.Tensor  # (hidden,)
    eps: float

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True)
class _Layer:
    query_key_value: _Linear  # (3 * hidden, hidden)
    attention_output: _Linear
    attention_norm: _LayerNorm
    intermediate: _Linear
    output: _Linear
    output_norm: _LayerNorm


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring pairs of one length: tokens start to start + num_pairs * length of the flat tensor."""

    start: int
    num_pairs: int
    length: int


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
        self._num_heads = sizes.num_attention_heads
        self._activation = _activation(sizes.hidden_act)

        def place(*keys: str, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.cat([weights[key] for key in keys]).to(self._device, dtype)

        def linear(*names: str, dtype: torch.dtype = dtype) -> _Linear:
            return _Linear(
                place(*(f"{name}.weight" for name in names), dtype=dtype),
                place(*(f"{name}.bias" for name in names), dtype=dtype),
            )

        def norm(name: str) -> _LayerNorm:
            return _LayerNorm(place(f"{name}.LayerNorm.weight"), place(f"{name}.LayerNorm.bias"), sizes.layer_norm_eps)

        self._words = place("embeddings.word_embeddings.weight")
        self._positions = place("embeddings.position_embeddings.weight")
        self._token_types = place("embeddings.token_type_embeddings.weight")
        self._embedding_norm = norm("embeddings")
        self._layers = [
            _Layer(
                query_key_value=linear(*(f"{name}.attention.self.{part}" for part in ("query", "key", "value"))),
                attention_output=linear(f"{name}.attention.output.dense"),
                attention_norm=norm(f"{name}.attention.output"),
                intermediate=linear(f"{name}.intermediate.dense"),
                output=linear(f"{name}.output.dense"),
                output_norm=norm(f"{name}.output"),
            )
            for name in (f"encoder.layer.{index}" for index in range(sizes.num_hidden_layers))
        ]
        self._pooler = linear("pooler.dense", dtype=torch.float32)
        self._classifier = linear("classifier", dtype=torch.float32)

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """Score pairs.

        Args:
            pairs: packed pairs; neighbours of equal length are scored together.

        Returns:
            (pairs, classes) float32 logits, in the order of `pairs`.

        Raises:
            RuntimeError: torch ran out of memory, among other things of torch's.
        """
        starts = np.cumsum(pairs.lengths) - pairs.lengths
        positions = np.arange(pairs.num_tokens) - np.repeat(starts, pairs.lengths)
        runs = _equal_length_runs(pairs.lengths, starts)
        with torch.inference_mode():
            hidden = self._embed(pairs, positions)
            for layer in self._layers[:-1]:
                hidden = self._feed_forward(layer, hidden, self._attend(layer, hidden, runs))
            first_tokens = torch.from_numpy(starts).to(self._device)
            last = self._layers[-1]
            attended = self._attend_first(last, hidden, runs, first_tokens)
            first = self._feed_forward(last, hidden[first_tokens], attended)
            logits = self._classifier(torch.tanh(self._pooler(first.float())))
            return np.asarray(logits.cpu().numpy())

    def _embed(self, pairs: PackedPairs, positions: np.ndarray) -> torch.Tensor:
        embedded = (
            F.embedding(torch.from_numpy(pairs.input_ids).to(self._device), self._words)
            + F.embedding(torch.from_numpy(pairs.token_type_ids).to(self._device), self._token_types)
            + F.embedding(torch.from_numpy(positions).to(self._device), self._positions)
        )
        return self._embedding_norm(embedded)

    def _attend(self, layer: _Layer, hidden: torch.Tensor, runs: list[_Run]) -> torch.Tensor:
        """(tokens, hidden): self-attention of every token, before its output projection."""
        query_key_value = layer.query_key_value(hidden)
        attended = torch.empty_like(hidden)
        for run in runs:
            tokens = slice(run.start, run.start + run.num_pairs * run.length)
            query, key, value = self._heads(query_key_value[tokens], run, parts=3)
            heads = F.scaled_dot_product_attention(query, key, value)
            attended[tokens].view(run.num_pairs, run.length, self._num_heads, -1).copy_(heads.transpose(1, 2))
        return attended

    def _attend_first(
        self, layer: _Layer, hidden: torch.Tensor, runs: list[_Run], first_tokens: torch.Tensor
    ) -> torch.Tensor:
        """(pairs, hidden): self-attention of each pair's first token, before its output projection."""
        size = hidden.shape[1]
        weight, bias = layer.query_key_value.weight, layer.query_key_value.bias
        queries = F.linear(hidden[first_tokens], weight[:size], bias[:size])
        key_value = F.linear(hidden, weight[size:], bias[size:])
        attended = torch.empty_like(queries)
        num_done = 0
        for run in runs:
            pairs = slice(num_done, num_done + run.num_pairs)
            num_done = pairs.stop
            query = queries[pairs].view(run.num_pairs, self._num_heads, 1, -1)
            key, value = self._heads(key_value[run.start : run.start + run.num_pairs * run.length], run, parts=2)
            attended[pairs] = F.scaled_dot_product_attention(query, key, value).flatten(1)
        return attended

    def _heads(self, projected: torch.Tensor, run: _Run, parts: int) -> tuple[torch.Tensor, ...]:
        """View a run's projections, (tokens, parts * hidden), as `parts` times (pairs, heads, length, head size)."""
        return projected.view(run.num_pairs, run.length, parts, self._num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def _feed_forward(self, layer: _Layer, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        hidden = layer.attention_norm(layer.attention_output(attended) + hidden)
        return layer.output_norm(layer.output(self._activation(layer.intermediate(hidden))) + hidden)


def _equal_length_runs(lengths: np.ndarray, starts: np.ndarray) -> list[_Run]:
    edges = np.flatnonzero(np.diff(lengths)) + 1
    first = np.concatenate(([0], edges)).astype(np.int64)
    stop = np.concatenate((edges, [len(lengths)])).astype(np.int64)
    return [_Run(int(starts[a]), int(b - a), int(lengths[a])) for a, b in zip(first, stop, strict=True)]


def _activation(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    if name == "gelu":
        return F.gelu
    if name == "relu":
        return F.relu
    return lambda hidden: F.gelu(hidden, approximate="tanh")  # gelu_new, gelu_pytorch_tanh
