"""How a tokenizer puts a text and a hypothesis together, read from the tokenizer itself.

`tokenizer.json` holds rules for pairs, of several kinds. Instead of reading the rules, a pair is encoded and taken
apart, and the layout found is held against further pairs: texts and hypotheses that are tokenised alone and assembled
must give what the tokenizer makes of both at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchzs.errors import ModelError
from batchzs.pairs import PairAssembler, PairLayout, TokenLists

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Encoding, Tokenizer

#: Scripts, digits, white space at either end, and what tokenizers treat otherwise at the beginning of a text.
_PROBES = (
    ("The central bank cuts its rate by 25 points.", "This example is about finance."),
    ("央行宣布降息25个基点", "这篇文章的标题是财经"),
    (" 科技 news", " It's a label "),
    ("...第二行\nsecond line", "1"),
    ("🙂 é", "(体育)"),
)


def read_layout(tokenizer: Tokenizer, source: Path) -> PairLayout:
    """Find a tokenizer's pair layout.

    Args:
        tokenizer: without truncation and padding.
        source: its file, for messages.

    Raises:
        ModelError: the tokenizer makes no pairs that can be put together from their parts.
    """
    layout = None
    for text, hypothesis in _PROBES:
        pair = tokenizer.encode(text, hypothesis)
        parts = [
            TokenLists.from_lists([tokenizer.encode(part, add_special_tokens=False).ids]) for part in (text, hypothesis)
        ]
        if not all(len(part.ids) for part in parts):
            continue  # a vocabulary may know nothing of a script
        if layout is None:
            layout = _take_apart(pair, source)
        assembled = PairAssembler(parts[0], parts[1], layout, len(pair.ids), "head").assemble(
            np.array([0]), np.array([0])
        )
        if assembled.input_ids.tolist() != pair.ids or assembled.token_type_ids.tolist() != pair.type_ids:
            raise ModelError(
                f"{source}: tokenises a text otherwise alone than in a pair, so that pairs cannot be put together from "
                "texts that are tokenised once: batchzs does not run such a tokenizer"
            )
    if layout is None:
        raise ModelError(f"{source}: has no token for plain English and Chinese: the file is damaged or incomplete")
    return layout


def _take_apart(pair: Encoding, source: Path) -> PairLayout:
    """Read the layout off one encoded pair; which of its tokens are special the encoding knows."""
    tokens = list(zip(pair.ids, pair.type_ids, strict=True))
    text = [place for place, sequence in enumerate(pair.sequence_ids) if sequence == 0]
    hypothesis = [place for place, sequence in enumerate(pair.sequence_ids) if sequence == 1]
    types = [{pair.type_ids[place] for place in places} for places in (text, hypothesis)]
    if text[-1] >= hypothesis[0] or any(len(one) > 1 for one in types):
        raise ModelError(f"{source}: does not put the first text of a pair before the second: found {pair.tokens}")
    if hypothesis[0] == text[-1] + 1:
        raise ModelError(
            f"{source}: puts nothing between the two texts of a pair (its post_processor is missing or makes no "
            "pairs): a model for natural language inference needs a separator; save its tokenizer again with "
            "transformers' save_pretrained"
        )
    return PairLayout(
        prefix=tuple(tokens[: text[0]]),
        middle=tuple(tokens[text[-1] + 1 : hypothesis[0]]),
        suffix=tuple(tokens[hypothesis[-1] + 1 :]),
        text_type=types[0].pop(),
        hypothesis_type=types[1].pop(),
    )
