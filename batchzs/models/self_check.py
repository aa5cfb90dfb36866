"""A few pairs through two networks, before a run trusts the faster one.

Hardware, drivers and libraries differ from those that the tests ran on. A forward pass that is wrong there would label
a night's texts wrongly without a word; a handful of pairs shows it in a fraction of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchzs.pairs import PackedPairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchzs.models.device import Precision

#: How far a class's probability may lie from the fp32 reference's. Rounding explains a tenth of each at most: sums in
#: another order (fp32), 11 bits (fp16) and 8 bits (bf16) a number through two dozen layers. A network that is wrong, a
#: mask that is ignored or a layer left out, is further off than any.
TOLERANCES: Mapping[Precision, float] = {"fp32": 1e-3, "fp16": 0.05, "bf16": 0.2}
#: Tokens of the probe pairs, longest first: long and short ones, alone and several of a length.
PROBE_LENGTHS = (96, 33, 33, 20, 9)


def probe_pairs(
    vocab_size: int, cls_id: int, sep_id: int, max_length: int, lengths: Sequence[int] = PROBE_LENGTHS
) -> PackedPairs:
    """Make pairs of random tokens, the same ones every time.

    Args:
        vocab_size: ids are below it.
        cls_id: begins each pair.
        sep_id: ends each part of a pair.
        max_length: no pair is longer.
        lengths: tokens of each pair, at least 3.
    """
    draw = np.random.default_rng(0)
    shortened = np.minimum(np.array(lengths, dtype=np.int64), max_length)
    input_ids, token_type_ids = [], []
    for length in shortened.tolist():
        ids = draw.integers(0, vocab_size, length)
        middle = length * 2 // 3
        ids[0], ids[middle], ids[-1] = cls_id, sep_id, sep_id
        input_ids.append(ids)
        token_type_ids.append((np.arange(length) > middle).astype(np.int64))
    return PackedPairs(np.concatenate(input_ids), np.concatenate(token_type_ids), shortened)


def largest_difference(logits: np.ndarray, reference: np.ndarray) -> float:
    """How far apart two networks' class probabilities are, over all pairs that both have finite numbers for.

    Args:
        logits: (pairs, classes) float32.
        reference: (pairs, classes) float32.

    Returns:
        The largest difference of a probability; 0 where there is nothing to compare. Whether a precision gives finite
        numbers at all is for the engine to find, on the job's own texts.

    >>> largest_difference(np.array([[0.0, 0.0]]), np.array([[0.0, 1.0]])).__round__(4)  # 1 / (1 + 1/e) - 1/2
    0.2311
    """
    finite = np.isfinite(logits).all(axis=1) & np.isfinite(reference).all(axis=1)
    if not finite.any():
        return 0.0
    return float(np.abs(_softmax(logits[finite]) - _softmax(reference[finite])).max())


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    probabilities: np.ndarray = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities
