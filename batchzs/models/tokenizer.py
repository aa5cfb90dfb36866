"""The checkpoint's own tokenizer, through the `tokenizers` library alone.

Of a BERT, `vocab.txt` is read as a WordPiece vocabulary, which is what ModelScope does; without one, and of every other
checkpoint, `tokenizer.json` is taken as it is. Texts are tokenised without special tokens, but a text that spells one
out, such as "[SEP]", gets that token, as in ModelScope and transformers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from tokenizers.implementations.bert_wordpiece import BertWordPieceTokenizer
from tokenizers.normalizers import BertNormalizer

from batchzs.errors import ModelError
from batchzs.models.checkpoint import EncoderConfig
from batchzs.models.pair_layout import read_layout
from batchzs.pairs import PairLayout, TokenLists

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchzs.models.checkpoint import Checkpoint
    from batchzs.models.padded_config import PaddedConfig

#: Texts handed to the tokenizer at once: enough for all its threads, few enough that its working objects, much larger
#: than the ids, stay small beside a shard.
TEXTS_PER_CALL = 2048
_SETTINGS = "tokenizer_config.json"
_SPECIAL_TOKENS = {"unk_token": "[UNK]", "sep_token": "[SEP]", "cls_token": "[CLS]"}


class CheckpointTokenizer:
    """A checkpoint's tokenizer: texts in, token ids out."""

    def __init__(self, tokenizer: Tokenizer, layout: PairLayout) -> None:
        self._tokenizer = tokenizer
        self.layout = layout

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that can come out."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def unknown_id(self) -> int | None:
        """The id of what the vocabulary does not have; None where every text has ids, as with single bytes for tokens.

        The vocabulary is written out to find it: ask once.
        """
        model = json.loads(self._tokenizer.to_str())["model"]
        if isinstance(model.get("unk_id"), int):  # Unigram has its place in the list
            return int(model["unk_id"])
        token = model.get("unk_token")
        return self._tokenizer.token_to_id(token) if isinstance(token, str) else None

    def encode(self, texts: Sequence[str]) -> TokenLists:
        """Tokenise each text whole, without special tokens.

        A lone surrogate, which is no character and which UTF-8 cannot hold, counts as unknown: it becomes U+FFFD.
        """
        lists: list[list[int]] = []
        for start in range(0, len(texts), TEXTS_PER_CALL):
            chunk = [_without_surrogates(text) for text in texts[start : start + TEXTS_PER_CALL]]
            lists.extend(e.ids for e in self._tokenizer.encode_batch_fast(chunk, add_special_tokens=False))
        return TokenLists.from_lists(lists)


def load_tokenizer(checkpoint: Checkpoint) -> CheckpointTokenizer:
    """Build the tokenizer of a checkpoint.

    Raises:
        ModelError: the vocabulary is damaged, belongs to another checkpoint, or lacks a BERT's [CLS], [SEP] or [UNK].
    """
    paths = {path.name: path for path in checkpoint.tokenizer_paths}
    settings = _read_settings(paths[_SETTINGS]) if _SETTINGS in paths else {}
    source = paths.get("vocab.txt") or paths["tokenizer.json"]
    if isinstance(checkpoint.network, EncoderConfig):
        result = _bert_tokenizer(source, settings)
    else:
        result = _padded_tokenizer(source, settings, checkpoint.network)
    if result.vocab_size > checkpoint.vocab_size:
        raise ModelError(
            f"{source}: holds {result.vocab_size} tokens, but config.json says vocab_size {checkpoint.vocab_size}: "
            "the files belong to different checkpoints"
        )
    return result


def _bert_tokenizer(source: Path, settings: dict[str, object]) -> CheckpointTokenizer:
    """A BERT's, of either file, whose special tokens are found by their names."""
    special = {key: _token_text(settings.get(key), usual) for key, usual in _SPECIAL_TOKENS.items()}
    tokenizer = _from_vocabulary(source, settings, special) if source.name == "vocab.txt" else _from_file(source)
    ids = {}
    for token in special.values():
        token_id = tokenizer.token_to_id(token)
        if token_id is None:
            raise ModelError(f"{source}: has no {token}: this is no vocabulary of a BERT checkpoint")
        ids[token] = token_id
    return CheckpointTokenizer(tokenizer, PairLayout.bert(ids[special["cls_token"]], ids[special["sep_token"]]))


def _padded_tokenizer(source: Path, settings: dict[str, object], network: PaddedConfig) -> CheckpointTokenizer:
    """Any other checkpoint's, whose special tokens are those that it puts around a pair.

    Token types are tokenizer.json's, unless the settings say that the network is given none. transformers 5 gives none
    to ALBERT, RemBERT and some others even where the settings say nothing, which transformers 4 did, and they were
    trained with them: https://github.com/huggingface/transformers/issues/48128
    """
    tokenizer = _from_file(source)
    _refuse_other_case(source, tokenizer, settings)
    layout = read_layout(tokenizer, source)
    names = settings.get("model_input_names")
    if isinstance(names, list) and "token_type_ids" not in names:
        layout = layout.without_types()
    if network.num_token_types is None and layout.has_types:
        # To some it would be relative segments, to others the number of a word to be added.
        raise ModelError(
            f"{source}: gives token types, but config.json does not say how many the network has (type_vocab_size): "
            f"say in {_SETTINGS} with model_input_names that it is given none, if that is how it was trained"
        )
    return CheckpointTokenizer(tokenizer, layout)


def _from_file(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as exc:  # tokenizers raises bare Exception for a file that it cannot parse
        raise ModelError(f"{path}: is no tokenizer file: {exc}") from exc
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _refuse_other_case(source: Path, tokenizer: Tokenizer, settings: dict[str, object]) -> None:
    """Do nothing where tokenizer.json treats capitals as tokenizer_config.json says.

    transformers goes by the latter, and the two may have been edited apart.
    """
    stated, normalizer = settings.get("do_lower_case"), tokenizer.normalizer
    if isinstance(normalizer, BertNormalizer) and isinstance(stated, bool) and normalizer.lowercase != stated:
        raise ModelError(
            f"{source}: has lowercase {normalizer.lowercase}, but {_SETTINGS} says do_lower_case {stated}: save the "
            "tokenizer again with transformers' save_pretrained, so that both say the same"
        )


def _read_settings(path: Path) -> dict[str, object]:
    try:
        settings = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as exc:  # RecursionError: thousands of brackets
        raise ModelError(f"{path}: cannot be read as JSON: {exc}") from exc
    if not isinstance(settings, dict):
        raise ModelError(f"{path}: found {type(settings).__name__} at the top, expected a JSON object")
    return settings


def _from_vocabulary(path: Path, settings: dict[str, object], special: dict[str, str]) -> Tokenizer:
    # Lines end in \n or \r\n and nothing else: U+2028 and its like are tokens in real vocabularies.
    lines = path.read_bytes().decode("utf-8", errors="surrogateescape").replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    vocab = {_without_surrogates(line): index for index, line in enumerate(lines)}
    lowercase = settings.get("do_lower_case", True) is not False
    strip_accents = settings.get("strip_accents")
    for token in special.values():  # without them the tokenizer refuses to be built, in words of its own
        if token not in vocab:
            raise ModelError(f"{path}: has no {token}: this is no vocabulary of a BERT checkpoint")
    wordpiece = BertWordPieceTokenizer(
        vocab=vocab,
        unk_token=special["unk_token"],
        sep_token=special["sep_token"],
        cls_token=special["cls_token"],
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True) is not False,
        strip_accents=strip_accents if isinstance(strip_accents, bool) else None,
        lowercase=lowercase,
    )
    return Tokenizer.from_str(wordpiece.to_str())


def _token_text(value: object, usual: str) -> str:
    """A special token's text: plain, or under "content" as transformers also writes it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else usual


def _without_surrogates(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
    return text
