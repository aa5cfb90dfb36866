"""Other people's texts made fit for a page: one line, no acting character, no longer than is read.

Escaping for HTML is not done here but by the template engine, for everything alike.
"""

from __future__ import annotations

import re
import unicodedata

from batchzs.escape import one_line

#: Longer texts are cut: a page is for looking, and a text of a megabyte is not looked at.
MAX_CHARACTERS = 300

#: What XML forbids beside control characters, which `one_line` has turned into escapes.
_NO_CHARACTERS = re.compile("[\ufffe\uffff]")
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_HAN = re.compile("[\u3400-\u9fff\U00020000-\U0003ffff]")
_KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7af]")


def shown(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    r"""Write a text so that it does nothing but stand there.

    Args:
        text: anything, halves of characters included.
        max_characters: where it is cut.

    >>> shown("央行\n降息\x00\u202e<b>")
    '央行 ↵ 降息\\x00\\u202e<b>'
    >>> shown("很长的文字", 2)
    '很长… (3 more characters)'
    """
    kept, num_left = text[:max_characters], len(text) - max_characters
    line = _NO_CHARACTERS.sub("\ufffd", one_line(_LINE_ENDS.sub(" ↵ ", kept)))
    return f"{line}… ({num_left:,} more characters)" if num_left > 0 else line


def language(text: str) -> str | None:
    """The language to read a text in and to choose its glyphs by, as far as its characters tell.

    >>> language("央行 cuts rates"), language("中央銀行が"), language("bank")
    ('zh', None, None)
    """
    return "zh" if _HAN.search(text) and not _KANA_OR_HANGUL.search(text) else None


def width_em(text: str) -> float:
    """About how wide a text is, in its font's size; fonts that are not there cannot be measured.

    >>> width_em("财经 a")
    3.3
    """
    return round(sum(1.0 if unicodedata.east_asian_width(one) in "WFA" else 0.65 for one in text), 3)


def fitted(text: str, max_em: float) -> str:
    """Cut a name that is wider than there is room.

    >>> fitted("财经", 4), fitted("国际财经新闻", 4)
    ('财经', '国际财…')
    """
    if width_em(text) <= max_em:
        return text
    while text and width_em(text) + 1 > max_em:
        text = text[:-1]
    return text + "…"
