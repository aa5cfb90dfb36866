"""What is said of a job's keys beside their types: for the reference in docs/job.md, and for editors.

A field of the schema carries a `Key` in its annotation; its name, its default and what messages say was expected are
the field's own. This module walks a schema that is handed over, and knows no key itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from batchzs.located import KeyPath


@dataclass(frozen=True, slots=True)
class Key:
    """What a key means. Texts are Markdown without line ends."""

    meaning: str  # a sentence
    values: str = ""  # what may stand there, in a few words; where absent, the choices that the field's type lists
    note: str = ""  # beside the key in the reference's example
    example: str = ""  # the value there, as YAML, where it is not the default


def key_of(field: FieldInfo) -> Key | None:
    """Find what is said of a key; None for a section that is a chapter of its own."""
    return next((each for each in field.metadata if isinstance(each, Key)), None)


def section_of(field: FieldInfo | None) -> type[BaseModel] | None:
    """The class of a section; None for a key that is none."""
    annotation = field.annotation if field is not None else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def all_keys(schema: type[BaseModel], above: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Walk the keys of a schema in their order, each section before what is in it."""
    for name, field in schema.model_fields.items():
        yield (*above, name), field
        section = section_of(field)
        if section is not None:
            yield from all_keys(section, (*above, name))


def values_of(field: FieldInfo) -> str:
    """Say what may stand at a key, in a few words."""
    key = key_of(field)
    return (key.values if key is not None else "") or ", ".join(_choices(field.annotation))


def _choices(annotation: Any) -> list[str]:
    """The words that a type lists.

    >>> _choices(Literal["auto"] | bool), _choices(Literal["csv", "tsv"] | None), _choices(int)
    (['auto', 'true', 'false'], ['csv', 'tsv'], [])
    """
    if annotation is bool:
        return ["true", "false"]
    members = get_args(annotation)
    if get_origin(annotation) is Literal:
        return [str(each) for each in members]
    return [word for member in members for word in _choices(member)]
