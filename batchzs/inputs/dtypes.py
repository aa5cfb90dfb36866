"""Types of carried columns: written as text and read back, and the one type that several files' types make.

Parquet has no 128-bit integers, so there are none here.

A type is a word (`Int64`), or JSON where it has parts (`{"List":"Int64"}`). Categories and enums are written as
strings everywhere, so they occur in no carried column.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_SIMPLE: dict[str, pl.DataType] = {
    str(dtype): dtype
    for dtype in (
        pl.Boolean(),
        pl.Int8(),
        pl.Int16(),
        pl.Int32(),
        pl.Int64(),
        pl.UInt8(),
        pl.UInt16(),
        pl.UInt32(),
        pl.UInt64(),
        pl.Float32(),
        pl.Float64(),
        pl.String(),
        pl.Binary(),
        pl.Date(),
        pl.Time(),
        pl.Null(),
    )
}


def dtype_to_text(dtype: pl.DataType) -> str:
    """Write a type.

    Raises:
        ValueError: A carried column cannot have this type.

    >>> dtype_to_text(pl.List(pl.Datetime("us", "Asia/Shanghai")))
    '{"List":{"Datetime":["us","Asia/Shanghai"]}}'
    """
    tree = _to_tree(dtype)
    return tree if isinstance(tree, str) else json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


def dtype_from_text(text: str) -> pl.DataType:
    """Read a type that `dtype_to_text` wrote.

    Raises:
        ValueError: The text is no such type.

    >>> dtype_from_text("Int64")
    Int64
    """
    try:
        return _from_tree(text if not text.startswith("{") else json.loads(text))
    except (TypeError, LookupError, ValueError, pl.exceptions.PolarsError) as exc:
        raise ValueError(f"{text!r} is no type of a carried column") from exc


def _to_tree(dtype: pl.DataType) -> Any:
    tree: Any
    match dtype:
        case pl.Datetime():
            tree = {"Datetime": [dtype.time_unit, dtype.time_zone]}
        case pl.Duration():
            tree = {"Duration": dtype.time_unit}
        case pl.Decimal():
            tree = {"Decimal": [dtype.precision, dtype.scale]}
        case pl.List():
            tree = {"List": _to_tree(_instance(dtype.inner))}
        case pl.Array():
            tree = {"Array": [_to_tree(_instance(dtype.inner)), dtype.size]}
        case pl.Struct():
            tree = {"Struct": [[field.name, _to_tree(_instance(field.dtype))] for field in dtype.fields]}
        case _:
            tree = str(dtype)
            if tree not in _SIMPLE:
                raise ValueError(f"a column of type {dtype} cannot be carried")
    return tree


def _from_tree(tree: Any) -> pl.DataType:
    if isinstance(tree, str):
        return _SIMPLE[tree]
    ((kind, parts),) = tree.items()
    dtype: pl.DataType
    match kind:
        case "Datetime":
            dtype = pl.Datetime(parts[0], parts[1])
        case "Duration":
            dtype = pl.Duration(parts)
        case "Decimal":
            dtype = pl.Decimal(parts[0], parts[1])
        case "List":
            dtype = pl.List(_from_tree(parts))
        case "Array":
            dtype = pl.Array(_from_tree(parts[0]), parts[1])
        case "Struct":
            dtype = pl.Struct({name: _from_tree(inner) for name, inner in parts})
        case _:
            raise ValueError(kind)
    return dtype


def _instance(dtype: PolarsDataType) -> pl.DataType:
    return dtype if isinstance(dtype, pl.DataType) else dtype()


def normalised(dtype: pl.DataType) -> pl.DataType:
    """Return the type a column is carried in: dictionaries, categories and enums become strings, at any depth.

    >>> normalised(pl.List(pl.Categorical()))
    List(String)
    """
    match dtype:
        case pl.Categorical() | pl.Enum():
            return pl.String()
        case pl.List():
            return pl.List(normalised(_instance(dtype.inner)))
        case pl.Array():
            return pl.Array(normalised(_instance(dtype.inner)), dtype.size)
        case pl.Struct():
            return pl.Struct({field.name: normalised(_instance(field.dtype)) for field in dtype.fields})
        case _:
            return dtype


def common_dtype(first: pl.DataType, second: pl.DataType) -> pl.DataType | None:
    """Return the type that holds all values of both, or None; the order does not matter.

    Integers widen, and so do floats; an all-null column takes any type. Integers and floats have no type in common:
    ids above 2**53 would lose digits.

    >>> common_dtype(pl.Int32(), pl.UInt32())
    Int64
    >>> common_dtype(pl.Int64(), pl.Float64()) is None
    True
    """
    if second in (first, pl.Null):
        return first
    if first == pl.Null:
        return second
    if first.is_integer() and second.is_integer():
        return _common_integer(first, second)
    if first.is_float() and second.is_float():
        return pl.Float64()
    return None


def _common_integer(first: pl.DataType, second: pl.DataType) -> pl.DataType | None:
    if first.is_unsigned_integer() == second.is_unsigned_integer():
        return max(first, second, key=_num_bits)
    signed, unsigned = (second, first) if first.is_unsigned_integer() else (first, second)
    # The smallest signed type that holds both, so that the result for three files does not depend on their order.
    num_bits = max(_num_bits(signed), 2 * _num_bits(unsigned))
    return {16: pl.Int16(), 32: pl.Int32(), 64: pl.Int64()}.get(num_bits)


def _num_bits(dtype: pl.DataType) -> int:
    return int(str(dtype).lstrip("UInt"))
