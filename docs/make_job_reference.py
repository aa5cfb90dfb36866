"""Write the parts of docs/job.md that the schema knows: its tables of keys and its example.

    python docs/make_job_reference.py

They stand between marker comments; what is written by hand around them stays. A test holds the page to this.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel

from batchzs.display_width import display_width, padded
from batchzs.job import JobConfig
from batchzs.job_keys import all_keys, key_of, section_of, values_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from batchzs.located import KeyPath

PAGE = Path(__file__).parent / "job.md"

#: What stands for the keys that are in no section.
_ROOT = "the job"
#: Where notes begin in the example.
_NOTE_COLUMN = 36


def page(text: str) -> str:
    """Make the page's tables and its example anew.

    Args:
        text: the page as it is.

    Returns:
        The page as it should be.

    Raises:
        ValueError: a section has no place in the page, or a place has no section.
    """
    parts = {f"keys: {name}": table for name, table in tables().items()}
    parts["example"] = f"```yaml\n{example()}\n```"
    there = re.findall(r"^<!-- begin (.+) -->$", text, re.MULTILINE)
    if sorted(there) != sorted(parts):
        raise ValueError(f"docs/job.md has places for {sorted(there)}, expected one for each of {sorted(parts)}")
    for name, part in parts.items():
        begin, end = f"<!-- begin {name} -->\n", "\n<!-- end -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}{part}{end}{tail}"
    return text


def tables() -> dict[str, str]:
    """The table of each section, by its dotted name."""
    rows: dict[str, list[str]] = {}
    for path, field in all_keys(JobConfig):
        key = key_of(field)
        if key is not None:
            name = ".".join(map(str, path))
            row = f"| `{name}` | {_default(field)} | {values_of(field)} | {key.meaning} |"
            rows.setdefault(name.rpartition(".")[0] or _ROOT, []).append(row)
    head = "| key | default | values | meaning |\n|---|---|---|---|\n"
    return {section: head + "\n".join(lines) for section, lines in rows.items()}


def example() -> str:
    """A job with every key, each with its default where it has one, and a note beside it."""
    return "\n".join(_entry(path, field) for path, field in all_keys(JobConfig))


def as_yaml(value: Any) -> str:
    """Write a default as it stands in a job."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    try:
        if yaml.safe_load(value) == value:
            return value
    except yaml.YAMLError:
        pass
    return f"'{value}'" if '"' in value else json.dumps(value, ensure_ascii=False)


def _default(field: FieldInfo) -> str:
    if isinstance(field.default, BaseModel):
        return "see below"
    return "required" if field.is_required() else f"`{as_yaml(field.default)}`"


def _entry(path: KeyPath, field: FieldInfo) -> str:
    indent = "  " * (len(path) - 1)
    if section_of(field) is not None:
        return f"{indent}{path[-1]}:"
    key = key_of(field)
    value = key.example if key is not None and key.example else as_yaml(field.default)
    line = f"{indent}{path[-1]}: {value}"
    if key is None or not key.note:
        return line
    return f"{padded(line, max(_NOTE_COLUMN, display_width(line) + 1))}# {key.note}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
