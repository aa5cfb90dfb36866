"""Texts and hypotheses to token ids, each tokenised once, and pairs put together from them as integer arrays.

N texts and L labels take N + L tokenisations, not N x L; a pair is assembled by NumPy without a loop over tokens. BERT
wants [CLS] text [SEP] hypothesis [SEP], others their own special tokens around the two: `PairLayout`. Only the text is
ever cut: a hypothesis that lost its end would ask another question.

The tokenizer sees each text whole. Cutting characters first would be faster for huge texts, and wrong: a million
spaces followed by two characters are two tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from batchzs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A hypothesis must leave the text at least this many tokens, or the answer would say little about the text.
MIN_TEXT_TOKENS = 16

Truncate = Literal["head", "head_tail"]


@dataclass(frozen=True, slots=True)
class PairLayout:
    """What stands around a text and a hypothesis to make a pair of them.

    prefix, middle, suffix: special tokens before the text, between the two, and after the hypothesis; each is an
    (id, token type).

    >>> PairLayout.bert(cls_id=101, sep_id=102).suffix
    ((102, 1),)
    """

    prefix: tuple[tuple[int, int], ...]
    middle: tuple[tuple[int, int], ...]
    suffix: tuple[tuple[int, int], ...]
    text_type: int
    hypothesis_type: int

    @staticmethod
    def bert(cls_id: int, sep_id: int) -> PairLayout:
        """[CLS] text [SEP] hypothesis [SEP], of type 1 after the first [SEP]."""
        return PairLayout(((cls_id, 0),), ((sep_id, 0),), ((sep_id, 1),), text_type=0, hypothesis_type=1)

    @property
    def has_types(self) -> bool:
        """Whether any token is of another type than 0."""
        return self != self.without_types()

    def without_types(self) -> PairLayout:
        """The same tokens, all of type 0."""
        prefix, middle, suffix = (
            tuple((token_id, 0) for token_id, _ in part) for part in (self.prefix, self.middle, self.suffix)
        )
        return PairLayout(prefix, middle, suffix, text_type=0, hypothesis_type=0)

    @property
    def num_special_tokens(self) -> int:
        """Tokens of a pair that are neither the text's nor the hypothesis's."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)


class TextTokenizer(Protocol):
    """What turns texts into ids: a real checkpoint's tokenizer or a test's."""

    layout: PairLayout

    def encode(self, texts: Sequence[str]) -> TokenLists:
        """Tokenise each text whole, without special tokens."""


@dataclass(frozen=True, slots=True)
class TokenLists:
    """Token ids of many texts in one flat array.

    ids: (tokens,) int32; offsets: (texts + 1,) int64, text i has ids[offsets[i]:offsets[i + 1]].
    """

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """(texts,) int64, tokens of each text."""
        return np.diff(self.offsets)

    @staticmethod
    def from_lists(lists: Sequence[Sequence[int]]) -> TokenLists:
        """Flatten one list of ids a text.

        >>> TokenLists.from_lists([[5, 6], [], [7]]).offsets.tolist()
        [0, 2, 2, 3]
        """
        offsets = np.zeros(len(lists) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in lists], out=offsets[1:])
        # Without a step of Python's for each token: this runs beside the threads that keep the device busy.
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(offsets[-1]))
        return TokenLists(ids, offsets)


@dataclass(frozen=True, slots=True)
class PackedPairs:
    """A batch of pairs without padding, one after the other.

    input_ids, token_type_ids: (tokens,) int64; lengths: (pairs,) int64, tokens of each pair, special ones included.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    lengths: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Real tokens over all pairs."""
        return len(self.input_ids)

    def padded(self, pad_id: int = 0) -> PaddedPairs:
        """The same pairs filled up with `pad_id`, of token type 0, for networks that take rectangles."""
        mask = np.arange(int(self.lengths.max())) < self.lengths[:, None]
        input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
        token_type_ids = np.zeros(mask.shape, dtype=np.int64)
        input_ids[mask] = self.input_ids
        token_type_ids[mask] = self.token_type_ids
        return PaddedPairs(input_ids, token_type_ids, mask)

    @property
    def shape(self) -> str:
        """The batch's shape for a log line."""
        longest = int(self.lengths.max()) if len(self.lengths) else 0
        return f"{len(self.lengths)} pairs x {longest} tokens"


@dataclass(frozen=True, slots=True)
class PaddedPairs:
    """A batch of pairs filled up to the longest: (pairs, longest), ids and types int64, mask bool."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True, slots=True)
class PairAssembler:
    """Puts pairs of tokenised texts and hypotheses together, cutting texts to fit `max_length`."""

    texts: TokenLists
    hypotheses: TokenLists
    layout: PairLayout
    max_length: int
    truncate: Truncate

    def text_lengths(self, text_ids: np.ndarray, label_ids: np.ndarray) -> np.ndarray:
        """(pairs,) int64: how many of its text's tokens each pair keeps."""
        room = self.max_length - self.layout.num_special_tokens - self.hypotheses.lengths[label_ids]
        kept: np.ndarray = np.minimum(self.texts.lengths[text_ids], room)
        return kept

    def pair_lengths(self, text_ids: np.ndarray, label_ids: np.ndarray) -> np.ndarray:
        """(pairs,) int64: tokens of each pair, special ones included."""
        kept = self.text_lengths(text_ids, label_ids)
        lengths: np.ndarray = kept + self.hypotheses.lengths[label_ids] + self.layout.num_special_tokens
        return lengths

    def truncated_texts(self) -> np.ndarray:
        """(texts,) bool: whether the longest hypothesis leaves too little room for all of the text."""
        room = self.max_length - self.layout.num_special_tokens - int(self.hypotheses.lengths.max())
        return self.texts.lengths > room

    def assemble(self, text_ids: np.ndarray, label_ids: np.ndarray) -> PackedPairs:
        """Build the token arrays of some pairs.

        Args:
            text_ids: (pairs,) indices into `texts`.
            label_ids: (pairs,) indices into `hypotheses`.

        Returns:
            The pairs in the order asked for.
        """
        kept = self.text_lengths(text_ids, label_ids)
        hypothesis = self.hypotheses.lengths[label_ids]
        lengths = kept + hypothesis + self.layout.num_special_tokens
        layout = self.layout
        first = np.cumsum(lengths) - lengths + len(layout.prefix)
        second = first + kept + len(layout.middle)
        input_ids = np.empty(int(lengths.sum()), dtype=np.int64)
        token_type_ids = np.full(len(input_ids), layout.text_type, dtype=np.int64)
        input_ids[_run_indices(first, kept)] = self.texts.ids[self._text_sources(text_ids, kept)]
        hypothesis_tokens = _run_indices(second, hypothesis)
        input_ids[hypothesis_tokens] = self.hypotheses.ids[_run_indices(self.hypotheses.offsets[label_ids], hypothesis)]
        token_type_ids[hypothesis_tokens] = layout.hypothesis_type
        for part, starts in (
            (layout.prefix, first - len(layout.prefix)),
            (layout.middle, first + kept),
            (layout.suffix, second + hypothesis),
        ):
            for place, (token_id, token_type) in enumerate(part):
                input_ids[starts + place] = token_id
                token_type_ids[starts + place] = token_type
        return PackedPairs(input_ids, token_type_ids, lengths)

    def _text_sources(self, text_ids: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Where in `texts.ids` each kept token lies; with head_tail the middle of a cut text is skipped."""
        sources = _run_indices(self.texts.offsets[text_ids], kept)
        if self.truncate == "head_tail":
            num_cut = self.texts.lengths[text_ids] - kept
            num_head = np.where(num_cut > 0, (kept + 1) // 2, kept)
            sources += np.repeat(num_cut, kept) * (_run_indices(np.zeros_like(kept), kept) >= np.repeat(num_head, kept))
        return sources


def _run_indices(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate start, start + 1, ..., start + length - 1 over all runs.

    >>> _run_indices(np.array([10, 50]), np.array([2, 3])).tolist()
    [10, 11, 50, 51, 52]
    """
    before = np.cumsum(lengths) - lengths
    indices: np.ndarray = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return indices


def check_hypotheses_fit(
    hypotheses: TokenLists, names: Sequence[str], max_length: int, num_special_tokens: int
) -> None:
    """Refuse labels whose hypothesis leaves a text less than `MIN_TEXT_TOKENS` tokens, or is another label's in tokens.

    Args:
        hypotheses: each label's hypothesis, tokenised.
        names: the labels' names, in the same order.
        max_length: tokens of a pair at most, special ones included.
        num_special_tokens: the layout's.

    Raises:
        UsageError: naming each such label and what would do.
    """
    room = max_length - num_special_tokens - MIN_TEXT_TOKENS
    lines = [
        f"label {name!r}: its hypothesis has {length} tokens, which leaves a text fewer than {MIN_TEXT_TOKENS} "
        f"of the {max_length} that engine.max_length allows: shorten it to {max(room, 0)} tokens or raise "
        "engine.max_length"
        for name, length in zip(names, hypotheses.lengths.tolist(), strict=True)
        if length > room
    ]
    first_with: dict[bytes, str] = {}
    for index, name in enumerate(names):
        ids = hypotheses.ids[hypotheses.offsets[index] : hypotheses.offsets[index + 1]].tobytes()
        twin = first_with.setdefault(ids, name)
        if twin != name:
            lines.append(
                f"label {name!r}: its hypothesis is the same to the model as that of {twin!r}, token by token, so that "
                "it could never win: word one of them otherwise"
            )
    if lines:
        raise UsageError("\n".join(lines))
