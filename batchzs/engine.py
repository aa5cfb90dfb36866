"""One shard's texts to logits: each text once, longest first, smaller batches where memory runs out.

The order of work: identical texts are put together; texts and hypotheses are tokenised; the shard's pairs are planned
into batches, one chunk of labels after another; each batch is scored, and divided only if it does not fit. Rows whose
logits are not finite are scored again alone, then in fp32, and only then given up. Last, where the precision is low,
rows that are too close to call are scored again in fp32.

What comes before scoring (`prepare`) touches no device and may be done for the next shard meanwhile.

Needs NumPy, a tokenizer and a model object, and neither Polars nor transformers.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from batchzs.batch_scorer import BatchGate, BatchGates, BatchScorer, Split
from batchzs.batching import BatchPlan, order_longest_first, plan_batches
from batchzs.errors import DeviceError
from batchzs.journal import NoJournal
from batchzs.pairs import PairAssembler, TextTokenizer, TokenLists, Truncate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from batchzs.pairs import PackedPairs

    Forward = Callable[[PackedPairs], np.ndarray]
    IsClose = Callable[[np.ndarray], np.ndarray]

logger = logging.getLogger(__name__)

#: So many texts without one finite number among them are no accident.
USELESS_AFTER_TEXTS = 8
#: Characters handed to the tokenizer at once: a second or two of work, and working objects of some hundred megabytes,
#: which is what a shard of long texts would take many times over.
CHARACTERS_PER_CALL = 2**20


class PairModel(Protocol):
    """What the engine asks of a model."""

    @property
    def num_classes(self) -> int:
        """Classes of the head, 2 or 3."""

    @property
    def path(self) -> str:
        """Which network scores, for the records: packed, plain, ..."""

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
    num_workers: int  # batches scored at once; changes no logit
    #: Which texts are too close to call, from (texts, labels, classes) logits: they are scored again in fp32.
    is_close: IsClose | None = None


@dataclass(slots=True)
class ScoringCounts:
    """What scoring one shard took."""

    num_pairs: int = 0
    num_tokens: int = 0  # real ones, each pair's counted once
    num_duplicates: int = 0  # rows whose text another row of the shard has too, less the one that was scored
    num_recovered: int = 0  # pairs that an earlier attempt had scored
    recovered_s: float = 0.0  # what they took then
    num_scored_alone: int = 0  # texts whose logits were not finite at first
    exact_s: float = 0.0  # of the scoring, spent on scoring again in fp32 what was too close
    splits: list[Split] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TextLogits:
    """What the engine knows of one shard's texts, in their order."""

    logits: np.ndarray  # (texts, labels, classes) float32 in the checkpoint's class order; NaN where not scored
    num_tokens: np.ndarray  # (texts,) int32, the text's own tokens, uncut
    truncated: np.ndarray  # (texts,) bool
    non_finite: np.ndarray  # (texts,) bool, given up: no finite logits even in fp32
    rescored: np.ndarray  # (texts,) bool, too close to call and scored again in fp32
    counts: ScoringCounts


@dataclass(frozen=True, slots=True)
class PreparedTexts:
    """One shard's texts, tokenised, and the plan of their pairs."""

    inverse: np.ndarray  # (texts,) int64, for each text the index of its distinct one
    assembler: PairAssembler  # over the distinct texts
    plan: BatchPlan


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
        on_batch: called after every scored batch, and now and then while texts are tokenised or a batch is waited
            for, with the share of the shard that it adds (0 where that was counted before) and the real tokens that
            were scored just now; what it raises ends the shard.
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
        self._scorer = BatchScorer(
            settings.num_workers, settings.max_batch_tokens, model.release_memory, lambda: on_batch(0.0, 0)
        )
        self._has_seen_finite = False
        self._texts_without: set[int] = set()  # of the shards so far, until a finite number is seen

    def score(
        self, texts: Sequence[str], open_journal: Callable[[bytes], BatchJournal] = lambda _: NoJournal()
    ) -> TextLogits:
        """Score every text against every hypothesis: `prepare` and `score_prepared` in turn."""
        return self.score_prepared(self.prepare(texts, lambda: self._on_batch(0.0, 0)), open_journal)

    @property
    def budget(self) -> tuple[int, int]:
        """How many tokens a batch may have just now, and how often memory has run out."""
        return self._scorer.budget

    def prepare(self, texts: Sequence[str], on_chunk: Callable[[], None] = lambda: None) -> PreparedTexts:
        """Tokenise one shard's texts and plan their pairs; may run beside the scoring of another shard.

        Args:
            texts: one shard's; an empty one, or one without a token of its own, gets no pair.
            on_chunk: called now and then; what it raises ends the work.
        """
        unique_texts, inverse = _deduplicate(texts)
        tokens = self._tokenise(unique_texts, on_chunk)
        assembler = PairAssembler(
            tokens,
            self._hypotheses,
            self._tokenizer.layout,
            self._settings.max_length,
            self._settings.truncate,
        )
        return PreparedTexts(inverse, assembler, self._plan(assembler, np.flatnonzero(tokens.lengths)))

    def score_prepared(
        self,
        prepared: PreparedTexts,
        open_journal: Callable[[bytes], BatchJournal] = lambda _: NoJournal(),
        gates: BatchGates | None = None,
    ) -> TextLogits:
        """Score prepared texts.

        Args:
            prepared: one shard's.
            open_journal: gives the shard's journal for a plan's digest; batches that it holds are not scored again.
            gates: asked before each batch; None: every one begins.

        Returns:
            Logits and facts, one entry a text, in the order of the texts; NaN for those without a pair.

        Raises:
            DeviceError: not even one pair fits into memory, or the first batch has no finite number.
            InterruptedRunError: a gate's; what was scored until then is in the journal.
        """
        gates = gates or BatchGates()
        inverse, assembler, plan = prepared.inverse, prepared.assembler, prepared.plan
        text_lengths = assembler.texts.lengths
        counts = ScoringCounts(
            num_pairs=len(plan.text_ids),
            num_tokens=plan.num_tokens,
            num_duplicates=int((text_lengths[inverse] > 0).sum() - (text_lengths > 0).sum()),
        )
        shape = (len(text_lengths), len(self._hypotheses.lengths), self._model.num_classes)
        logits = np.full(shape, np.nan, dtype=np.float32)
        self._scorer.splits = counts.splits
        with open_journal(plan.digest) as journal:
            recovered = journal.recover(self._model.num_classes)
            counts.num_recovered, counts.recovered_s = len(recovered), journal.recovered_s
            pass_ = _Pass(assembler, plan, self._model.forward, gates.usual, recovered[: counts.num_pairs])
            self._score_pass(pass_, journal, logits)
            text_ids = np.unique(plan.text_ids)
            non_finite = self._score_alone(assembler, logits, text_ids, counts, gates)
            rescored = np.zeros(len(text_lengths), dtype=bool)
            if self._settings.is_close is not None:
                started_s = time.monotonic()
                finite = text_ids[~non_finite[text_ids]]
                rescored[finite] = self._settings.is_close(logits[finite])
                exact_plan = self._plan(assembler, np.flatnonzero(rescored))
                # Its batches follow in the same journal: which ones they are follows from what stands before them.
                exact_recovered = recovered[counts.num_pairs :]
                exact = _Pass(assembler, exact_plan, self._model.forward_exact, gates.exact, exact_recovered)
                self._score_pass(exact, journal, logits, share=0.0)
                counts.exact_s = time.monotonic() - started_s
        return TextLogits(
            logits=logits[inverse],
            num_tokens=text_lengths[inverse].astype(np.int32),
            truncated=assembler.truncated_texts()[inverse],
            non_finite=non_finite[inverse],
            rescored=rescored[inverse],
            counts=counts,
        )

    def _tokenise(self, texts: Sequence[str], on_chunk: Callable[[], None]) -> TokenLists:
        """Tokenise texts some at a time, so that a stop is heard in between and little is held beside the ids."""
        num_before = np.cumsum([len(text) for text in texts], dtype=np.int64)
        ends = [*(np.flatnonzero(np.diff(num_before // CHARACTERS_PER_CALL)) + 1).tolist(), len(texts)]
        parts = []
        for start, end in zip([0, *ends], ends, strict=False):
            if start:
                on_chunk()
            parts.append(self._tokenizer.encode(texts[start:end]))
        lengths = np.concatenate([part.lengths for part in parts])
        return TokenLists(np.concatenate([part.ids for part in parts]), np.concatenate(([0], np.cumsum(lengths))))

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

    def _score_pass(self, work: _Pass, journal: BatchJournal, logits: np.ndarray, share: float = 1.0) -> None:
        """Take over what an earlier attempt scored of a plan, and score the rest; `share` of the shard's advance."""
        plan, num_done = work.plan, len(work.recovered)
        batches = plan.batches
        if num_done:
            logits[plan.text_ids[:num_done], plan.label_ids[:num_done]] = work.recovered
            self._has_seen_finite |= bool(np.isfinite(work.recovered).any())
            batches = tuple(batch for batch in batches if batch.start >= num_done)
            logger.info(
                "%d of the shard's %d pairs were scored before: going on after them", num_done, len(plan.text_ids)
            )
            self._on_batch(share * int(plan.lengths[:num_done].sum()) / plan.num_tokens, 0)
        # Closed at once when this block ends, however it ends: no worker outlives its shard.
        with closing(self._scorer.score(work.assembler, plan, batches, work.forward, work.gate)) as scored:
            for batch, values in scored:
                logits[plan.text_ids[batch], plan.label_ids[batch]] = values
                self._refuse_useless_precision(plan.text_ids[batch], values)
                journal.add(values)
                num_tokens = int(plan.lengths[batch].sum())
                self._on_batch(share * num_tokens / plan.num_tokens, num_tokens)

    def _refuse_useless_precision(self, text_ids: np.ndarray, values: np.ndarray) -> None:
        """Stop where the first texts, several of them, have not one finite number: every row would go the same way.

        One text alone proves nothing: it may be the one that breaks any precision.
        """
        if self._has_seen_finite:
            return
        self._has_seen_finite = bool(np.isfinite(values).any())
        self._texts_without.update(text_ids.tolist())
        if not self._has_seen_finite and len(self._texts_without) >= USELESS_AFTER_TEXTS:
            raise DeviceError(
                f"the first {len(self._texts_without)} texts came back without one finite number: this precision is "
                "unusable on this device with this model; set engine.precision: fp32 (and if that is what was used, "
                "the checkpoint is damaged)"
            )

    def _score_alone(
        self,
        assembler: PairAssembler,
        logits: np.ndarray,
        text_ids: np.ndarray,
        counts: ScoringCounts,
        gates: BatchGates,
    ) -> np.ndarray:
        """Score texts with a non-finite logit again, one at a time, then in fp32.

        Returns:
            (texts,) bool: those that stayed non-finite.
        """
        non_finite = np.zeros(len(logits), dtype=bool)
        for text_id in text_ids[~np.isfinite(logits[text_ids]).all(axis=(1, 2))]:
            counts.num_scored_alone += 1
            plan = self._plan(assembler, np.array([text_id]))
            for forward, gate in ((self._model.forward, gates.usual), (self._model.forward_exact, gates.exact)):
                with closing(self._scorer.score(assembler, plan, plan.batches, forward, gate)) as scored:
                    for batch, values in scored:
                        logits[text_id, plan.label_ids[batch]] = values
                        self._on_batch(0.0, 0)
                if np.isfinite(logits[text_id]).all():
                    break
            non_finite[text_id] = not np.isfinite(logits[text_id]).all()
        return non_finite


@dataclass(frozen=True, slots=True)
class _Pass:
    """A plan to score, with what, and the logits of its first pairs where an earlier attempt left them."""

    assembler: PairAssembler
    plan: BatchPlan
    forward: Forward
    gate: BatchGate
    recovered: np.ndarray  # (pairs, classes) float32


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
