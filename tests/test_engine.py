"""Texts to logits: the same ones whatever the batches, every pair once, and honest about what could not be scored."""

from __future__ import annotations

import gc
import json
import threading
import time
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.batch_scorer import BatchGates
from batchzs.engine import USELESS_AFTER_TEXTS, Engine, EngineSettings, TextLogits
from batchzs.errors import InterruptedRunError, MachineError, TimeLimitError
from batchzs.journal import ShardJournal
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.tokenizer import load_tokenizer
from tests.builders import (
    PATIENT,
    CharacterTokenizer,
    RecordingModel,
    batch_tokens,
    network_config,
    odd_folder,
    split_pairs,
    write_vocabulary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from batchzs.pairs import PackedPairs

HYPOTHESES = ["科技", "体育新闻", "财"]
OUT_OF_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 123 bytes"
TEXTS = st.lists(st.text(alphabet="ab 央行", max_size=20), max_size=12)
BUDGETS = st.sampled_from([1, 10, 40, 100, 100_000])


def void(result: object) -> None:
    """Drop what a call returns, for a callback that returns nothing."""
    del result


def make_engine(
    model: RecordingModel,
    hypotheses: Sequence[str] = HYPOTHESES,
    on_batch: Callable[[float, int], None] = lambda *_: None,
    **changes: Any,
) -> Engine:
    """Build an engine around a model."""
    settings: dict[str, Any] = {
        "max_length": 32,
        "truncate": "head",
        "max_batch_tokens": 100,
        "labels_per_chunk": 64,
        "num_workers": 1,
    }
    return Engine(model, CharacterTokenizer(), hypotheses, EngineSettings(**settings | changes), on_batch)


def pair_ids(text: str, hypothesis: str, max_length: int = 32) -> tuple[int, ...]:
    """One pair's ids, built by hand."""
    ids = [ord(character) for character in text.replace(" ", "")][: max_length - 3 - len(hypothesis)]
    return (1, *ids, 2, *map(ord, hypothesis), 2)


def expected_logits(text: str, hypothesis: str, max_length: int = 32) -> list[float]:
    """What the model gives for one pair, built by hand."""
    return RecordingModel().pair_logits(pair_ids(text, hypothesis, max_length))


def assert_all_right(result: TextLogits, texts: Sequence[str], hypotheses: Sequence[str] = HYPOTHESES) -> None:
    """Every text with tokens has each of its logits in its place; the others have NaN."""
    assert result.logits.shape == (len(texts), len(hypotheses), 3)
    assert result.logits.dtype == np.float32
    for text, row in zip(texts, result.logits, strict=True):
        if text.replace(" ", ""):
            assert row.tolist() == [expected_logits(text, hypothesis) for hypothesis in hypotheses]
        else:
            assert np.isnan(row).all()


def failing_above(limit: int) -> Callable[[PackedPairs], None]:
    """Run out of memory for batches of more than so many tokens."""

    def before(pairs: PackedPairs) -> None:
        if batch_tokens(pairs) > limit:
            raise RuntimeError(OUT_OF_MEMORY)

    return before


def scored_pairs(model: RecordingModel) -> list[tuple[int, ...]]:
    """Every pair that the model gave logits for, by its ids, sorted."""
    return sorted(tuple(ids) for batch in model.batches for ids in split_pairs(batch))


def test_one_text_worked_by_hand() -> None:
    """Two texts against two labels: four pairs, longest first, cut at 2 pairs of 7 tokens.

    Texts of 3 and 1 tokens, hypotheses of 1 and 2: lengths with 3 special tokens are 7 and 8, 5 and 6. Longest first
    8, 7, 6, 5; budget 16: 16 // 8 = 2 pairs, then 16 // 6 = 2.
    """
    model = RecordingModel()
    result = make_engine(model, ["x", "yz"], max_batch_tokens=16).score(["abc", "d"])
    a, b, c, d, x, y, z = map(ord, "abcdxyz")
    assert [split_pairs(batch) for batch in model.batches] == [
        [[1, a, b, c, 2, y, z, 2], [1, a, b, c, 2, x, 2]],
        [[1, d, 2, y, z, 2], [1, d, 2, x, 2]],
    ]
    assert result.num_tokens.tolist() == [3, 1]
    assert result.num_tokens.dtype == np.int32
    assert (result.counts.num_pairs, result.counts.num_tokens, result.counts.num_duplicates) == (4, 26, 0)
    assert_all_right(result, ["abc", "d"], ["x", "yz"])


@PATIENT
@given(texts=TEXTS, budget=BUDGETS, labels_per_chunk=st.integers(1, 4), workers=st.integers(1, 3), data=st.data())
def test_batches_chunks_order_and_duplicates_change_no_logit(
    texts: list[str], budget: int, labels_per_chunk: int, workers: int, data: st.DataObject
) -> None:
    """Case Z10: whatever else is in the shard, a text has the logits of its own pairs."""
    texts = data.draw(st.permutations(texts + texts[:3]))
    model = RecordingModel()
    changes: dict[str, Any] = {"max_batch_tokens": budget, "labels_per_chunk": labels_per_chunk, "num_workers": workers}
    result = make_engine(model, **changes).score(texts)
    assert_all_right(result, texts)
    distinct = {text for text in texts if text.replace(" ", "")}
    assert result.counts.num_pairs == len(distinct) * len(HYPOTHESES) == len(scored_pairs(model))
    assert result.counts.num_tokens == sum(batch.num_tokens for batch in model.batches)
    assert result.counts.num_duplicates == sum(bool(text.replace(" ", "")) for text in texts) - len(distinct)
    assert result.num_tokens.tolist() == [len(text.replace(" ", "")) for text in texts]
    assert not result.non_finite.any()
    assert all(len(batch.lengths) == 1 or batch_tokens(batch) <= budget for batch in model.batches)


@PATIENT
@given(
    texts=TEXTS,
    budget=BUDGETS,
    limit=st.integers(40, 300),
    labels_per_chunk=st.integers(1, 4),
    workers=st.integers(1, 3),
)
def test_running_out_of_memory_loses_and_repeats_no_pair(
    texts: list[str], budget: int, limit: int, labels_per_chunk: int, workers: int
) -> None:
    """Case O4: however often a batch is divided, each pair is scored once and lands in its place."""
    model = RecordingModel(before=failing_above(limit))
    changes: dict[str, Any] = {"max_batch_tokens": budget, "labels_per_chunk": labels_per_chunk, "num_workers": workers}
    result = make_engine(model, **changes).score(texts)
    assert_all_right(result, texts)
    expected = sorted(pair_ids(text, hypothesis) for text in set(texts) if text.strip() for hypothesis in HYPOTHESES)
    assert scored_pairs(model) == expected
    assert result.counts.num_pairs == len(expected)
    assert model.num_releases == len(result.counts.splits)
    for split in result.counts.splits:
        assert split.batch_tokens > limit
        # Beside another worker a batch may have begun before the other's failure, which ruled its size out already.
        assert split.limit_tokens <= (split.batch_tokens // 2 if workers == 1 else split.batch_tokens - 1)


def test_a_split_is_recorded_and_logged_and_only_divides_the_planned_batch(caplog: pytest.LogCaptureFixture) -> None:
    """8 pairs of 10 tokens planned as one batch; above 40 tokens memory runs out: two batches of 4 pairs.

    By hand: 80 tokens fail, the limit is 40, 40 // 10 = 4 pairs fit in each of two parts.
    """
    model = RecordingModel(before=failing_above(40))
    texts = [f"{letter}bcdef" for letter in "stuvwxyz"]
    with caplog.at_level("WARNING", logger="batchzs"):
        result = make_engine(model, ["n"], max_batch_tokens=100).score(texts)
    assert [(s.shape, s.batch_tokens, s.limit_tokens) for s in result.counts.splits] == [
        ("8 pairs x 10 tokens", 80, 40)
    ]
    assert [len(batch.lengths) for batch in model.batches] == [4, 4]
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory with 8 pairs x 10 tokens (80 tokens): going on with at most 40 tokens a batch"
    ]
    assert_all_right(result, texts, ["n"])


def test_the_parts_of_a_divided_batch_come_longest_first() -> None:
    """A planned batch keeps its order when it is divided: the largest part meets memory first."""
    model = RecordingModel(before=failing_above(40))
    make_engine(model, ["n"], max_batch_tokens=100).score(["a" * size for size in (4, 9, 2, 7, 3, 8)])
    lengths = [length for batch in model.batches for length in batch.lengths]
    assert lengths == sorted(lengths, reverse=True)
    assert len(model.batches) > 1


def test_what_memory_taught_holds_for_the_next_shard() -> None:
    """A run does not fail anew in every shard, and each shard counts its own splits."""
    model = RecordingModel(before=failing_above(40))
    engine = make_engine(model, ["n"])
    texts = [f"{letter}bcdef" for letter in "stuvwxyz"]
    assert len(engine.score(texts).counts.splits) == 1
    assert engine.score(texts).counts.splits == []


def test_out_of_memory_for_a_single_pair_ends_the_run() -> None:
    """A floor: there is nothing left to divide, and the user is told what to do."""
    model = RecordingModel(before=failing_above(0))
    with pytest.raises(MachineError, match=r"out of memory with a single pair of \d+ tokens: free memory"):
        make_engine(model).score(["央行降息", "体育"])
    assert model.batches == []


def test_out_of_memory_for_the_longest_pairs_alone() -> None:
    """Only batches of long texts fail: they are divided, and the many short ones after them are scored as well."""

    def before(pairs: PackedPairs) -> None:
        if pairs.lengths.max() > 20 and len(pairs.lengths) > 2:
            raise MemoryError

    texts = ["长" * 20 + str(number) for number in range(6)] + [f"短{number}" for number in range(30)]
    model = RecordingModel(before=before)
    result = make_engine(model, max_batch_tokens=400).score(texts)
    assert_all_right(result, texts)
    assert result.counts.splits


@pytest.mark.parametrize(
    "error",
    [RuntimeError("CUDA error: device-side assert triggered"), ValueError("a fault of ours"), KeyboardInterrupt()],
)
def test_every_other_error_passes_through_at_once(error: BaseException) -> None:
    """Cases O2 and O3: no smaller batch is tried for what is no lack of memory."""
    calls = []

    def before(pairs: PackedPairs) -> None:
        calls.append(pairs)
        raise error

    with pytest.raises(type(error)) as caught:
        make_engine(RecordingModel(before=before)).score(["央行"])
    assert caught.value is error
    assert len(calls) == 1


def test_the_failed_forwards_tensors_are_gone_before_the_retry() -> None:
    """Case O1: while an exception is handled its traceback keeps every tensor of the failed forward alive."""

    class Tensor:
        """Something that a forward holds in its frame."""

    held: list[weakref.ref[Tensor]] = []
    seen_at_release: list[bool] = []

    class Model(RecordingModel):
        def forward(self, pairs: PackedPairs) -> np.ndarray:
            tensor = Tensor()
            assert all(reference() is None for reference in held)
            if batch_tokens(pairs) > 40:
                held.append(weakref.ref(tensor))
                raise RuntimeError(OUT_OF_MEMORY)
            return super().forward(pairs)

        def release_memory(self) -> None:
            seen_at_release.extend(reference() is not None for reference in held)

    gc.disable()  # not even a cycle may keep them
    try:
        result = make_engine(Model(), ["n"]).score(["sbcdef", "tbcdef", "ubcdef", "vbcdef", "wbcdef"])
    finally:
        gc.enable()
    assert len(held) == len(result.counts.splits) == 1
    assert seen_at_release == [False]


class NanModel(RecordingModel):
    """Gives NaN for texts that begin with ☠, in as many of its forwards as a test says."""

    nan_in_company = True
    nan_alone = False
    nan_in_fp32 = False

    def _spoil(self, pairs: PackedPairs, *, is_exact: bool) -> np.ndarray:
        logits = self.logits(pairs)
        marked = np.array([ids[1] == ord("☠") for ids in split_pairs(pairs)])
        in_company = len({ids[1] for ids in split_pairs(pairs)}) > 1
        if self.nan_in_fp32 if is_exact else (self.nan_in_company if in_company else self.nan_alone):
            logits[marked, 1] = np.nan
        return logits

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """Logits, spoilt in company or alone."""
        super().forward(pairs)
        return self._spoil(pairs, is_exact=False)

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """Logits, spoilt if fp32 does not help either."""
        super().forward_exact(pairs)
        return self._spoil(pairs, is_exact=True)


@pytest.mark.parametrize(("nan_alone", "num_exact"), [(False, 0), (True, 1)])
def test_a_text_with_nan_is_scored_again_alone_then_in_fp32(
    nan_alone: bool,  # noqa: FBT001 - parametrised
    num_exact: int,
) -> None:
    """Case Z9: what helps first is what stands in the output, and its neighbours are not touched."""
    model = NanModel()
    model.nan_alone = nan_alone
    texts = ["央行", "☠坏", "体育", "☠坏", ""]
    result = make_engine(model, max_batch_tokens=1000).score(texts)
    assert_all_right(result, texts)
    assert not result.non_finite.any()
    assert model.num_exact == num_exact
    assert result.counts.num_scored_alone == 1


def test_a_text_that_stays_nan_is_given_up_and_its_neighbours_are_not() -> None:
    """Case Z9: marked, with every twin of its text; the others have their numbers."""
    model = NanModel()
    model.nan_alone = model.nan_in_fp32 = True
    texts = ["央行", "☠坏", "体育", "☠坏", ""]
    result = make_engine(model, max_batch_tokens=1000).score(texts)
    assert result.non_finite.tolist() == [False, True, False, True, False]
    assert_all_right(
        replace(result, logits=result.logits[[0, 2]]),
        ["央行", "体育"],
    )
    assert np.isnan(result.logits[1]).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_first_texts_without_a_finite_number_end_the_run(bad: float) -> None:
    """Every row would go the same way: this precision is unusable here, and the message says what to set."""

    class Model(RecordingModel):
        def logits(self, pairs: PackedPairs) -> np.ndarray:
            return np.full((len(pairs.lengths), 3), bad, dtype=np.float32)

    model = Model()
    with pytest.raises(MachineError, match=r"set engine\.precision: fp32"):
        make_engine(model, ["n"], max_batch_tokens=1).score([f"央行降息{n}" for n in range(20)])
    assert len(model.batches) == USELESS_AFTER_TEXTS


def test_a_first_text_that_breaks_any_precision_is_given_up_alone() -> None:
    """It may come first, being the longest, and with many labels fill batches of its own: the others are scored."""
    model = NanModel()
    model.nan_alone = model.nan_in_fp32 = True
    result = make_engine(model, max_batch_tokens=1).score(["☠" * 20, "央行", "体育"])
    assert result.non_finite.tolist() == [True, False, False]


def test_a_later_batch_without_a_finite_number_does_not() -> None:
    """After a finite one the device is known to work: those texts alone are given up."""

    class Model(RecordingModel):
        def logits(self, pairs: PackedPairs) -> np.ndarray:
            logits = super().logits(pairs)
            logits[[ids[1] == ord("☠") for ids in split_pairs(pairs)]] = np.nan
            return logits

    engine = make_engine(Model(), max_batch_tokens=1)
    result = engine.score(["央行降息", "☠"])
    assert result.non_finite.tolist() == [False, True]
    assert engine.score(["☠"]).non_finite.tolist() == [True]


def test_empty_texts_reach_no_model() -> None:
    """Case Z8: no tokens of their own, no pair, no confident nonsense."""
    model = RecordingModel()
    result = make_engine(model).score(["", "  ", " "])
    assert model.batches == []
    assert np.isnan(result.logits).all()
    assert result.num_tokens.tolist() == [0, 0, 0]
    assert not result.non_finite.any()
    assert (result.counts.num_pairs, result.counts.num_duplicates) == (0, 0)


def test_a_shard_without_texts() -> None:
    """An input without rows still makes its empty shard."""
    result = make_engine(RecordingModel()).score([])
    assert result.logits.shape == (0, 3, 3)
    assert (len(result.num_tokens), len(result.truncated), len(result.non_finite)) == (0, 0, 0)


def test_truncated_texts_are_told_with_their_uncut_length() -> None:
    """max_length 32: beside a hypothesis of 4 tokens there is room for 32 - 3 - 4 = 25."""
    result = make_engine(RecordingModel()).score(["a" * 25, "a" * 26, "a" * 900])
    assert result.truncated.tolist() == [False, True, True]
    assert result.num_tokens.tolist() == [25, 26, 900]


def test_head_tail_keeps_both_ends() -> None:
    """The setting reaches the pairs: 10 - 3 - 1 = 6 tokens, three from each end."""
    model = RecordingModel()
    make_engine(model, ["n"], max_length=10, truncate="head_tail").score(["abcdefghij"])
    assert split_pairs(model.batches[0]) == [[1, *map(ord, "abchij"), 2, ord("n"), 2]]


def test_progress_is_told_after_every_batch_and_sums_up() -> None:
    """Each batch's share of the shard and its real tokens, also where batches are divided."""
    calls: list[tuple[float, int]] = []
    model = RecordingModel(before=failing_above(60))
    engine = make_engine(model, on_batch=lambda share, tokens: calls.append((share, tokens)))
    result = engine.score(["央行降息", "体育", "央行降息新闻" * 3, ""])
    assert [share for share, _ in calls] == [tokens / result.counts.num_tokens for _, tokens in calls]
    assert sum(tokens for _, tokens in calls) == result.counts.num_tokens
    assert sum(share for share, _ in calls) == pytest.approx(1)


def test_what_on_batch_raises_ends_the_shard() -> None:
    """A stop request is heard between batches, without another one being scored."""
    model = RecordingModel()

    def stop(*_: float) -> None:
        raise InterruptedRunError("stopped by SIGTERM")

    with pytest.raises(InterruptedRunError):
        make_engine(model, on_batch=stop, max_batch_tokens=1).score(["央行", "体育"])
    assert len(model.batches) == 1


def test_a_stop_is_heard_while_texts_are_scored_again() -> None:
    """A shard full of texts to score alone does not keep a stopped run from ending; their tokens count once."""
    calls: list[tuple[float, int]] = []

    def stop(share: float, tokens: int) -> None:
        calls.append((share, tokens))
        if len(calls) == 2:
            raise InterruptedRunError("stopped by SIGTERM")

    model = NanModel()
    with pytest.raises(InterruptedRunError):
        make_engine(model, ["n"], on_batch=stop, max_batch_tokens=1000).score(["央行", "☠", "☠坏"])
    assert calls == [(1.0, 6 + 5 + 6), (0.0, 0)]
    assert len(model.batches) == 2


@pytest.mark.parametrize(
    ("text", "num_tokens"),
    [
        ("央行降息" * 250_000, 1_000_000),
        (" " * 1_000_000 + "央行", 2),  # cutting by characters first would leave nothing
        ("a" * 1_000_000, 1),  # one word that is too long to be split into pieces
        ("\u200b" * 1_000_000, 0),
    ],
    ids=["characters", "spaces", "word", "invisible"],
)
def test_a_text_of_a_megabyte_takes_seconds_for_twenty_labels(tmp_path: Path, text: str, num_tokens: int) -> None:
    """Case Z12: it is tokenised once and not once a label, which took 2.8 s each; the limit is a generous one."""
    folder = odd_folder(tmp_path)
    write_vocabulary(folder)
    (folder / "config.json").write_text(json.dumps(network_config()), encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    tokenizer = load_tokenizer(read_checkpoint(folder))
    model = RecordingModel()
    settings = EngineSettings(
        max_length=512, truncate="head", max_batch_tokens=4096, labels_per_chunk=64, num_workers=1
    )
    hypotheses = [f"这篇文章的标题是{number}" for number in range(20)]
    started_s = time.monotonic()
    result = Engine(model, tokenizer, hypotheses, settings, lambda *_: None).score([text])
    assert time.monotonic() - started_s < 60
    assert result.num_tokens.tolist() == [num_tokens]
    assert result.truncated.tolist() == [num_tokens > 512]
    lengths = [length for batch in model.batches for length in batch.lengths]
    assert len(lengths) == (20 if num_tokens else 0)
    assert all(length == 512 or num_tokens + 3 < length < 64 for length in lengths)


def test_batches_in_the_journal_are_not_scored_again(tmp_path: Path) -> None:
    """After a stop anywhere, a second attempt scores the other batches only, and the logits are the same bits."""
    texts = ["央行降息", "体育", "央行降息新闻" * 3, "", "a", "bc", "体育"]
    whole_model = RecordingModel()
    whole = make_engine(whole_model, max_batch_tokens=20).score(texts)
    num_batches = len(whole_model.batches)
    for stop_after in range(1, num_batches):

        def open_journal(plan_digest: bytes, path: Path = tmp_path / f"{stop_after}.journal") -> ShardJournal:
            return ShardJournal(path, plan_digest, interval_s=0)

        first_model, second_model = RecordingModel(), RecordingModel()

        def stop(*_: float, model: RecordingModel = first_model, limit: int = stop_after) -> None:
            if len(model.batches) == limit:
                raise InterruptedRunError("stopped by SIGTERM")

        with pytest.raises(InterruptedRunError):
            make_engine(first_model, max_batch_tokens=20, on_batch=stop).score(texts, open_journal)
        resumed = make_engine(second_model, max_batch_tokens=20).score(texts, open_journal)
        assert resumed.logits.tobytes() == whole.logits.tobytes()
        assert len(second_model.batches) == num_batches - stop_after
        assert resumed.counts.num_recovered == sum(len(b.lengths) for b in whole_model.batches[:stop_after])


def test_a_journal_of_another_plan_is_not_used(tmp_path: Path) -> None:
    """Another budget gives other batches: the digest differs, and everything is scored."""

    def open_journal(plan_digest: bytes) -> ShardJournal:
        return ShardJournal(tmp_path / "shard.journal", plan_digest, interval_s=0)

    texts = ["央行降息", "体育", "央行降息新闻" * 3]
    make_engine(RecordingModel(), max_batch_tokens=20).score(texts, open_journal)
    model = RecordingModel()
    result = make_engine(model, max_batch_tokens=1000).score(texts, open_journal)
    assert result.counts.num_recovered == 0
    assert sum(len(batch.lengths) for batch in model.batches) == result.counts.num_pairs


def test_workers_score_at_once_and_hand_on_in_order(tmp_path: Path) -> None:
    """Two batches are under way together, and the journal still gets them in planned order."""
    both = threading.Barrier(2, timeout=30)
    model = RecordingModel(before=lambda _: void(both.wait()))
    texts = ["央行", "体育", "科技", "财经"]
    engine = make_engine(model, ["n"], max_batch_tokens=6, num_workers=2)
    result = engine.score(texts, lambda digest: ShardJournal(tmp_path / "two.journal", digest, interval_s=0))
    assert_all_right(result, texts, ["n"])
    again = make_engine(RecordingModel(), ["n"], max_batch_tokens=6, num_workers=1)
    resumed = again.score(texts, lambda digest: ShardJournal(tmp_path / "two.journal", digest, interval_s=0))
    assert resumed.counts.num_recovered == 4
    assert resumed.logits.tobytes() == result.logits.tobytes()


def test_no_worker_outlives_a_failed_shard() -> None:
    """An error in one batch ends the scoring: what is under way ends, and what is not begun is never begun."""

    def fail(pairs: PackedPairs) -> None:
        if len(pairs.lengths):
            raise RuntimeError("CUDA error: device-side assert triggered")

    model = RecordingModel(before=fail)
    with pytest.raises(RuntimeError, match="device-side assert"):
        make_engine(model, max_batch_tokens=1, num_workers=3).score(["央行", "体育", "科技"] * 20)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("batchzs-worker")]


def test_a_stop_is_heard_while_a_batch_is_waited_for() -> None:
    """A batch may take long: the run looks at the stop flag meanwhile, and ends once the batch has."""
    released = threading.Event()
    heard: list[float] = []

    def on_batch(share: float, tokens: int) -> None:
        if not tokens:
            heard.append(share)
            released.set()
            raise InterruptedRunError("stopped by SIGTERM")

    model = RecordingModel(before=lambda _: void(released.wait(30)))
    with pytest.raises(InterruptedRunError):
        make_engine(model, on_batch=on_batch, max_batch_tokens=1).score(["央行", "体育"])
    assert heard == [0.0]
    assert len(model.batches) <= 1


@dataclass
class CoarseModel(RecordingModel):
    """A model whose usual forward is off by a quarter, and whose exact one keeps its batches too."""

    exact_batches: list[PackedPairs] = field(default_factory=list)

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits, each a quarter too high."""
        return super().forward(pairs) + np.float32(0.25)

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits."""
        self.exact_batches.append(pairs)
        return super().forward_exact(pairs)


def is_even(logits: np.ndarray) -> np.ndarray:
    """Call every text close whose first exact logit is an even number of 512ths."""
    close: np.ndarray = ((logits[:, 0, 0] - 0.25) * 512 % 2) == 0
    return close


@PATIENT
@given(texts=TEXTS, budget=BUDGETS, labels_per_chunk=st.integers(1, 4), workers=st.integers(1, 3))
def test_close_texts_and_no_others_are_scored_again_exactly(
    texts: list[str], budget: int, labels_per_chunk: int, workers: int
) -> None:
    """All logits of a close text are the exact ones, twins included; those of the others stay as they were."""
    model = CoarseModel()
    changes: dict[str, Any] = {"max_batch_tokens": budget, "labels_per_chunk": labels_per_chunk, "num_workers": workers}
    result = make_engine(model, is_close=is_even, **changes).score(texts)
    for text, row, rescored in zip(texts, result.logits, result.rescored, strict=True):
        if not text.replace(" ", ""):
            assert not rescored
            continue
        exact = np.array([expected_logits(text, hypothesis) for hypothesis in HYPOTHESES], dtype=np.float32)
        assert bool(rescored) is bool(is_even(exact[None] + np.float32(0.25))[0])
        assert row.tolist() == (exact if rescored else exact + np.float32(0.25)).tolist()
    again = {text for text, rescored in zip(texts, result.rescored, strict=True) if rescored}
    assert sum(len(batch.lengths) for batch in model.exact_batches) == len(again) * len(HYPOTHESES)


def test_what_was_scored_again_is_in_the_journal_too(tmp_path: Path) -> None:
    """Stopped anywhere, in the second pass as well, a shard goes on after what is kept, to the same bits."""
    texts = [f"央行{number}" for number in range(9)]
    settings: dict[str, Any] = {"is_close": is_even, "max_batch_tokens": 30}
    whole_model = CoarseModel()
    whole = make_engine(whole_model, **settings).score(texts)
    num_coarse, num_exact = len(whole_model.batches), len(whole_model.exact_batches)
    assert whole.rescored.any()
    assert num_exact > 1
    for stop_after in range(1, num_coarse + num_exact):

        def open_journal(plan_digest: bytes, path: Path = tmp_path / f"{stop_after}.journal") -> ShardJournal:
            return ShardJournal(path, plan_digest, interval_s=0)

        first, second = CoarseModel(), CoarseModel()

        def stop(*_: float, model: CoarseModel = first, limit: int = stop_after) -> None:
            if len(model.batches) + len(model.exact_batches) == limit:
                raise InterruptedRunError("stopped by SIGTERM")

        with pytest.raises(InterruptedRunError):
            make_engine(first, on_batch=stop, **settings).score(texts, open_journal)
        resumed = make_engine(second, **settings).score(texts, open_journal)
        assert resumed.logits.tobytes() == whole.logits.tobytes()
        assert resumed.rescored.tolist() == whole.rescored.tolist()
        assert len(second.batches) + len(second.exact_batches) == num_coarse + num_exact - stop_after


def test_a_text_without_finite_numbers_is_not_close() -> None:
    """It has been scored in fp32 already and given up: it is asked for no third time."""
    model = NanModel()
    model.nan_alone = model.nan_in_fp32 = True
    result = make_engine(model, is_close=lambda logits: np.ones(len(logits), dtype=bool)).score(["央行", "☠坏", "体育"])
    assert result.rescored.tolist() == [True, False, True]
    assert result.non_finite.tolist() == [False, True, False]


def test_texts_are_prepared_beside_the_scoring() -> None:
    """What `prepare` gives is what `score` works on, and its callback may end it."""
    engine = make_engine(RecordingModel())
    texts = ["央行降息", "体育", ""]
    prepared = engine.prepare(texts)
    assert engine.score_prepared(prepared).logits.tobytes() == engine.score(texts).logits.tobytes()

    def stop() -> None:
        raise InterruptedRunError("stopped by SIGTERM")

    with pytest.raises(InterruptedRunError):
        engine.prepare(["长" * 2**20, "短" * 2**20], stop)


@dataclass
class CountingGate:
    """Lets so many batches begin."""

    limit: int
    seconds: list[float] = field(default_factory=list)
    num_begun: int = 0

    def before(self) -> None:
        """Count, or refuse."""
        if self.num_begun == self.limit:
            raise TimeLimitError("stopped before the time limit")
        self.num_begun += 1

    def after(self, seconds: float) -> None:
        """Keep what a batch took."""
        self.seconds.append(seconds)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_gate_ends_the_scoring_and_loses_no_batch(tmp_path: Path, num_workers: int) -> None:
    """Batches that have begun are kept, whichever pass they are of: a second attempt scores exactly the others."""
    texts = [f"央行{number}" for number in range(9)]
    settings: dict[str, Any] = {"is_close": is_even, "max_batch_tokens": 30, "num_workers": num_workers}
    whole_model = CoarseModel()
    whole = make_engine(whole_model, **settings).score(texts)
    num_coarse, num_exact = len(whole_model.batches), len(whole_model.exact_batches)
    for usual, exact in [(count, 0) for count in range(num_coarse)] + [(99, count) for count in range(num_exact)]:
        path = tmp_path / f"{usual} {exact}.journal"

        def open_journal(plan_digest: bytes, path: Path = path) -> ShardJournal:
            return ShardJournal(path, plan_digest, interval_s=100)

        gates = BatchGates(CountingGate(usual), CountingGate(exact))
        first, second = CoarseModel(), CoarseModel()
        engine = make_engine(first, **settings)
        with pytest.raises(TimeLimitError):
            engine.score_prepared(engine.prepare(texts), open_journal, gates)
        assert (len(first.batches), len(first.exact_batches)) == (min(usual, num_coarse), exact)
        assert isinstance(gates.usual, CountingGate)
        assert len(gates.usual.seconds) == len(first.batches)
        assert min(gates.usual.seconds, default=0.0) >= 0.0
        resumed = make_engine(second, **settings).score(texts, open_journal)
        assert resumed.logits.tobytes() == whole.logits.tobytes()
        assert len(first.batches) + len(second.batches) == num_coarse
        assert len(first.exact_batches) + len(second.exact_batches) == num_exact


def test_a_gate_is_asked_for_texts_scored_alone() -> None:
    """A shard full of them takes as long as a whole one."""
    model = NanModel()
    model.nan_alone = True
    engine = make_engine(model)
    texts = ["央行", "☠坏", "体育"]
    gates = BatchGates(CountingGate(99), CountingGate(0))
    with pytest.raises(TimeLimitError):
        engine.score_prepared(engine.prepare(texts), gates=gates)
    assert isinstance(gates.usual, CountingGate)
    assert gates.usual.num_begun == 2
