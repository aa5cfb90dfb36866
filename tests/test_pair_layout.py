"""A layout is read off the tokenizer's own pairs, and a tokenizer whose pairs are more than their parts is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from batchzs.errors import ModelError
from batchzs.models.pair_layout import read_layout
from batchzs.pairs import PairLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = Path("模型/tokenizer.json")
SPECIAL = {"<s>": 0, "</s>": 1, "<n>": 2}
VOCABULARY = {**SPECIAL, "<unk>": 3, "▁": 4, "1": 5, "a": 6, "label": 7}


def words(pair: str | None, vocabulary: dict[str, int] | None = None) -> Tokenizer:
    """Make a tokenizer of words, nearly all of them unknown, with a template for pairs."""
    tokenizer = Tokenizer(models.WordLevel(vocabulary or VOCABULARY, unk_token="<unk>"))  # noqa: S106 - a token
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if pair is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair=pair, special_tokens=list(SPECIAL.items())
        )
    return tokenizer


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("<s> $A </s> $B:1 </s>:1", PairLayout.bert(cls_id=0, sep_id=1)),
        ("<s> $A </s> </s> $B </s>", PairLayout(((0, 0),), ((1, 0), (1, 0)), ((1, 0),), 0, 0)),
        ("$A </s> $B </s>", PairLayout((), ((1, 0),), ((1, 0),), 0, 0)),
        ("$A:0 <n>:2 $B:1", PairLayout((), ((2, 2),), (), 0, 1)),
        ("<s>:2 $A:0 </s>:0 $B:1 </s>:1 <n>:3", PairLayout(((0, 2),), ((1, 0),), ((1, 1), (2, 3)), 0, 1)),
    ],
)
def test_layouts_are_read_as_they_are_written(pair: str, expected: PairLayout) -> None:
    """BERT's, RoBERTa's, T5's, and odd ones."""
    assert read_layout(words(pair), SOURCE) == expected
    assert expected.has_types == (":" in pair)
    assert not expected.without_types().has_types


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (None, "puts nothing between the two texts of a pair"),
        ("<s> $A $B </s>", "puts nothing between the two texts of a pair"),
        ("<s> $B </s> $A </s>", "does not put the first text of a pair before the second"),
    ],
)
def test_layouts_that_make_no_pair_are_refused(pair: str | None, message: str) -> None:
    """A missing template would run two sentences into one."""
    with pytest.raises(ModelError) as caught:
        read_layout(words(pair), SOURCE)
    assert str(caught.value).startswith(f"{SOURCE}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_a_mark_before_each_text_is_no_obstacle(scheme: str) -> None:
    """SentencePiece's ▁ comes before both texts of a pair, as it comes before each alone."""
    tokenizer = words("<s> $A </s> $B:1 </s>:1")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    assert read_layout(tokenizer, SOURCE) == PairLayout.bert(cls_id=0, sep_id=1)


def test_a_pair_that_is_more_than_its_parts_is_refused() -> None:
    """Were the second text tokenised otherwise behind a first one, its ids alone would be wrong in a pair."""
    tokenizer = words("<s> $A </s> $B:1 </s>:1")
    tokenizer.normalizer = normalizers.Prepend("a ")

    class Alone:
        """The tokenizer, which alone does not prepend."""

        def encode(self, text: str, pair: str | None = None, *, add_special_tokens: bool = True) -> object:
            """Encode a text or a pair."""
            if pair is None:
                text = text.removeprefix("(")
            return tokenizer.encode(text, pair, add_special_tokens=add_special_tokens)

    with pytest.raises(ModelError, match="tokenises a text otherwise alone than in a pair"):
        read_layout(Alone(), SOURCE)  # type: ignore[arg-type]


def test_probes_that_a_vocabulary_does_not_know_are_passed_over() -> None:
    """Without a token for the unknown, what is unknown vanishes; one pair that is known is enough."""

    def bpe(known: Sequence[str]) -> Tokenizer:
        vocabulary = {**SPECIAL, **{one: index + 3 for index, one in enumerate(known)}}
        tokenizer = Tokenizer(models.BPE(vocabulary, []))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=list(SPECIAL.items())
        )
        return tokenizer

    assert read_layout(bpe("央财"), SOURCE) == PairLayout.bert(cls_id=0, sep_id=1)
    with pytest.raises(ModelError, match="has no token for plain English and Chinese"):
        read_layout(bpe("ж"), SOURCE)
