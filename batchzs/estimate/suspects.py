"""Texts that look as if they had been read in another encoding than they were written in, or hold no text at all.

Each kind is a pattern that real text does not show, or hardly ever: a finding says where to look, and no more. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Rows of each kind that are named.
NUM_NAMED = 3

_CJK = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
#: What Windows-1252 makes of the bytes 0x80 to 0x9f, and Latin-1 of 0x80 to 0xbf: UTF-8's bytes after the first one.
_CONTINUATION = "\u0080-\u00bf‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ€"
_AS_LATIN = re.compile(
    f"Ã[{_CONTINUATION}]|Â[\u0080-\u00bf]|â€|[äåæçèé][{_CONTINUATION}]{{2}}"  # UTF-8 read as Latin-1
    "|[\u00a1-\u00ff]{4}"  # GBK read as Latin-1: no word has four such letters in a row
)
_LOST = re.compile("\ufffd|锟斤拷|烫烫烫|屯屯屯")
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
#: Characters that GBK makes of the most frequent beginnings of Chinese in UTF-8, and that are rare otherwise.
_GBK_LOOK = re.compile("[鐨涓鏄鍦浜鍜鏈鍒绗浣鎴鍥澶涔鐢鎬鍙璇杩鍚銆锛鈥歿鏂绉鎶]")
_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_ANY = re.compile("|".join(one.pattern for one in (_AS_LATIN, _LOST, _PRIVATE, _CONTROL, _GBK_LOOK)))

#: The kinds, each with what it says to a person.
KINDS = {
    "lost": "characters lost in decoding (U+FFFD, 锟斤拷)",
    "utf8_as_latin1": "UTF-8 or GBK read as Latin-1 (Ã©, â€, ÖÐ¹ú)",
    "utf8_as_gbk": "UTF-8 read as GBK (浣犲ソ)",
    "private_use": "private-use characters",
    "control": "control characters",
    "no_chinese": "no Chinese in them, though the hypotheses are Chinese",
}


@dataclass(frozen=True, slots=True)
class Suspect:
    """One kind of suspicious text: how many there are, and where the first ones lie."""

    kind: str  # a key of `KINDS`
    num_rows: int
    rows: tuple[tuple[str, int], ...]  # the first ones' file and 0-based row


def has_chinese(text: str) -> bool:
    """Whether a text holds a Chinese character."""
    return _CJK.search(text) is not None


def suspicions(text: str, *, expects_chinese: bool) -> list[str]:
    r"""Name what is suspicious about a text, by the keys of `KINDS`.

    >>> suspicions("央行降息", expects_chinese=True), suspicions("caf\xc3\xa9", expects_chinese=False)
    ([], ['utf8_as_latin1'])
    """
    kinds = []
    if _ANY.search(text) is not None:
        patterns = (("lost", _LOST), ("utf8_as_latin1", _AS_LATIN), ("private_use", _PRIVATE), ("control", _CONTROL))
        kinds = [kind for kind, pattern in patterns if pattern.search(text) is not None]
        if _is_utf8_as_gbk(text):
            kinds.append("utf8_as_gbk")
    if expects_chinese and not has_chinese(text):
        kinds.append("no_chinese")
    return kinds


class SuspectTally:
    """Counts suspicious texts and keeps the first positions of each kind.

    Args:
        expects_chinese: whether a text without Chinese is one.
    """

    def __init__(self, *, expects_chinese: bool) -> None:
        self._expects_chinese = expects_chinese
        self._counts: dict[str, int] = {}
        self._rows: dict[str, list[tuple[str, int]]] = {}

    def add(self, texts: Sequence[str], files: Sequence[str], rows: Sequence[int]) -> None:
        """Look at some texts; `files` and `rows` say where each one lies."""
        for place, text in enumerate(texts):
            for kind in suspicions(text, expects_chinese=self._expects_chinese):
                self._counts[kind] = self._counts.get(kind, 0) + 1
                named = self._rows.setdefault(kind, [])
                if len(named) < NUM_NAMED:
                    named.append((files[place], rows[place]))

    def result(self) -> tuple[Suspect, ...]:
        """The kinds that were found, in the order of `KINDS`."""
        return tuple(
            Suspect(kind, self._counts[kind], tuple(self._rows[kind])) for kind in KINDS if kind in self._counts
        )


def _is_utf8_as_gbk(text: str) -> bool:
    """Whether most of what is not ASCII becomes Chinese when GBK's decoding is undone and UTF-8's done."""
    if _GBK_LOOK.search(text) is None:
        return False
    num_bytes = num_chinese = 0
    for run in _NOT_ASCII.findall(text):
        raw = run.encode("gb18030", errors="ignore")
        num_bytes += len(raw)
        num_chinese += len(_CJK.findall(raw.decode("utf-8", errors="ignore")))
    return num_chinese * 3 >= 0.6 * num_bytes > 0
