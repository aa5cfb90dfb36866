"""One shard's texts to logits: each text once, longest first, smaller batches where memory runs out.

The order of work: identical texts are put together; texts and hypotheses are tokenised; the shard's pairs are planned
into batches, one chunk of labels after another; each batch is scored, and divided only if it does not fit. Rows whose
logits are not finite are scored again alone, then in fp32, and only then given up.

Needs NumPy, a tokenizer and a model object, and neither Polars nor transformers.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from batchzs.batching import TokenBudget, order_longest_first, plan_batches
from batchzs.errors import MachineError
from batchzs.journal import NoJournal
from batchzs.models.memory import is_out_of_memory
from batchzs.pairs import PairAssembler, TextTokenizer, TokenLists, Truncate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from batchzs.pairs import PackedPairs

    Forward = Callable[[PackedPairs], np.ndarray]

logger = logging.getLogger(__name__)


class PairModel(Protocol):
    """What the engine asks of a model."""

    @property
    def num_classes(self) -> int:
        """Classes of the head, 2 or 3."""

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits in the run's precision."""

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits, computed in fp32."""

    def release_memory(self) -> None:
        """Give cached blocks back to the device."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What decides the pairs and the planned batches."""

    max_length: int  # tokens of a pair, special ones included
    truncate: Truncate
    max_batch_tokens: int  # padding counted
    labels_per_chunk: int


@dataclass(frozen=True, slots=True)
class Split:
    """One batch that did not fit: its shape, and the limit in force after it."""

    shape: str
    batch_tokens: int
    limit_tokens: int


@dataclass(slots=True)
class ScoringCounts:
    """What scoring one shard took."""

    num_pairs: int = 0
    num_tokens: int = 0  # real ones, each pair's counted once
    num_duplicates: int = 0  # rows whose text another row of the shard has too, less the one that was scored
    num_recovered: int = 0  # pairs that an earlier attempt had scored
    recovered_s: float = 0.0  # what they took then
    num_scored_alone: int = 0  # texts whose logits were not finite at first
    splits: list[Split] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TextLogits:
    """What the engine knows of one shard's texts, in their order."""

    logits: np.ndarray  # (texts, labels, classes) float32 in the checkpoint's class order; NaN where not scored
    num_tokens: np.ndarray  # (texts,) int32, the text's own tokens, uncut
    truncated: np.ndarray  # (texts,) bool
    non_finite: np.ndarray  # (texts,) bool, given up: no finite logits even in fp32
    counts: ScoringCounts


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A shard's pairs in the order in which they are scored, and where batches begin and end."""

    text_ids: np.ndarray  # (pairs,) int64
    label_ids: np.ndarray  # (pairs,) int64
    lengths: np.ndarray  # (pairs,) int64, descending within each chunk of labels
    batches: tuple[slice, ...]

    @property
    def num_tokens(self) -> int:
        """Real tokens over all pairs."""
        return int(self.lengths.sum())

    @property
    def digest(self) -> bytes:
        """SHA-256 over the pairs and the batches: two plans with one digest are scored in the same batches."""
        starts = np.array([batch.start for batch in self.batches], dtype=np.int64)
        parts = (self.text_ids, self.label_ids, self.lengths, starts)
        return hashlib.sha256(b"".join(hashlib.sha256(part.tobytes()).digest() for part in parts)).digest()


class BatchJournal(Protocol):
    """What keeps a shard's logits while it is under way; see `batchzs.journal`."""

    recovered_s: float

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write down what is pending."""

    def recover(self, num_classes: int) -> np.ndarray:
        """(pairs, classes) float32 logits of the plan's first batches, as earlier attempts left them."""

    def add(self, logits: np.ndarray) -> None:
        """Keep the next batch's logits."""


class Engine:
    """Scores shards of texts against one list of hypotheses.

    Args:
        model: gives logits.
        tokenizer: gives token ids.
        hypotheses: the labels' hypotheses, in the job's order.
        settings: pair and batch sizes.
        on_batch: called after every scored piece with the share of the shard that it adds (0 where that was counted
            before) and the real tokens that were scored just now; what it raises ends the shard.
    """

    def __init__(
        self,
        model: PairModel,
        tokenizer: TextTokenizer,
        hypotheses: Sequence[str],
        settings: EngineSettings,
        on_batch: Callable[[float, int], None],
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._hypotheses = tokenizer.encode(hypotheses)
        self._settings = settings
        self._on_batch = on_batch
        self._budget = TokenBudget(settings.max_batch_tokens)
        self._has_seen_finite = False

    def score(
        self, texts: Sequence[str], open_journal: Callable[[bytes], BatchJournal] = lambda _: NoJournal()
    ) -> TextLogits:
        """Score every text against every hypothesis.

        Args:
            texts: one shard's; an empty one, or one without a token of its own, gets NaN.
            open_journal: gives the shard's journal for a plan's digest; batches that it holds are not scored again.

        Returns:
            Logits and facts, one entry a text, in the order of `texts`.

        Raises:
            MachineError: not even one pair fits into memory, or the first batch has no finite number.
        """
        unique_texts, inverse = _deduplicate(texts)
        tokens = self._tokenizer.encode(unique_texts)
        assembler = self._assembler(tokens)
        plan = self._plan(assembler, np.flatnonzero(tokens.lengths))
        counts = ScoringCounts(
            num_pairs=len(plan.text_ids),
            num_tokens=plan.num_tokens,
            num_duplicates=int((tokens.lengths[inverse] > 0).sum() - (tokens.lengths > 0).sum()),
        )
        num_labels = len(self._hypotheses.lengths)
        logits = np.full((len(unique_texts), num_labels, self._model.num_classes), np.nan, dtype=np.float32)
        with open_journal(plan.digest) as journal:
            for batch in self._recover(journal, plan, logits, counts):
                text_ids, label_ids = plan.text_ids[batch], plan.label_ids[batch]
                for piece, values in self._score_batch(assembler, plan, batch, counts, self._model.forward):
                    logits[text_ids[piece], label_ids[piece]] = values
                    num_tokens = int(plan.lengths[batch][piece].sum())
                    self._on_batch(num_tokens / plan.num_tokens, num_tokens)
                self._refuse_useless_precision(logits[text_ids, label_ids])
                journal.add(logits[text_ids, label_ids])
        non_finite = self._score_alone(assembler, logits, np.unique(plan.text_ids), counts)
        return TextLogits(
            logits=logits[inverse],
            num_tokens=tokens.lengths[inverse].astype(np.int32),
            truncated=assembler.truncated_texts()[inverse],
            non_finite=non_finite[inverse],
            counts=counts,
        )

    def _assembler(self, tokens: TokenLists) -> PairAssembler:
        return PairAssembler(
            tokens,
            self._hypotheses,
            self._tokenizer.cls_id,
            self._tokenizer.sep_id,
            self._settings.max_length,
            self._settings.truncate,
        )

    def _plan(self, assembler: PairAssembler, text_ids: np.ndarray) -> BatchPlan:
        """Plan all pairs of some texts: a function of lengths and settings alone, so that a resumed run repeats it."""
        num_labels = len(self._hypotheses.lengths)
        chunks = []
        batches: list[slice] = []
        num_planned = 0
        for first in range(0, num_labels, self._settings.labels_per_chunk):
            labels = np.arange(first, min(first + self._settings.labels_per_chunk, num_labels))
            texts = np.repeat(text_ids, len(labels))
            label_ids = np.tile(labels, len(text_ids))
            lengths = assembler.pair_lengths(texts, label_ids)
            order = order_longest_first(lengths)
            chunks.append((texts[order], label_ids[order], lengths[order]))
            batches += [
                slice(batch.start + num_planned, batch.stop + num_planned)
                for batch in plan_batches(lengths[order], self._settings.max_batch_tokens)
            ]
            num_planned += len(texts)
        texts, label_ids, lengths = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
        return BatchPlan(texts, label_ids, lengths, tuple(batches))

    def _recover(
        self, journal: BatchJournal, plan: BatchPlan, logits: np.ndarray, counts: ScoringCounts
    ) -> tuple[slice, ...]:
        """Take over what an earlier attempt scored.

        Returns:
            The batches that are left.
        """
        recovered = journal.recover(self._model.num_classes)
        num_pairs = counts.num_recovered = len(recovered)
        counts.recovered_s = journal.recovered_s
        if not num_pairs:
            return plan.batches
        logits[plan.text_ids[:num_pairs], plan.label_ids[:num_pairs]] = recovered
        self._has_seen_finite |= bool(np.isfinite(recovered).any())
        logger.info("%d of the shard's %d pairs were scored before: going on after them", num_pairs, counts.num_pairs)
        self._on_batch(int(plan.lengths[:num_pairs].sum()) / plan.num_tokens, 0)
        return tuple(batch for batch in plan.batches if batch.start >= num_pairs)

    def _score_batch(
        self, assembler: PairAssembler, plan: BatchPlan, batch: slice, counts: ScoringCounts, forward: Forward
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Score one planned batch with one of the model's forwards, in smaller pieces where it does not fit.

        Yields:
            Pieces, as slices into the batch that cover it once, with their (pairs, classes) logits.
        """
        text_ids, label_ids, lengths = plan.text_ids[batch], plan.label_ids[batch], plan.lengths[batch]
        pending = [slice(0, len(lengths))]
        while pending:
            piece = pending.pop()
            parts = plan_batches(lengths[piece], self._budget.limit_tokens)
            if len(parts) > 1:
                pending += [slice(piece.start + p.start, piece.start + p.stop) for p in reversed(parts)]
                continue
            pairs = assembler.assemble(text_ids[piece], label_ids[piece])
            values = _try_forward(forward, pairs)
            if values is None:
                self._back_off(pairs, counts)
                pending.append(piece)
            else:
                self._budget.record_success()
                yield piece, values

    def _back_off(self, pairs: PackedPairs, counts: ScoringCounts) -> None:
        batch_tokens = len(pairs.lengths) * int(pairs.lengths.max())
        if len(pairs.lengths) == 1:
            raise MachineError(
                f"out of memory with a single pair of {batch_tokens} tokens: free memory on the device, or lower "
                "engine.max_length; the same command goes on from the last published shard"
            )
        self._budget.record_failure(batch_tokens)
        self._model.release_memory()
        split = Split(pairs.shape, batch_tokens, self._budget.limit_tokens)
        counts.splits.append(split)
        logger.warning(
            "out of memory with %s (%d tokens): going on with at most %d tokens a batch",
            split.shape,
            batch_tokens,
            split.limit_tokens,
        )

    def _refuse_useless_precision(self, values: np.ndarray) -> None:
        """Stop where the very first batch has not one finite number: every row would go the same way."""
        if self._has_seen_finite or not values.size:
            return
        self._has_seen_finite = bool(np.isfinite(values).any())
        if not self._has_seen_finite:
            raise MachineError(
                "the first batch came back without one finite number: this precision is unusable on this device with "
                "this model; set engine.precision: fp32 (and if that is what was used, the checkpoint is damaged)"
            )

    def _score_alone(
        self, assembler: PairAssembler, logits: np.ndarray, text_ids: np.ndarray, counts: ScoringCounts
    ) -> np.ndarray:
        """Score texts with a non-finite logit again, one at a time, then in fp32.

        Returns:
            (texts,) bool: those that stayed non-finite.
        """
        non_finite = np.zeros(len(logits), dtype=bool)
        for text_id in text_ids[~np.isfinite(logits[text_ids]).all(axis=(1, 2))]:
            counts.num_scored_alone += 1
            plan = self._plan(assembler, np.array([text_id]))
            for forward in (self._model.forward, self._model.forward_exact):
                for batch in plan.batches:
                    for piece, values in self._score_batch(assembler, plan, batch, counts, forward):
                        logits[text_id, plan.label_ids[batch][piece]] = values
                        self._on_batch(0.0, 0)
                if np.isfinite(logits[text_id]).all():
                    break
            non_finite[text_id] = not np.isfinite(logits[text_id]).all()
        return non_finite


def _deduplicate(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Put identical texts together.

    Returns:
        The distinct texts in order of first appearance, and for every text the index of its distinct one.

    >>> unique, inverse = _deduplicate(["b", "a", "b"])
    >>> unique, inverse.tolist()
    (['b', 'a'], [0, 1, 0])
    """
    index_of: dict[str, int] = {}
    inverse = np.fromiter((index_of.setdefault(text, len(index_of)) for text in texts), np.int64, count=len(texts))
    return list(index_of), inverse


def _try_forward(forward: Forward, pairs: PackedPairs) -> np.ndarray | None:
    """Logits, or None where memory ran out.

    The caller recovers after this has returned: while an exception is being handled, its traceback keeps every tensor
    of the failed forward alive, and the retry would fail for want of what they hold.
    """
    try:
        return forward(pairs)
    except Exception as exc:
        if not is_out_of_memory(exc):
            raise
    return None
