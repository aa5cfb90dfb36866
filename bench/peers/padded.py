"""Padded batches for runtimes that leave batching to their caller, and the network that is exported for them.

Batches are planned as batchzs plans its own, pairs of nearly equal length together, longest first, which is the best
that a padded runtime can get. Runs in the peers' environment, where batchzs' pure modules can be read and no more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from batchzs.batching import order_longest_first, plan_batches
from bench.peers.serving import Question, softmax_over_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: What the exported networks take, in this order: (pairs, longest) int64 each.
INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")

Batch = dict[str, np.ndarray]


class PaddedScoring:
    """Texts to padded batches, and their logits to scores."""

    def __init__(self, question: Question) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(Path(question.folder, "bert"))
        self._hypotheses = question.hypotheses

    def score(
        self, texts: Sequence[str], batch_tokens: int, run: Callable[[list[Batch]], Sequence[np.ndarray]]
    ) -> np.ndarray:
        """Score texts.

        Args:
            texts: what to score.
            batch_tokens: of a batch, padding counted.
            run: gives each batch's (pairs, classes) logits, in the order of the batches.

        Returns:
            (texts, labels) scores.
        """
        encoded = self._tokenizer(
            [text for text in texts for _ in self._hypotheses],
            list(self._hypotheses) * len(texts),
            truncation="only_first",
            max_length=512,
        )
        order = order_longest_first(np.array([len(ids) for ids in encoded["input_ids"]]))
        lengths = np.array([len(encoded["input_ids"][index]) for index in order])
        batches = []
        plan = plan_batches(lengths, batch_tokens)
        for part in plan:
            batch = {}
            for name in INPUT_NAMES:
                padded = np.zeros((part.stop - part.start, lengths[part.start]), dtype=np.int64)
                for row, index in zip(padded, order[part], strict=True):
                    row[: len(encoded[name][index])] = encoded[name][index]
                batch[name] = padded
            batches.append(batch)
        entailment = np.empty(len(order), dtype=np.float64)
        for part, logits in zip(plan, run(batches), strict=True):
            entailment[order[part]] = logits[:, 0]
        return softmax_over_labels(entailment.reshape(len(texts), len(self._hypotheses)))


def load_network(question: Question, attention: str) -> Any:
    """The checkpoint as transformers' network in fp32, to be exported.

    Args:
        question: names the checkpoint.
        attention: transformers' implementation, such as eager or sdpa.
    """
    network = AutoModelForSequenceClassification.from_pretrained(
        Path(question.folder, "bert"), dtype=torch.float32, attn_implementation=attention
    )
    network.config.return_dict = False
    return network.eval()


def example_inputs() -> tuple[torch.Tensor, ...]:
    """Two pairs of different lengths, so that nothing in the mask is taken for a constant."""
    ids = torch.full((2, 24), 5)
    mask = torch.ones_like(ids)
    ids[1, 16:] = mask[1, 16:] = 0
    types = torch.zeros_like(ids)
    types[:, 12:] = 1
    return ids, mask, types
