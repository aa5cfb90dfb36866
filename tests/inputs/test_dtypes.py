"""Types of carried columns as text, and what two types have in common."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.inputs.dtypes import common_dtype, dtype_from_text, dtype_to_text, normalised

PLAIN = [
    *(pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64()),
    *(pl.Boolean(), pl.Float32(), pl.Float64(), pl.String(), pl.Binary(), pl.Date(), pl.Time(), pl.Null()),
    *(pl.Datetime(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Asia/Shanghai")),
    *(pl.Duration(unit) for unit in ("ms", "us", "ns")),
    pl.Decimal(20, 4),
]
dtypes = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        inner.map(pl.List),
        st.tuples(inner, st.integers(1, 5)).map(lambda pair: pl.Array(pair[0], pair[1])),
        st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=3).map(pl.Struct),
    ),
    max_leaves=5,
)


@given(dtypes)
def test_round_trip(dtype: pl.DataType) -> None:
    """Every type that can be carried is read back as it was written."""
    assert dtype_from_text(dtype_to_text(dtype)) == dtype


@given(st.sampled_from(PLAIN), st.sampled_from(PLAIN))
def test_the_order_does_not_matter(first: pl.DataType, second: pl.DataType) -> None:
    """Two types have the same in common both ways round, and a type has itself in common with itself."""
    assert common_dtype(first, second) == common_dtype(second, first)
    assert common_dtype(first, first) == first


@pytest.mark.parametrize(
    "text", ["", "Int65", "{", '{"List":"x"}', '{"Set":"Int8"}', '{"a":1,"b":2}', "[]", '{"Decimal":"a"}']
)
def test_nonsense(text: str) -> None:
    """What is no type is refused."""
    with pytest.raises(ValueError, match="is no type of a carried column"):
        dtype_from_text(text)


def test_types_that_cannot_be_carried() -> None:
    """Python objects have no type on disk."""
    with pytest.raises(ValueError, match="cannot be carried"):
        dtype_to_text(pl.Object())


def test_categories_become_strings_at_any_depth() -> None:
    """Dictionaries differ from file to file, so only their strings are carried."""
    nested = pl.Struct({"a": pl.List(pl.Categorical()), "b": pl.Array(pl.Enum(["x"]), 2), "c": pl.Int8()})
    expected = pl.Struct({"a": pl.List(pl.String()), "b": pl.Array(pl.String(), 2), "c": pl.Int8()})
    assert normalised(nested) == expected
