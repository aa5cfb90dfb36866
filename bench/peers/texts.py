"""Texts and labels to measure with: headlines and bodies, made of the sample news' words and sentences.

Two sets, the same ones for a seed whenever and wherever they are made:

headlines   about 33 tokens a pair, all of them short
bodies      about 110 tokens a pair, with a long tail up to 512 (a few are longer, and are cut)

No text holds a character on which two tokenizers differ (new emoji, say), and no two texts of a set are equal: batchzs
would score them once, which no peer does.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from sample_data.news_sentences import NewsWriter, Part
from sample_data.news_topics import TOPICS

TEMPLATE = "这篇文章的标题是{}"
NEWS_LABELS = ("文化", "体育", "娱乐", "财经", "家居", "汽车", "教育", "科技", "军事")
#: Of a log-normal distribution of a body's characters: the median, and the spread that gives the long tail.
_MEDIAN_CHARS, _SPREAD = 66, 0.95
_SHORTEST_CHARS, _LONGEST_CHARS = 12, 560

MakeText = Callable[[NewsWriter, random.Random], str]


def _headline(writer: NewsWriter, draw: random.Random) -> str:
    topic = draw.choice(TOPICS)
    text = writer.headline(topic)
    # News feeds put a section or a second thought beside some of their headlines.
    return f"{text}，{writer.phrase(topic)}" if draw.random() < 0.2 else text


def _body(writer: NewsWriter, draw: random.Random) -> str:
    goal = round(_MEDIAN_CHARS * draw.lognormvariate(0.0, _SPREAD))
    goal = min(max(goal, _SHORTEST_CHARS), _LONGEST_CHARS)
    return writer.body(draw.choice(TOPICS), goal)[:goal]


TEXT_SETS: dict[str, MakeText] = {"headlines": _headline, "bodies": _body}


def make_texts(name: str, num_texts: int, seed: int) -> list[str]:
    """Make a set of different texts.

    Args:
        name: one of `TEXT_SETS`.
        num_texts: how many.
        seed: of the random choices.
    """
    # A text set of its own seed each: adding one changes no other.
    writer = NewsWriter(seed + sorted(TEXT_SETS).index(name), Part.HELD_OUT)
    draw = random.Random(f"{name} {seed}")
    texts: dict[str, None] = {}
    while len(texts) < num_texts:
        texts.setdefault(TEXT_SETS[name](writer, draw).strip())
    return list(texts)


def make_labels(num_labels: int) -> list[str]:
    """The nine news labels; where more are asked for, the topics' other names and the things they write about.

    Raises:
        ValueError: so many different ones there are not.
    """
    more = [name for topic in TOPICS for name in topic.synonyms]
    more += [name for topic in TOPICS for name in topic.object]
    labels = list(dict.fromkeys([*NEWS_LABELS, *more]))
    if not 2 <= num_labels <= len(labels):
        raise ValueError(f"{num_labels} labels asked for, 2 to {len(labels)} are there")
    return labels[:num_labels]


def deal(lengths: list[int], num_texts: int, num_turns: int, seed: int) -> list[list[int]]:
    """Deal texts into turns that are alike: one text from every part of the range of lengths in each.

    Args:
        lengths: of all texts.
        num_texts: texts a turn.
        num_turns: how many turns; texts come again where they run out.
        seed: of the dealing.

    Returns:
        For each turn the indices of its texts, in random order.

    >>> deal([5, 1, 9, 2, 8, 6], 3, 2, seed=0)
    [[1, 2, 0], [3, 4, 5]]
    """
    draw = random.Random(seed)
    ranked = sorted(range(len(lengths)), key=lambda index: lengths[index])
    parts = [ranked[len(ranked) * i // num_texts : len(ranked) * (i + 1) // num_texts] for i in range(num_texts)]
    for part in parts:
        draw.shuffle(part)
    turns = [[part[turn % len(part)] for part in parts] for turn in range(num_turns)]
    for turn in turns:
        draw.shuffle(turn)
    return turns
