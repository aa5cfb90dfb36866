"""Score the golden cases with ModelScope's own zero-shot pipeline and write `golden.jsonl` beside this file.

ModelScope's StructBERT needs transformers 4, so this runs in an environment of its own:

    python3 -m venv /tmp/oracle
    /tmp/oracle/bin/pip install torch==2.13.0 'transformers==4.57.*' modelscope addict simplejson sortedcontainers \
        datasets pandas einops scipy packaging 'setuptools<80' pillow opencv-python-headless
    /tmp/oracle/bin/python tests/golden/make_golden.py

A line of the file is one case: text, labels, template, multi_label, and what the pipeline gave: logits (labels x 3, in
the checkpoint's class order) and scores (in the order of labels), computed one text at a time on the CPU in float32.
"""

import csv
import json
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SAMPLE_DATA = HERE.parent.parent / "sample_data"
NEWS_LABELS = ["文化", "体育", "娱乐", "财经", "家居", "汽车", "教育", "科技", "军事"]
#: More labels, so that there are sixty: topics, moods, places, and ones with odd characters in them.
MORE_LABELS = [
    *("国际", "社会", "健康", "旅游", "美食", "天气", "房产", "股票", "游戏", "动漫", "时尚", "星座", "农业", "法律"),
    *("环境", "能源", "交通", "历史", "音乐", "电影", "电视剧", "足球", "篮球", "网球", "手机", "电脑", "人工智能"),
    *("好消息", "坏消息", "北京", "上海", "广州", "深圳", "财经,股市", "体育/健身", "A股", "5G 通信", "IT", "e-sports"),
    *("买车,卖车", "（其他）", "{无}", "科技。", "亲子", "职场", "情感", "公益", "宠物", "收藏", "彩票", "摄影"),
]
TEMPLATES = ["这篇文章的标题是{}", "{}"]
#: Texts that tokenisers disagree on, one kind each.
ODD_TEXTS = [
    "股市",
    "A",
    "。",
    "2026",
    "新能源汽车 electric vehicles 销量 up 12.5% 同比",
    "ＡＢＣ１２３，全角！字符？",
    "  前后 有 空格\t中间有制表符\n还有换行  ",
    "不换行空格\u00a0全角空格\u3000零宽\u200b连接",
    "国家队夺冠🏆🎉，球迷狂欢😀",
    "新表情🫠🫡🪩与旧表情☀️混排",
    "家庭👨‍👩‍👧‍👦和旗帜🇨🇳",
    "Café naïve résumé Zürich Ångström",
    "İstanbul ß ﬁ ǅ Ω",
    "日本語のニュース：東京で開催",
    "한국어 뉴스 제목입니다",
    "Новости экономики и спорта",
    "عنوان الأخبار الرياضية",
    "ข่าวกีฬาวันนี้",
    "हिन्दी समाचार",
    "[CLS]字面上的特殊标记[SEP]在文中[MASK]出现[PAD][UNK]",
    "[cls]小写的不算[sep]",
    "##号开头 ##ing #话题# @用户",
    "https://example.com/news?id=1&t=科技 邮箱 a.b@c.cn",
    "3.14159 1,234,567 2026-11-30 08:30 -40°C ½ ² ①",
    "“引号”‘单引号’《书名》【方括号】…—～·",
    "a" * 150,
    "antidisestablishmentarianism" * 4,
    "控制\x01字符\x7f与\u200e方向\u202e标记",
    "替换\ufffd字符与空\x00字节",
    "繁體中文與簡體中文混合𠀀𠮷㐂",
    "e\u0301 合成 é 与 Å Å",
    "換行\r\n回车\r结束\u2028行分隔\u2029段分隔",
    "﷽ ㍿ ㎏ ㏒ ｶﾞ",
    "科技" * 40,
    "体育，" * 60,
]


def cases() -> Iterator[dict[str, Any]]:
    """All golden cases, the same ones whenever and wherever this runs."""
    draw = random.Random(20_261_130)
    with (SAMPLE_DATA / "news.csv").open(encoding="utf-8", newline="") as file:
        news = [row["text"] for row in csv.DictReader(file) if row["text"].strip() and _is_known(row["text"])]
    bodies = [text for text in news if len(text) > 300]
    short = [text for text in news if len(text) <= 60]
    texts = ODD_TEXTS + draw.sample(short, 120) + draw.sample(bodies, 20)
    # More than 512 tokens, which are cut; around the limit, too, where one token more or less decides.
    for repeat in range(12):
        texts.append("".join(draw.sample(bodies, 3)))
        texts.append("央" * (490 + 2 * repeat))
    texts += [f"{text} {draw.choice(ODD_TEXTS)} {draw.choice(short)}" for text in draw.sample(short, 25)]
    every_label = NEWS_LABELS + MORE_LABELS
    for number, text in enumerate(texts):
        labels = draw.sample(every_label, draw.choice([1, 1, 2, 3, 5, 9, 12])) if number % 3 else NEWS_LABELS
        yield _case(text, labels, TEMPLATES[number % 2], multi_label=number % 5 == 0)
    for number, text in enumerate(draw.sample(short, 6)):
        yield _case(text, every_label[:60], TEMPLATES[number % 2], multi_label=number % 3 == 0)


def _is_known(text: str) -> bool:
    """Whether Python's Unicode tables know every character.

    ModelScope's tokeniser is written in Python and drops those that they do not; batchzs's makes them unknown tokens.
    That difference is documented and is no parity to test.
    """
    return all(unicodedata.category(character) != "Cn" for character in text)


def _case(text: str, labels: list[str], template: str, *, multi_label: bool) -> dict[str, Any]:
    return {"text": text, "labels": labels, "template": template, "multi_label": multi_label}


def main() -> None:
    """Score every case and write the file."""
    import torch
    from modelscope.outputs import OutputKeys
    from modelscope.pipelines import pipeline

    zero_shot = pipeline("zero-shot-classification", model=str(SAMPLE_DATA / "model"), device="cpu")
    zero_shot.model.float().eval()
    with (HERE / "golden.jsonl").open("w", encoding="utf-8") as file:
        for case in cases():
            settings = {"candidate_labels": case["labels"], "hypothesis_template": case["template"]}
            features = zero_shot.preprocessor(case["text"], **settings)
            with torch.inference_mode():
                logits = zero_shot.model(**features)["logits"]
            result = zero_shot(case["text"], multi_label=case["multi_label"], **settings)
            score_of = dict(zip(result[OutputKeys.LABELS], result[OutputKeys.SCORES], strict=True))
            # Eight significant digits tell any two float32 numbers of this size apart by far more than the tolerance.
            case["logits"] = [[float(f"{value:.8g}") for value in row] for row in logits.tolist()]
            case["scores"] = [float(f"{score_of[label]:.8g}") for label in case["labels"]]
            file.write(json.dumps(case, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
