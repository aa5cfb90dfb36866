"""Texts shown to people do nothing but stand there, and nothing of them is lost."""

import json

from hypothesis import given
from hypothesis import strategies as st

from batchzs.escape import escaped, json_line
from tests.builders import PATIENT

ACTING = "\x1b\x07\r\n\t\x00\x7f\x9b\u2028\u202e\ufeff\ud800"


@PATIENT
@given(st.text(st.one_of(st.characters(), st.sampled_from(ACTING + "\\"))))
def test_nothing_acts_and_nothing_is_lost(text: str) -> None:
    """No control, format or surrogate character is left, and the text can be had back."""
    for shown in (escaped(text), json_line(text)):
        assert not set(shown) & set(ACTING)
    assert json.loads(json_line(text)) == text
    assert escaped(text).encode("latin-1", "backslashreplace").decode("unicode_escape") == text


def test_ordinary_texts_stay_as_they_are() -> None:
    """Chinese, accents, emoji and wide spaces are ink."""
    text = "新闻\u3000naïve 😀"
    assert escaped(text) == text
    assert json_line(text) == f'"{text}"'
