"""Pairs from token ids: only the text is cut, and never more than it has to be."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import UsageError
from batchzs.pairs import MIN_TEXT_TOKENS, PairAssembler, PairLayout, TokenLists, check_hypotheses_fit
from tests.builders import PATIENT, split_pairs

CLS, SEP = 101, 102
TRUNCATE = ("head", "head_tail")
Truncate = Literal["head", "head_tail"]
IDS = st.lists(st.integers(min_value=1000, max_value=21_127), max_size=40)


def assembler(
    texts: list[list[int]], hypotheses: list[list[int]], max_length: int, truncate: Truncate = "head"
) -> PairAssembler:
    """Build an assembler over lists of ids."""
    return PairAssembler(
        TokenLists.from_lists(texts), TokenLists.from_lists(hypotheses), PairLayout.bert(CLS, SEP), max_length, truncate
    )


def naive_pair(text: list[int], hypothesis: list[int], max_length: int, truncate: Truncate) -> list[int]:
    """Build one pair as one would by hand."""
    room = max_length - 3 - len(hypothesis)
    if len(text) > room:
        tail = 0 if truncate == "head" else room // 2
        text = text[: room - tail] + text[len(text) - tail :]
    return [CLS, *text, SEP, *hypothesis, SEP]


@pytest.mark.parametrize(
    ("truncate", "kept"),
    [
        ("head", [11, 12, 13, 14, 15]),
        ("head_tail", [11, 12, 13, 18, 19]),  # 5 tokens: (5 + 1) // 2 = 3 from the head, 2 from the tail
    ],
)
def test_pair_worked_by_hand(truncate: Truncate, kept: list[int]) -> None:
    """A pair is [CLS] text [SEP] hypothesis [SEP], the second part of type 1 from the hypothesis's first token on.

    max_length 10, hypothesis of 2 tokens: 10 - 3 special ones - 2 = 5 of the text's 9 tokens stay.
    """
    pairs = assembler([[11, 12, 13, 14, 15, 16, 17, 18, 19]], [[51, 52]], 10, truncate).assemble(
        np.array([0]), np.array([0])
    )
    assert pairs.input_ids.tolist() == [CLS, *kept, SEP, 51, 52, SEP]
    assert pairs.token_type_ids.tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert pairs.lengths.tolist() == [10]
    assert (pairs.num_tokens, pairs.shape) == (10, "1 pairs x 10 tokens")
    assert pairs.input_ids.dtype == np.int64
    assert pairs.token_type_ids.dtype == np.int64


def test_another_layout_worked_by_hand() -> None:
    """RoBERTa's <s> text </s></s> hypothesis </s> has four special tokens; others have none before the text.

    max_length 10, hypothesis of 2 tokens: 10 - 4 special ones - 2 = 4 of the text's 6 tokens stay.
    """
    texts, hypotheses = TokenLists.from_lists([[11, 12, 13, 14, 15, 16], [17]]), TokenLists.from_lists([[51, 52]])
    roberta = PairLayout(((0, 0),), ((2, 0), (2, 0)), ((2, 0),), text_type=0, hypothesis_type=0)
    both = np.array([0, 1]), np.array([0, 0])
    pairs = PairAssembler(texts, hypotheses, roberta, 10, "head").assemble(*both)
    assert split_pairs(pairs) == [[0, 11, 12, 13, 14, 2, 2, 51, 52, 2], [0, 17, 2, 2, 51, 52, 2]]
    assert not pairs.token_type_ids.any()
    odd = PairLayout((), ((7, 3),), ((8, 2), (9, 3)), text_type=1, hypothesis_type=2)
    pairs = PairAssembler(texts, hypotheses, odd, 20, "head").assemble(*both)
    assert split_pairs(pairs) == [[11, 12, 13, 14, 15, 16, 7, 51, 52, 8, 9], [17, 7, 51, 52, 8, 9]]
    assert pairs.token_type_ids.tolist() == [*([1] * 6), 3, 2, 2, 2, 3, 1, 3, 2, 2, 2, 3]
    assert odd.num_special_tokens == 3


@PATIENT
@given(
    texts=st.lists(IDS, min_size=1, max_size=6),
    hypotheses=st.lists(st.lists(st.integers(1, 999), max_size=8), min_size=1, max_size=4),
    max_length=st.integers(min_value=12, max_value=50),
    truncate=st.sampled_from(TRUNCATE),
    data=st.data(),
)
def test_assembly_equals_a_naive_loop(
    texts: list[list[int]],
    hypotheses: list[list[int]],
    max_length: int,
    truncate: Truncate,
    data: st.DataObject,
) -> None:
    """Any ragged texts and hypotheses, in any order, give what a loop over Python lists gives."""
    cross = [(text, label) for text in range(len(texts)) for label in range(len(hypotheses))]
    cross = data.draw(st.permutations(cross))
    text_ids, label_ids = (np.array(ids) for ids in zip(*cross, strict=True))
    pairing = assembler(texts, hypotheses, max_length, truncate)
    pairs = pairing.assemble(text_ids, label_ids)
    expected = [naive_pair(texts[text], hypotheses[label], max_length, truncate) for text, label in cross]
    assert split_pairs(pairs) == expected
    assert pairs.lengths.tolist() == pairing.pair_lengths(text_ids, label_ids).tolist() == [*map(len, expected)]
    assert max(map(len, expected)) <= max_length
    types = np.split(pairs.token_type_ids, np.cumsum(pairs.lengths)[:-1])
    for (_, label), type_ids in zip(cross, types, strict=True):
        num_second = len(hypotheses[label]) + 1
        assert type_ids.tolist() == [0] * (len(type_ids) - num_second) + [1] * num_second


@pytest.mark.parametrize("truncate", TRUNCATE)
@pytest.mark.parametrize("num_tokens", [508, 509, 510, 511, 512, 513, 600])
def test_no_pair_is_longer_than_the_limit_and_no_hypothesis_is_cut(num_tokens: int, truncate: Truncate) -> None:
    """Cases Z1 and Z3: around the limit and well above it, the text alone gives way."""
    hypotheses = [[7], [*range(20, 31)]]
    pairing = assembler([[1000] * num_tokens], hypotheses, 512, truncate)
    pairs = split_pairs(pairing.assemble(np.array([0, 0]), np.array([0, 1])))
    assert [len(ids) for ids in pairs] == [min(512, num_tokens + 4), 512 if num_tokens >= 498 else num_tokens + 14]
    for ids, hypothesis in zip(pairs, hypotheses, strict=True):
        assert ids[ids.index(SEP) + 1 :] == [*hypothesis, SEP]


def test_a_text_is_truncated_where_the_longest_hypothesis_cuts_it() -> None:
    """`truncated` says that some pair did not see all of the text: room is 12 - 3 - 4 = 5 beside the longest one."""
    pairing = assembler([[1] * 5, [1] * 6, []], [[7], [7, 8, 9, 10]], 12)
    assert pairing.truncated_texts().tolist() == [False, True, False]


def test_an_empty_text_still_gives_a_pair() -> None:
    """What becomes of empty texts is the engine's decision; assembling does not fail on them."""
    pairs = assembler([[], [5]], [[7]], 20).assemble(np.array([0, 1, 0]), np.array([0, 0, 0]))
    assert split_pairs(pairs) == [[CLS, SEP, 7, SEP], [CLS, 5, SEP, 7, SEP], [CLS, SEP, 7, SEP]]


def test_no_pairs_at_all() -> None:
    """An empty batch is empty arrays."""
    pairs = assembler([[5]], [[7]], 20).assemble(np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    assert (pairs.num_tokens, pairs.lengths.tolist(), pairs.shape) == (0, [], "0 pairs x 0 tokens")


@PATIENT
@given(lists=st.lists(IDS, max_size=20))
def test_token_lists_keep_every_list(lists: list[list[int]]) -> None:
    """Flattening loses neither ids nor empty texts, and lengths are the lists' own, uncut."""
    tokens = TokenLists.from_lists(lists)
    assert [tokens.ids[a:b].tolist() for a, b in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)] == lists
    assert tokens.lengths.tolist() == [*map(len, lists)]
    assert tokens.ids.dtype == np.int32
    assert tokens.offsets.dtype == np.int64


def test_labels_whose_hypothesis_does_not_fit_are_named() -> None:
    """Case Z2: found before scoring, with the label, its length and what would fit.

    max_length 32: 32 - 3 special ones - 16 for the text = 13 tokens of hypothesis.
    """
    tokens = TokenLists.from_lists([[1] * 13, [1] * 14])
    with pytest.raises(UsageError) as caught:
        check_hypotheses_fit(tokens, ["体育", "科技体育财经"], 32, 3)
    message = str(caught.value)
    assert "label '科技体育财经': its hypothesis has 14 tokens" in message
    assert "shorten it to 13 tokens" in message
    assert "体育'" not in message.replace("科技体育财经'", "")
    check_hypotheses_fit(tokens, ["体育", "科技体育财经"], 33, 3)


def test_every_label_that_does_not_fit_is_named() -> None:
    """A user with three labels that are too long mends three, not one after the other."""
    tokens = TokenLists.from_lists([[1] * 40, [1], [1] * 50])
    with pytest.raises(UsageError) as caught:
        check_hypotheses_fit(tokens, ["长一", "短", "长二"], 32, 3)
    assert "长一" in str(caught.value)
    assert "长二" in str(caught.value)


def test_a_length_that_leaves_room_for_nothing_asks_for_zero_tokens() -> None:
    """max_length 16 leaves no room beside the text's share: the message does not ask for a negative number."""
    with pytest.raises(UsageError, match="shorten it to 0 tokens"):
        check_hypotheses_fit(TokenLists.from_lists([[1]]), ["科技"], 16, 3)


@PATIENT
@given(
    lengths=st.lists(st.integers(min_value=1, max_value=60), min_size=1, max_size=5),
    max_length=st.integers(min_value=16, max_value=80),
)
def test_what_passes_leaves_every_text_its_minimum(lengths: list[int], max_length: int) -> None:
    """After the check there is no pair that holds less than `MIN_TEXT_TOKENS` of a text that has them."""
    hypotheses = [[100 + number] * length for number, length in enumerate(lengths)]
    try:
        check_hypotheses_fit(
            TokenLists.from_lists(hypotheses), [f"标签{n}" for n in range(len(lengths))], max_length, 3
        )
    except UsageError:
        assert max(lengths) > max_length - 3 - MIN_TEXT_TOKENS
    else:
        kept = assembler([[1000] * 200], hypotheses, max_length).text_lengths(
            np.zeros(len(lengths), dtype=np.int64), np.arange(len(lengths))
        )
        assert kept.min() >= MIN_TEXT_TOKENS


def test_labels_that_are_one_to_the_model_are_refused() -> None:
    """A lower-casing vocabulary reads Apple and apple alike: the second label would tie with the first in every row."""
    with pytest.raises(UsageError, match="label 'apple': its hypothesis is the same to the model as that of 'Apple'"):
        check_hypotheses_fit(TokenLists.from_lists([[7, 8], [9], [7, 8]]), ["Apple", "梨", "apple"], 64, 3)
