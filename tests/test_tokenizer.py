"""The checkpoint's tokenizer gives the ids of transformers' BertTokenizer, and refuses files that fit nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import ModelError
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.tokenizer import TEXTS_PER_CALL, CheckpointTokenizer, load_tokenizer
from batchzs.pairs import PairLayout
from tests.builders import PATIENT, VOCABULARY, network_config, odd_folder, write_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: The pieces that texts are made of: what the vocabulary knows, what it does not, and what is dropped or split.
PIECES = st.one_of(
    st.sampled_from(
        [
            *("科技", "央行降息", "这篇文章的标题是", "龘", "hello", "HELLO", "Café", "news bank", "rate10", "cabal"),
            *("[SEP]", "[CLS]", "[UNK]", "[MASK]", "[PAD]", "[sep]", "[SEP", "##a"),
            *("１２３ＡＢＣ", "，。！？", "（）", "...", "--", "é", "e\u0301", "İ", "ß", "ﬁ", "가", "ひらがな"),
            *(" ", "\t", "\n", "\r\n", "\u3000", "\xa0", "\u2028", "\u200b", "\ufeff", "\0", "\x07", "\ufffd", "\x7f"),
            *("😀", "👨‍👩‍👧", "𠮷", "🇨🇳"),
        ]
    ),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=6),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def write_tokenizer_files(folder: Path, **settings: Any) -> None:
    """Write what surrounds a vocabulary in a checkpoint; the weights may be anything here."""
    (folder / "config.json").write_text(json.dumps(network_config()), encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def load(folder: Path) -> CheckpointTokenizer:
    """Load a checkpoint's tokenizer."""
    return load_tokenizer(read_checkpoint(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint's folder with all but a vocabulary."""
    folder = odd_folder(tmp_path)
    write_tokenizer_files(folder)
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[CheckpointTokenizer, Callable[[str], list[int]]]:
    """Our tokenizer and transformers', from the same vocab.txt."""
    from transformers import BertTokenizer

    folder = odd_folder(tmp_path_factory.mktemp("tokenizer"))
    write_tokenizer_files(folder)
    vocabulary = write_vocabulary(folder)
    reference = BertTokenizer(vocab=str(vocabulary))
    return load(folder), lambda text: list(reference(text, add_special_tokens=False)["input_ids"])


def test_ids_worked_by_hand(folder: Path) -> None:
    """Chinese characters one by one, words in pieces, capitals and accents dropped, the unknown as [UNK]."""
    write_vocabulary(folder)
    tokenizer = load(folder)
    ids = tokenizer.encode(["科技Ca\u0301 [SEP]龘"]).ids.tolist()
    assert [VOCABULARY[number] for number in ids] == ["科", "技", "c", "##a", "[SEP]", "[UNK]"]
    assert (tokenizer.layout, tokenizer.vocab_size) == (PairLayout.bert(cls_id=2, sep_id=3), len(VOCABULARY))


@PATIENT
@given(text=TEXTS)
def test_equals_transformers(both: tuple[CheckpointTokenizer, Callable[[str], list[int]]], text: str) -> None:
    """Any mixture of scripts, white space, control characters and spelled-out special tokens gives the same ids."""
    tokenizer, reference = both
    assert tokenizer.encode([text]).ids.tolist() == reference(text)


def test_texts_stay_apart_and_whole(both: tuple[CheckpointTokenizer, Callable[[str], list[int]]]) -> None:
    """More texts than one call takes, some empty, come out in their order and uncut."""
    texts = [f"{number}，" * (number % 5) for number in range(TEXTS_PER_CALL + 10)] + ["央" * 3000]
    tokens = both[0].encode(texts)
    assert tokens.lengths.tolist() == [len(both[0].encode([text]).ids) for text in texts]
    assert tokens.lengths[-1] == 3000
    assert len(both[0].encode([]).lengths) == 0


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\ud83d\ude00", "科\udfff"])
def test_lone_surrogates_do_not_raise(folder: Path, text: str) -> None:
    """JSON may hold half a character; it is unknown, and its neighbours are what they are without it."""
    write_vocabulary(folder)
    tokenizer = load(folder)
    repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert tokenizer.encode([text]).ids.tolist() == tokenizer.encode([repaired]).ids.tolist()


def test_texts_without_tokens_have_length_0(folder: Path) -> None:
    """Case Z8: empty and invisible-only texts are seen by their number of tokens; "NA" is a text."""
    write_vocabulary(folder)
    empty = ["", "  ", "\u200b\ufeff", "\u3000\n", "\0", "\xa0\u2028", "\u00ad\u2060", "\x07\x1b", "\u0301", "\ufffd"]
    lengths = load(folder).encode([*empty, "NA", "null"]).lengths.tolist()
    assert lengths[: len(empty)] == [0] * len(empty)
    assert min(lengths[len(empty) :]) > 0


def test_a_vocabulary_with_windows_line_ends_is_the_same(folder: Path, tmp_path: Path) -> None:
    r"""A \r at the end of every token would make every text unknown."""
    write_vocabulary(folder, newline="\r\n")
    plain = tmp_path / "plain"
    plain.mkdir()
    write_tokenizer_files(plain)
    write_vocabulary(plain)
    text = ["科技 hello, bank10"]
    assert load(folder).encode(text).ids.tolist() == load(plain).encode(text).ids.tolist()


def test_a_line_separator_is_a_token_and_no_line_end(folder: Path) -> None:
    """Real vocabularies hold U+2028: lines end where the file says so and not where Unicode would."""
    tokens = [*VOCABULARY[:10], "\u2028", *VOCABULARY[11:]]
    write_vocabulary(folder, tokens)
    ids = load(folder).encode([VOCABULARY[11]]).ids.tolist()
    assert ids == [11]


def test_a_vocabulary_without_a_last_line_end_is_whole(folder: Path) -> None:
    """The last token counts with or without a line end behind it."""
    (folder / "vocab.txt").write_bytes("\n".join(VOCABULARY).encode())
    assert load(folder).vocab_size == len(VOCABULARY)


def test_case_is_kept_where_the_checkpoint_says_so(folder: Path) -> None:
    """do_lower_case and tokenize_chinese_chars are the checkpoint's to set."""
    write_vocabulary(folder)
    write_tokenizer_files(folder, do_lower_case=False)
    assert load(folder).encode(["HELLO"]).ids.tolist() == [1]
    write_tokenizer_files(folder, tokenize_chinese_chars=False)
    assert load(folder).encode(["科技"]).ids.tolist() == [1]


def test_special_tokens_may_be_named_otherwise(folder: Path) -> None:
    """tokenizer_config.json may say which tokens separate, plainly or as transformers' objects."""
    write_vocabulary(folder, ["[PAD]", "<unk>", "<s>", "</s>", "科"])
    write_tokenizer_files(folder, unk_token="<unk>", cls_token={"content": "<s>"}, sep_token="</s>")  # noqa: S106 - tokens
    tokenizer = load(folder)
    assert tokenizer.layout == PairLayout.bert(cls_id=2, sep_id=3)
    assert tokenizer.encode(["科龘"]).ids.tolist() == [4, 1]


def test_tokenizer_json_is_used_where_there_is_no_vocabulary(folder: Path) -> None:
    """The format of transformers itself gives the same ids, and truncation or padding set in it are not applied."""
    write_vocabulary(folder)
    expected = load(folder).encode(["科技 hello [SEP]", "体育" * 20]).ids.tolist()
    from transformers import BertTokenizer

    tokenizer = BertTokenizer(vocab=str(folder / "vocab.txt")).backend_tokenizer
    tokenizer.enable_truncation(max_length=8)
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").unlink()
    assert load(folder).encode(["科技 hello [SEP]", "体育" * 20]).ids.tolist() == expected


def test_a_vocabulary_larger_than_the_network_is_refused(folder: Path) -> None:
    """An id beyond the embedding's rows would end the run in the middle: the files belong to different checkpoints."""
    write_vocabulary(folder, [*VOCABULARY, "多"])
    with pytest.raises(ModelError, match=rf"vocab\.txt: holds {len(VOCABULARY) + 1} tokens, but config\.json says"):
        load(folder)


def test_a_vocabulary_smaller_than_the_network_is_fine(folder: Path) -> None:
    """Embeddings are often padded to a round number of rows."""
    write_vocabulary(folder, VOCABULARY[:-3])
    assert load(folder).vocab_size == len(VOCABULARY) - 3


@pytest.mark.parametrize("token", ["[UNK]", "[CLS]", "[SEP]"])
def test_a_vocabulary_without_a_special_token_is_refused(folder: Path, token: str) -> None:
    """The message names the file and the token."""
    write_vocabulary(folder, [other for other in VOCABULARY if other != token])
    with pytest.raises(ModelError) as caught:
        load(folder)
    assert f"{folder / 'vocab.txt'}: has no {token}" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00garbage", b"{}"])
def test_a_damaged_vocabulary_is_refused(folder: Path, content: bytes) -> None:
    """An empty file, bytes that are no text, another format: a refusal and no traceback."""
    (folder / "vocab.txt").write_bytes(content)
    with pytest.raises(ModelError, match="this is no vocabulary of a BERT checkpoint"):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model": 1}', b"\xff\xfe"])
def test_a_damaged_tokenizer_json_is_refused(folder: Path, content: bytes) -> None:
    """Whatever tokenizers makes of it, the user reads which file is damaged."""
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match="is no tokenizer file"):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b'"text"', b"{"])
def test_a_damaged_tokenizer_config_is_refused(folder: Path, content: bytes) -> None:
    """Settings that cannot be read are not taken for absent: they decide ids."""
    write_vocabulary(folder)
    (folder / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizer_config\.json"):
        load(folder)
