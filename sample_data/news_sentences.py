"""Write made-up Chinese news texts: headlines, bodies, and sentences about nothing in particular.

A text is a pattern filled with words. Every pair of a pattern and a topic word belongs to one of two parts: `TRAIN`,
which the sample model learns from, or `HELD_OUT`, which it never sees. A third of the words that fit a pattern's slot
are held out, another third for each pattern, so that a held-out text is made of known words and known patterns that
training never saw together. Patterns without a topic word and neutral words (cities, dates, numbers) occur in both.

Texts depend on the seed alone. The words are those of `news_topics`; nothing is copied from real news.
"""

import random
import string
import zlib
from enum import Enum
from functools import cache

from sample_data.news_topics import TOPICS, Topic

HEADLINE_LENGTHS = (6, 40)
BODY_LENGTHS = (100, 900)
_LONGEST_SENTENCE = 80  # no filled body pattern is longer, so a body that stops growing in time stays within its limit


class Part(Enum):
    """Which of a pattern's words to use: those for training, or those held out."""

    TRAIN = "train"
    HELD_OUT = "held out"


_HEADLINES = (
    "{actor}{action}",
    "{city}{actor}{action}",
    "{actor}{action}，{object}成焦点",
    "{object}亮相{city}{place}",
    "{actor}谈{object}：还有很长的路要走",
    "{place}里的{object}，为何让人念念不忘",
    "{year}年{object}盘点：{number}个变化值得关注",
    "{object}引热议，{actor}这样回应",
    "走进{city}{place}：{object}的故事",
    "{month}月起，{actor}将{action}",
    "{actor}与{object}的{number}天",
    "图说：{date}，{actor}在{place}{action}",
    "{number}人齐聚{place}，只为{object}",
    "深度 | {object}从哪里来，到哪里去",
    "{actor}：{object}没有捷径可走",
    "独家：{actor}{action}始末",
    "一文看懂{object}",
    "{object}热度上升{percent}，{actor}{action}",
)
_BODIES = (
    "{date}，{actor}在{city}{place}{action}，吸引了{number}多人到场。",
    "据{media}报道，{object}近期受到广泛关注，{actor}对此作出回应。",
    "“{object}并不容易，”{actor}告诉记者，“我们准备了{small}年。”",
    "记者在{place}看到，{object}前围满了人，{actor}忙得停不下来。",
    "谈到{object}，{actor}坦言压力不小，但信心更足。",
    "{actor}{action}的消息传开后，{city}不少市民前来打听。",
    "在{place}，{actor}花了整整{small}个月研究{object}。",
    "与{year}年相比，{object}的变化有目共睹。",
    "{object}究竟难在哪里？{actor}给出了自己的答案。",
    "下一步，{actor}计划继续{action}，把经验带到{city}。",
)
_MIXED = (
    "{headline}，现场还有{other}",
    "{headline}，与{other}无关",
    "不谈{other}，{headline}",
    "先别管{other}！{headline}",
)
# What a reader may type instead of news: a few words without a sentence around them.
_PHRASES = ("{actor}", "{object}", "{object}{object2}", "{place} {object}", "{action}", "{actor} {object}")
_NEUTRAL = (
    "{date}，记者从有关方面了解到，相关工作仍在推进之中。",
    "{city}的天空下着小雨，街上的行人不多。",
    "截至{date}下午，现场秩序良好。",
    "对于外界的疑问，负责人表示会尽快答复。",
    "“我觉得挺好的，”一位姓王的先生说。",
    "有人赞成，也有人反对，大家说法不一。",
    "{media}将持续关注，后续消息请留意本报。",
    "这件事还要从{year}年说起。",
    "整个过程持续了大约{number}分钟。",
    "据介绍，类似的情况在{city}等地也出现过。",
    "目前，各项准备已经就绪，具体时间另行通知。",
    "记者 李明 {city}报道",
    "（本报讯）{date}，一切如常。",
    "统计显示，{percent}的受访者表示满意。",
    "午后的阳光照进来，几个人坐在一起聊天。",
    "更多内容，请扫描二维码查看。",
    "事情的经过并不复杂，结果却出乎意料。",
    "{city}与{city2}两地相距{number}公里，往来十分方便。",
    "此前的{month}月，也有人提出过同样的建议。",
    "编辑：小周　校对：小吴",
    "昨天晚上他们在{city}住了一夜。",
    "“时间过得真快，”她说，“一转眼{small}年了。”",
)
_VALUES = {
    "city": """
    北京 上海 广州 深圳 成都 杭州 武汉 西安 南京 重庆 天津 苏州 长沙 青岛 郑州 昆明 哈尔滨 厦门 兰州 贵阳 合肥
    济南 沈阳 福州""",
    "media": "本报 新华社 当地媒体 晚报 都市快报 广播电台 多家网站 记者站",
}
_CITIES, _MEDIA = (tuple(_VALUES[name].split()) for name in ("city", "media"))
_OLD_EMOJI = ("🔥", "😀", "👍", "🎉", "❤️", "👏", "😂", "📢", "✅", "👨‍👩‍👧", "🇨🇳", "1️⃣", "⭐", "💡")
_NEW_EMOJI = ("🫠", "🫡", "🫶", "🫰", "🫨", "🩷", "🩵", "🪭", "🫷", "🪿")  # Unicode 14 (the first four) and 15
_ENGLISH = (" | Weekly Review", "（Top 10）", " - Live Update", " #hot", " Q&A", "（Part 2 of 3）", " via Newsroom")
_FULL_WIDTH = {ord(char): ord(char) + 0xFEE0 for char in string.ascii_letters + string.digits + "!?:%.|"}


@cache
def words_for(pattern: str, topic: Topic, slot: str, part: Part) -> tuple[str, ...]:
    """Return the topic's words that a pattern may use in one part.

    Args:
        pattern: The pattern with its slots unfilled.
        topic: The topic whose words fill it.
        slot: actor, action, object or place.
        part: The part that the pairs of pattern and word must belong to.

    Returns:
        A third of the slot's words for the held-out part, the others for training.
    """
    ranked = sorted(topic.words(slot), key=lambda word: (zlib.crc32(f"{pattern}/{word}".encode()), word))
    num_held_out = len(ranked) // 3
    return tuple(ranked[:num_held_out] if part is Part.HELD_OUT else ranked[num_held_out:])


class NewsWriter:
    """Writes texts of one part; the same seed gives the same texts."""

    def __init__(self, seed: int, part: Part) -> None:
        self.rng = random.Random(seed)
        self.part = part

    def headline(self, topic: Topic) -> str:
        """Write a headline of 6 to 40 characters: a pattern, or two, or one that mentions another topic in passing."""
        while True:
            text = self._sentence(_HEADLINES, topic.headlines, topic)
            kind = self.rng.random()
            if kind < 0.15:
                text += "；" + self._sentence(_HEADLINES, topic.headlines, topic)
            elif kind < 0.2:
                text = self._mix(text, topic)
            if HEADLINE_LENGTHS[0] <= len(text) <= HEADLINE_LENGTHS[1]:
                return text

    def body(self, topic: Topic, num_chars: int) -> str:
        """Write a body of about `num_chars` characters, in sentences, about half of them on the topic.

        Args:
            topic: What the body is about.
            num_chars: The length to aim at; the body ends with the sentence that reaches it.

        Returns:
            A body of 100 to 900 characters, with line breaks between its paragraphs.
        """
        shortest, longest = BODY_LENGTHS
        goal = min(max(num_chars, shortest), longest - _LONGEST_SENTENCE)
        text = ""
        while len(text) < goal:
            if self.rng.random() < 0.55:
                text += self._sentence(_BODIES, topic.bodies, topic)
            else:
                text += self.neutral()
            if self.rng.random() < 0.1 and len(text) < goal:
                text += "\n"
        return text

    def phrase(self, topic: Topic) -> str:
        """Write a few of the topic's words, without a sentence around them."""
        return self._fill(self.rng.choice(_PHRASES), topic)

    def neutral(self) -> str:
        """Write a sentence that is about none of the topics."""
        return self.rng.choice(_NEUTRAL).format_map(self._neutral_values())

    def decorate(self, text: str) -> str:
        """Add what real feeds add: emoji, full-width forms, English, quotation marks, commas, or a second line."""
        rng = self.rng
        old, new = rng.choice(_OLD_EMOJI) * rng.choice((1, 1, 2, 3)), rng.choice(_NEW_EMOJI)
        added = {
            "old emoji": rng.choice((old + text, text + old)),
            "new emoji": rng.choice((new + text, text + new)),
            "full width": f"【ＡＢＣ{rng.randrange(1, 200)}，！】{text}".translate(_FULL_WIDTH),
            "English": text + rng.choice(_ENGLISH),
            "quotes": f'网友："{text}"',
            "commas": f"{rng.choice(_CITIES)}, {text}, {rng.randrange(1, 10000):,}",
            "second line": f"{text}\n{self.neutral()}",
        }
        return added[rng.choice(tuple(added))]

    def _mix(self, headline: str, topic: Topic) -> str:
        pattern = self.rng.choice(_MIXED)
        other = self.rng.choice([other for other in TOPICS if other is not topic])
        slot = self.rng.choice(("actor", "object"))
        return pattern.format(headline=headline, other=self.rng.choice(words_for(pattern, other, slot, self.part)))

    def _sentence(self, shared: tuple[str, ...], own: tuple[str, ...], topic: Topic) -> str:
        return self._fill(self.rng.choice(self.rng.choice((shared, own))), topic)

    def _fill(self, pattern: str, topic: Topic) -> str:
        values = self._neutral_values()
        for slot in ("actor", "action", "place"):
            values[slot] = self.rng.choice(words_for(pattern, topic, slot, self.part))
        values["object"], values["object2"] = self.rng.sample(words_for(pattern, topic, "object", self.part), 2)
        return pattern.format_map(values)

    def _neutral_values(self) -> dict[str, str]:
        rng = self.rng
        month = rng.randrange(1, 13)
        city, city2 = rng.sample(_CITIES, 2)
        return {
            "city": city,
            "city2": city2,
            "media": rng.choice(_MEDIA),
            "month": str(month),
            "date": rng.choice((f"{month}月{rng.randrange(1, 29)}日", "近日", "日前", "昨日", "上周末")),
            "year": str(rng.randrange(1998, 2026)),
            "number": str(rng.choice((rng.randrange(3, 100), rng.randrange(100, 10000)))),
            "small": str(rng.randrange(2, 10)),
            "percent": rng.choice((f"{rng.randrange(1, 100)}%", f"{rng.randrange(10, 999) / 10}%", "三成", "一半")),
        }
