"""Texts that were read in another encoding than they were written in are told from sound ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.estimate.suspects import NUM_NAMED, SuspectTally, suspicions
from tests.builders import PATIENT

SENTENCES = (
    "央行宣布下调存款准备金率，市场反应积极",
    "你好，世界",
    "他说：“今天的天气很好”。",
    "这是一条关于体育的新闻，我们在北京报道",
)


@pytest.mark.parametrize("text", SENTENCES)
def test_chinese_read_in_the_wrong_encoding_is_found(text: str) -> None:
    """The mix-ups that Windows, Excel and old databases make."""
    assert "utf8_as_gbk" in suspicions(text.encode().decode("gb18030", "ignore"), expects_chinese=True)
    assert "utf8_as_latin1" in suspicions(text.encode().decode("latin-1"), expects_chinese=False)
    assert "utf8_as_latin1" in suspicions(text.encode("gbk").decode("latin-1"), expects_chinese=False)
    assert "lost" in suspicions(text.encode("gbk").decode("utf-8", "replace"), expects_chinese=False)


@pytest.mark.parametrize(
    "text",
    [
        *SENTENCES,
        "联通公布财报",  # the bytes of 联通 in GBK are UTF-8 too
        "浣熊和鏖战",
        "café à la crème, Ærøskøbing, naïve",
        "“quoted” — and… it costs 5 €",
        "繁體中文的標題，鏡頭與鐵路",
        "标题\t一\n标题二\r\n",
        "😀 2024 年",
    ],
)
def test_sound_texts_are_not_suspicious(text: str) -> None:
    """Rare characters, accents and typography are text."""
    assert suspicions(text, expects_chinese=False) == []


@given(st.text(alphabet=st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5), min_size=6))
@PATIENT
def test_chinese_itself_is_never_called_lost_or_latin(text: str) -> None:
    """Whatever characters stand together, but those that decoders leave behind."""
    found = set(suspicions(text, expects_chinese=True))
    assert found <= ({"lost", "utf8_as_gbk"} if {"锟", "烫", "屯"} & set(text) else {"utf8_as_gbk"})


def test_control_and_private_characters_are_found() -> None:
    """Line ends and tabs belong to texts; NUL, escapes and private glyphs do not."""
    assert suspicions("甲\x00乙", expects_chinese=True) == ["control"]
    assert suspicions("甲\ue5e5乙", expects_chinese=True) == ["private_use"]
    assert suspicions("ok", expects_chinese=True) == ["no_chinese"]


def test_the_first_rows_of_each_kind_are_named() -> None:
    """Three of them, by file and row; the count goes on."""
    tally = SuspectTally(expects_chinese=True)
    tally.add(["甲", *["plain"] * 5], ["a.csv"] * 6, list(range(10, 16)))
    (one,) = tally.result()
    assert (one.kind, one.num_rows) == ("no_chinese", 5)
    assert one.rows == (("a.csv", 11), ("a.csv", 12), ("a.csv", 13))
    assert len(one.rows) == NUM_NAMED
