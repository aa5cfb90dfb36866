"""Chinese takes two columns of a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from batchzs.display_width import cut, display_width, padded, wrapped
from tests.builders import PATIENT

TEXTS = st.text("ab 财经。é\u0301😀", max_size=40)


@given(TEXTS, st.integers(4, 20))
@PATIENT
def test_what_is_cut_or_wrapped_fits_and_loses_nothing_else(text: str, width: int) -> None:
    """A text that fits stays as it is; lines together hold every visible character in order."""
    short = cut(text, width)
    assert display_width(short) <= width
    assert short == text or short.endswith("…")
    lines = wrapped(text, width)
    assert all(display_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_columns_are_filled_up() -> None:
    """Two labels of different script end in the same column."""
    assert display_width(padded("体育", 8)) == display_width(padded("sports", 8)) == 8
