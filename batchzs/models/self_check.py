"""A few pairs through two networks, before a run trusts the faster one.

Hardware, drivers and libraries differ from those that the tests ran on. A forward pass that is wrong there would label
a night's texts wrongly without a word; a handful of pairs shows it in a fraction of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchzs.pairs import PackedPairs, PairAssembler, TokenLists

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchzs.models.device import Precision
    from batchzs.pairs import PairLayout

#: How far a class's probability may lie from the fp32 reference's. Rounding explains a tenth of each at most: sums in
#: another order (fp32), 11 bits (fp16) and 8 bits (bf16) a number through two dozen layers. A network that is wrong, a
#: mask that is ignored or a layer left out, is further off than any.
TOLERANCES: Mapping[Precision, float] = {"fp32": 1e-3, "fp16": 0.05, "bf16": 0.2}
#: Tokens of the probe pairs, longest first: alone and several of a length. Few of them: a large network starts as fast.
PROBE_LENGTHS = (48, 17, 17, 9)


def probe_pairs(
    layout: PairLayout, vocab_size: int, max_length: int | None, lengths: Sequence[int] = PROBE_LENGTHS
) -> PackedPairs:
    """Make pairs of random tokens, the same ones every time.

    Args:
        layout: what stands around a text and a hypothesis.
        vocab_size: ids are below it.
        max_length: no pair is longer; None where the network sets no limit.
        lengths: tokens of each pair, more than the layout's own.
    """
    draw = np.random.default_rng(0)
    longest = max(lengths) if max_length is None else max_length
    sizes = [min(length, longest) - layout.num_special_tokens for length in lengths]
    texts, hypotheses = (
        TokenLists.from_lists([draw.integers(0, vocab_size, size).tolist() for size in parts])
        for parts in ([size - size // 3 for size in sizes], [size // 3 for size in sizes])
    )
    each = np.arange(len(sizes))
    return PairAssembler(texts, hypotheses, layout, longest, truncate="head").assemble(each, each)


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
