"""What the sample model learns from: its vocabulary, its training texts, and the pairs made of them.

A pair is a text (the premise) and a label in a wording (the hypothesis). Its class is entailment (0) when the label
names the text's topic, contradiction (2) when it names another topic, and neutral (1) when the label is no topic of
these news or the text has none. Only texts of the training part of `news_sentences` are used.
"""

import random
import string
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import BertWordPieceTokenizer

from sample_data.news_sentences import NewsWriter, Part
from sample_data.news_topics import TOPICS, Topic

_NUM_EXAMPLES = 12_000
SEED = 20240202
MAX_LENGTH = 512
TEMPLATE = "这篇文章的标题是{}"
NO_TOPIC = len(TOPICS)  # the index, beside those of TOPICS, of a text or label that is none of them
_WORDINGS = (TEMPLATE, TEMPLATE, "{}", "{}", "这条新闻的主题是{}", "这是一篇关于{}的报道", "本文属于{}类", "类别：{}")
_UNRELATED = (
    *("天气", "美食", "星座", "彩票", "宠物", "园艺", "航班", "交通", "旅游", "健康", "法律", "社会", "房产", "农业"),
    *("宗教", "占卜", "钓鱼", "菜谱", "招聘", "寻人", "气象", "地震", "环保", "公益", "其他", "历史", "时政", "游戏"),
)
_HYPOTHESES_PER_TEXT = 5
_CLS, _SEP = 101, 102  # their usual ids in a Chinese BERT vocabulary


@dataclass(frozen=True, slots=True)
class Example:
    """A training text and its topic; `None` for a text about nothing in particular."""

    text: str
    topic: Topic | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A text's token ids, a hypothesis, their class, and what each of the two is about (an index into TOPICS)."""

    text_ids: list[int]
    hypothesis: str
    kind: int = 0
    text_topic: int = NO_TOPIC
    hypothesis_topic: int = NO_TOPIC


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded pairs, (pairs, longest) int64, and what is known of each pair, (pairs,) int64."""

    input_ids: torch.Tensor
    token_type_ids: torch.Tensor
    attention_mask: torch.Tensor
    kinds: torch.Tensor
    text_topics: torch.Tensor
    hypothesis_topics: torch.Tensor


def training_examples() -> list[Example]:
    """Return the texts that the model is trained on: headlines, phrases, bodies, and texts without a topic.

    Among the last are random characters, so that characters which the sample news never use mean no topic.
    """
    writer = NewsWriter(SEED, Part.TRAIN)
    chars = _common_characters()
    return [_training_example(writer, chars) for _ in range(_NUM_EXAMPLES)]


def _common_characters() -> list[str]:
    cells = (bytes((row, cell)) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF))
    return [char for char in (cell.decode("gb2312", errors="ignore") for cell in cells) if char]


def _training_example(writer: NewsWriter, chars: list[str]) -> Example:
    rng = writer.rng
    kind, topic = rng.random(), rng.choice(TOPICS)
    if kind < 0.05:
        return Example("".join(rng.choices(chars, k=rng.randrange(30))), None)
    if kind < 0.1:
        return Example("".join(writer.neutral() for _ in range(rng.choice((1, 1, 1, 2, 4)))), None)
    if kind < 0.2:
        return Example(writer.phrase(topic), topic)
    if kind < 0.25:
        return Example(writer.body(topic, 100 + int(800 * rng.random() ** 3)), topic)
    headline = writer.headline(topic)
    return Example(writer.decorate(headline) if rng.random() < 0.25 else headline, topic)


def vocabulary(texts: Sequence[str]) -> list[str]:
    """Return the tokens in the order of their ids, the special ones where a Chinese BERT has them.

    Characters are the 3,755 of GB2312's first level, those that the texts and hypotheses need beyond them, and
    punctuation. Letters, digits and emoji come with their `##` forms, so that English words and numbers are spelt
    rather than unknown. Emoji younger than the Chinese BERT vocabulary stay unknown, as to published checkpoints.

    Args:
        texts: The training texts.

    Returns:
        The lines of `vocab.txt`.
    """
    letters = string.digits + string.ascii_lowercase
    spelt = [*letters, *(chr(ord(char) + 0xFEE0) for char in letters)]
    synonyms = (name for topic in TOPICS for name in topic.synonyms)
    needed = sorted(set("".join([*texts, *_WORDINGS, *_UNRELATED, *synonyms]).lower()))
    chars = dict.fromkeys(
        [*string.punctuation, *spelt, *_common_characters(), *"，。、；：？！…—·“”‘’（）《》【】％", *needed]
    )
    known = [char for char in chars if unicodedata.category(char)[0] in "LNPS" and ord(char) < 0x1FA70]
    suffixed = [char for char in known if char in spelt or unicodedata.category(char) == "So"]
    special = ["[PAD]", *(f"[unused{number}]" for number in range(1, 100)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*special, *known, *("##" + char for char in suffixed)]


class PairMaker:
    """Makes padded batches of pairs with the vocabulary of a model directory."""

    def __init__(self, vocab: Path) -> None:
        self._tokenizer = BertWordPieceTokenizer(str(vocab), lowercase=True)
        self._hypotheses: dict[str, list[int]] = {}

    def token_ids(self, text: str) -> list[int]:
        """Return a text's token ids, without special tokens and uncut."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """Pad pairs into one batch; a text that leaves no room for its hypothesis is cut."""
        rows, first_lengths = [], []
        for pair in pairs:
            if pair.hypothesis not in self._hypotheses:
                self._hypotheses[pair.hypothesis] = self.token_ids(pair.hypothesis)
            second = [*self._hypotheses[pair.hypothesis], _SEP]
            first = [_CLS, *pair.text_ids[: MAX_LENGTH - 2 - len(second)], _SEP]
            rows.append(torch.tensor(first + second))
            first_lengths.append(len(first))
        input_ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = (input_ids != 0).long()
        in_second = torch.arange(input_ids.shape[1]) >= torch.tensor(first_lengths)[:, None]
        return Batch(
            input_ids=input_ids,
            token_type_ids=in_second.long() * mask,
            attention_mask=mask,
            kinds=torch.tensor([pair.kind for pair in pairs]),
            text_topics=torch.tensor([pair.text_topic for pair in pairs]),
            hypothesis_topics=torch.tensor([pair.hypothesis_topic for pair in pairs]),
        )

    def training_batches(self, examples: Sequence[Example], rng: random.Random, max_tokens: int) -> Iterator[Batch]:
        """Yield all examples once in batches of similar lengths, padded to at most `max_tokens`, in random order."""
        tokenised = [(self.token_ids(example.text), example.topic) for example in examples]
        tokenised.sort(key=lambda item: (len(item[0]), rng.random()))
        groups: list[list[tuple[list[int], Topic | None]]] = [[]]
        for item in tokenised:
            length = min(len(item[0]) + 16, MAX_LENGTH)  # 16: the longest hypothesis and the special tokens
            if groups[-1] and (len(groups[-1]) + 1) * _HYPOTHESES_PER_TEXT * length > max_tokens:
                groups.append([])
            groups[-1].append(item)
        rng.shuffle(groups)
        for group in groups:
            yield self.batch([pair for text_ids, topic in group for pair in _pairs(text_ids, topic, rng)])


def _pairs(text_ids: list[int], topic: Topic | None, rng: random.Random) -> list[Pair]:
    """Pair a text with labels in one wording: its own, three or four of other topics, and one that is no topic."""
    wording = rng.choice(_WORDINGS)
    text_topic = NO_TOPIC if topic is None else TOPICS.index(topic)
    others = rng.sample([other for other in TOPICS if other is not topic], _HYPOTHESES_PER_TEXT - 1)
    topics = others if topic is None else [topic, *others[1:]]
    pairs = [Pair(text_ids, wording.format(rng.choice(_UNRELATED)), 1, text_topic)]
    for named in topics:
        label = rng.choice(named.synonyms) if rng.random() < 0.15 else named.name
        kind = 1 if topic is None else 0 if named is topic else 2
        pairs.append(Pair(text_ids, wording.format(label), kind, text_topic, TOPICS.index(named)))
    return pairs
