"""YAML to plain data: values as people mean them, and the line of every key."""

from pathlib import Path

import pytest

from batchzs.located import KeyPath, OddScalar, Place, dotted
from batchzs.yaml_lines import parse_yaml

PLACE = Place("新 闻.yaml", Path("/jobs"), line=1)


def test_every_key_and_item_knows_its_line() -> None:
    """A key's line is the key's, an item's the item's, and what is not written belongs to what holds it."""
    document = parse_yaml("a:\n  b: 1\n\n  c:\n  - x\n  - {d:\n      2}\ne: z\n", PLACE)
    assert document.value == {"a": {"b": 1, "c": ["x", {"d": 2}]}, "e": "z"}
    lines: dict[KeyPath, int | None] = {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 4,
        ("a", "c", 1): 6,
        ("a", "c", 1, "d"): 6,
        ("e",): 8,
        ("a", "missing", "x"): 1,
        ("missing",): None,
    }
    assert {path: document.place(path).line for path in lines} == lines
    assert str(document.place(("a", "b"))) == "新 闻.yaml:2"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1_000", 1000),
        ("-5", -5),
        ("0", 0),
        ("1e-3", 0.001),
        ("2E3", 2000.0),
        (".5", 0.5),
        ("on", True),
        ("No", False),
        ("~", None),
        ("''", ""),
        ("!!str 2024", "2024"),
        ("!!int 7", 7),
        ("=", "="),
        ("08", "08"),
        ('"\\ud83d\\ude00"', "😀"),
        ("017", OddScalar("017", "a number that is not written in plain decimal digits")),
        ("0x1F", OddScalar("0x1F", "a number that is not written in plain decimal digits")),
        ("1:30", OddScalar("1:30", "a number that is not written in plain decimal digits")),
        ("1:30.5", OddScalar("1:30.5", "a number that is not finite or not decimal")),
        ("-.inf", OddScalar("-.inf", "a number that is not finite or not decimal")),
        ("1e999", OddScalar("1e999", "a number that is not finite or not decimal")),
        ("2024-01-01", OddScalar("2024-01-01", "a date")),
        ("!!bool maybe", OddScalar("maybe", "something else than its tag says")),
        ("!!null x", OddScalar("x", "something else than its tag says")),
        ('"\\ud83d"', OddScalar("\\ud83d", "half a character (a lone surrogate)")),
    ],
)
def test_scalars(text: str, value: object) -> None:
    """What YAML 1.1 would quietly turn into something else comes out as an odd scalar."""
    document = parse_yaml(f"- {text}\n", PLACE)
    assert document.value == [value]
    assert type(document.value[0]) is type(value)
    assert not document.problems


@pytest.mark.parametrize("key", ["on", "2024", "null", "='", "é"])
def test_keys_are_what_is_written(key: str) -> None:
    """A key is a text even where the same word as a value is none."""
    assert parse_yaml(f"{key}: x\n", PLACE).value == {key: "x"}


def test_aliases_make_copies() -> None:
    """Changing one place of a job does not change another."""
    value = parse_yaml("a: &x {p: 1}\nb: *x\n", PLACE).value
    value["a"]["p"] = 2
    assert value["b"] == {"p": 1}


def test_dotted_paths_stay_on_one_line() -> None:
    """Keys come from a file that may hold anything."""
    assert dotted(("labels", 2, "na\nme")) == 'labels, item 3, "na\\nme"'
    assert dotted((0, 1)) == "item 1, item 2"
    assert dotted(()) == ""
    assert len(dotted(("x" * 1000,))) < 100
