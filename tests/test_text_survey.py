"""Texts are counted exactly where all are tokenised, and without bias where some are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.estimate.text_survey import TextSurveyor
from tests.builders import PATIENT, CharacterTokenizer, shard_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.estimate.text_survey import TextSurvey


def survey(*chunks: Sequence[str], unknown: str | None = None, max_texts: int = 1000) -> TextSurvey:
    """Survey chunks of texts, one token a character."""
    surveyor = TextSurveyor(CharacterTokenizer(), ord(unknown) if unknown else None, expects_chinese=False)
    for texts in chunks:
        surveyor.add(shard_rows(texts), max_texts, 10**6)
    return surveyor.result()


def test_a_case_by_hand() -> None:
    """Seven rows in two shards: two of them blank, one text twice in a shard and once more in the other one."""
    found = survey(["甲乙", "甲乙", "", " "], ["甲乙", "甲?丙丁", "?"], unknown="?")
    assert found.num_read == found.num_readable == 7
    assert found.num_empty == 2
    assert found.num_texts == 5
    assert found.num_duplicates == 2
    assert found.num_distinct_in_shards == 4  # 甲乙 | 甲乙, 甲?丙丁, ?
    assert found.by_length.tolist() == [2, 1, 3, 0, 1]
    assert found.scored_by_length.tolist() == [0, 1, 2, 0, 1]
    assert found.unknown_share == pytest.approx(2 / 9)  # of the tokens of the four texts
    assert found.longest == 4
    assert found.num_longer(1) == 4
    assert (found.percentile(0.5), found.percentile(1.0)) == (2, 4)


def test_damaged_rows_are_counted_and_not_looked_at() -> None:
    """They have no text."""
    surveyor = TextSurveyor(CharacterTokenizer(), None, expects_chinese=True)
    surveyor.add(shard_rows(["甲", "", "乙"], bad={1: ("bad_record", "why")}), 10, 1000)
    found = surveyor.result()
    assert (found.num_read, found.num_bad, found.num_empty, found.num_texts) == (3, 1, 0, 2)
    assert found.suspects == ()
    assert found.unknown_share is None


@given(st.lists(st.lists(st.text("甲乙 丙", max_size=4), max_size=12), max_size=3))
@PATIENT
def test_counts_are_those_of_counting_one_by_one(chunks: list[list[str]]) -> None:
    """However texts repeat, in a chunk and across chunks."""
    found = survey(*chunks)
    texts = [text for chunk in chunks for text in chunk]
    solid = [text for text in texts if text.strip()]
    assert found.is_exact
    assert found.num_duplicates == len(solid) - len(set(solid))
    lengths = Counter(len(text.replace(" ", "")) for text in texts)
    assert {length: round(count) for length, count in enumerate(found.by_length.tolist()) if count} == lengths


def test_a_sample_stands_for_all() -> None:
    """Its weights add up to the rows, a text that most rows repeat is not missed, lengths are about right."""
    texts = ["甲乙丙丁戊"] * 500 + [f"{'长' * (number % 20)}{number:04d}" for number in range(1000)]
    found = survey(texts, max_texts=200)
    assert found.num_tokenised <= 200
    assert not found.is_exact
    assert float(found.by_length.sum()) == pytest.approx(1500)
    assert float(found.scored_by_length.sum()) == pytest.approx(1001)
    mean = float((found.by_length * range(len(found.by_length))).sum()) / 1500
    assert mean == pytest.approx((500 * 5 + sum(4 + number % 20 for number in range(1000))) / 1500, rel=0.1)
    assert found.num_duplicates == 499


def test_long_texts_are_sampled_by_their_characters() -> None:
    """At least one is tokenised whatever it takes."""
    surveyor = TextSurveyor(CharacterTokenizer(), None, expects_chinese=False)
    surveyor.add(shard_rows([chr(0x4E00 + number) * 1000 for number in range(50)]), 50, 10_000)
    surveyor.add(shard_rows([chr(0x5E00) * 5000]), 50, 10)
    found = surveyor.result()
    assert found.num_tokenised == 11
    assert found.by_length[1000] == pytest.approx(50)
    assert found.by_length[5000] == 1
