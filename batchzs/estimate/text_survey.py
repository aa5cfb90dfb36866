"""What a job's texts are like: lengths in tokens, duplicates, unknown tokens, suspicious encodings.

Texts come in a chunk at a time and none is kept; of each an 8-byte hash stays, by which duplicates are counted. Every
text is looked at; where there are many, only some of each chunk are tokenised, and counts of tokens are scaled up.
Reads no file and loads no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchzs.estimate.suspects import SuspectTally
from batchzs.inputs.rows import OK

if TYPE_CHECKING:
    from batchzs.estimate.suspects import Suspect
    from batchzs.inputs.rows import ShardRows
    from batchzs.pairs import TextTokenizer

#: Longer texts are counted as this long.
MAX_COUNTED_TOKENS = 2**20


@dataclass(frozen=True, slots=True)
class TextSurvey:
    """What was found. Counts are of the rows that were read, and those of tokens exact where all were tokenised.

    by_length: (tokens + 1,) float64, readable rows by the number of their text's tokens.
    scored_by_length: the same, identical texts of one shard once: what is scored.
    """

    num_read: int
    num_bad: int
    num_texts: int  # readable and not blank
    num_tokenised: int
    num_distinct_in_shards: int
    num_duplicates: int  # over all texts that were read
    by_length: np.ndarray
    scored_by_length: np.ndarray
    unknown_share: float | None  # of tokens; None where nothing can be unknown
    mean_text_bytes: float
    suspects: tuple[Suspect, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every text that was read was tokenised."""
        return self.num_tokenised == self.num_distinct_in_shards

    @property
    def num_readable(self) -> int:
        """Rows read that are not damaged."""
        return self.num_read - self.num_bad

    @property
    def num_empty(self) -> int:
        """Rows whose text has no token."""
        return round(float(self.by_length[0]))

    @property
    def longest(self) -> int:
        """Tokens of the longest text that was tokenised."""
        return len(self.by_length) - 1

    def percentile(self, share: float) -> int:
        """The number of tokens that `share` of the readable rows do not exceed."""
        total = float(self.by_length.sum())
        return int(np.searchsorted(np.cumsum(self.by_length), share * total * (1 - 1e-12))) if total else 0

    def num_longer(self, num_tokens: int) -> int:
        """Rows whose text has more than so many tokens."""
        return round(float(self.by_length[num_tokens + 1 :].sum()))


class TextSurveyor:
    """Takes chunks of rows and counts.

    Args:
        tokenizer: the checkpoint's.
        unknown_id: the id of what its vocabulary lacks, or None.
        expects_chinese: whether a text without Chinese is suspicious.
        seed: of the draw of texts that are tokenised.
    """

    def __init__(
        self, tokenizer: TextTokenizer, unknown_id: int | None, *, expects_chinese: bool, seed: int = 0
    ) -> None:
        self._tokenizer = tokenizer
        self._unknown_id = unknown_id
        self._draw = np.random.default_rng(seed)
        self._suspects = SuspectTally(expects_chinese=expects_chinese)
        self._hashes: list[np.ndarray] = []
        self._by_length = np.zeros(1)
        self._scored_by_length = np.zeros(1)
        self._num_read = self._num_bad = self._num_tokenised = self._num_distinct = self._num_bytes = 0
        self._tokens = self._unknown = 0.0

    def add(self, chunk: ShardRows, max_texts: int, max_characters: int) -> None:
        """Count one chunk's rows: a shard's, where all are read.

        Args:
            chunk: the rows.
            max_texts: how many of its distinct texts to tokenise at most.
            max_characters: how many characters to tokenise, the texts that they are in whole.
        """
        readable = [place for place, status in enumerate(chunk.statuses) if status == OK]
        good = [place for place in readable if not chunk.texts[place].isspace() and chunk.texts[place]]
        texts = [chunk.texts[place] for place in good]
        self._num_read += chunk.num_rows
        self._num_bad += chunk.num_rows - len(readable)
        self._by_length[0] += len(readable) - len(good)
        if not texts:
            return
        rows = chunk.source_rows[good].tolist()
        self._suspects.add(texts, [chunk.source_files[place] for place in good], rows)
        # Of two million texts none shares a 64-bit hash with another one, but for one input in ten million.
        hashes = np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts))
        self._hashes.append(hashes)
        self._num_bytes += sum(map(len, texts))
        _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        self._num_distinct += len(first)
        order, weights = self._choose(
            counts, [len(texts[place]) for place in first.tolist()], max_texts, max_characters
        )
        tokens = self._tokenizer.encode([texts[place] for place in first[order].tolist()])
        self._num_tokenised += len(order)
        lengths = np.minimum(tokens.lengths, MAX_COUNTED_TOKENS)
        self._by_length = _added(self._by_length, np.bincount(lengths, weights * counts[order]))
        self._scored_by_length = _added(self._scored_by_length, np.bincount(lengths, weights))
        self._tokens += float((tokens.lengths * weights).sum())
        if self._unknown_id is not None:
            of_text = np.repeat(np.arange(len(order)), tokens.lengths)
            self._unknown += float(weights[of_text[tokens.ids == self._unknown_id]].sum())

    def result(self) -> TextSurvey:
        """What all chunks came to."""
        hashes = np.concatenate([np.empty(0, dtype=np.int64), *self._hashes])
        unknown_share = self._unknown / max(self._tokens, 1.0)
        return TextSurvey(
            num_read=self._num_read,
            num_bad=self._num_bad,
            num_texts=len(hashes),
            num_tokenised=self._num_tokenised,
            num_distinct_in_shards=self._num_distinct,
            num_duplicates=len(hashes) - len(np.unique(hashes)),
            by_length=self._by_length,
            scored_by_length=self._scored_by_length,
            unknown_share=None if self._unknown_id is None else unknown_share,
            mean_text_bytes=2.0 * self._num_bytes / max(len(hashes), 1),  # as Python holds Chinese
            suspects=self._suspects.result(),
        )

    def _choose(
        self, counts: np.ndarray, characters: list[int], max_texts: int, max_characters: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose the distinct texts to tokenise: half of them the most repeated ones, the rest at random.

        Returns:
            Their indices, and how many distinct texts each one stands for.
        """
        num = len(counts)
        if num <= max_texts and sum(characters) <= max_characters:
            return np.arange(num), np.ones(num)
        by_count = np.argsort(-counts, kind="stable")
        sizes = np.array(characters, dtype=np.int64)
        certain = by_count[: max_texts // 2][counts[by_count[: max_texts // 2]] > 1]
        certain = certain[np.cumsum(sizes[certain]) <= max_characters // 2]
        others = self._draw.permutation(np.setdiff1d(np.arange(num), certain))
        room = max_characters - int(sizes[certain].sum())
        num_fitting = int((np.cumsum(sizes[others]) <= room).sum())
        drawn = others[: max(1, min(max_texts - len(certain), num_fitting))]
        weights = np.concatenate((np.ones(len(certain)), np.full(len(drawn), len(others) / len(drawn))))
        return np.concatenate((certain, drawn)), weights


def _added(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    total = np.zeros(max(len(first), len(second)))
    total[: len(first)] += first
    total[: len(second)] += second
    return total
