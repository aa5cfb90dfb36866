"""What a job file needs beside its schema: `--set`, paths, keys that are not built yet, and messages for people.

Everything here works on the raw values with their places (`Located`), before or beside the schema in `job`, so that a
file's problems are all found in one go, whichever kind they are. It imports no part of the schema; the class to look
keys up in is handed over.
"""

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from batchzs.errors import UsageError
from batchzs.job_keys import all_keys, section_of
from batchzs.labels import LABEL_FILE_SUFFIXES
from batchzs.located import KeyPath, Located, Place, Problem, dotted, path_bytes, quoted, quotes_hint
from batchzs.yaml_lines import parse_yaml

_PATH_KEYS: tuple[KeyPath, ...] = (
    ("input", "path"),
    ("labels",),  # only where it is a text: the path of a file with labels
    ("model", "path"),
    ("model", "cache_dir"),
    ("output", "path"),
)


def value_at(job: Located, path: KeyPath) -> tuple[bool, Any]:
    """Look up a key.

    Returns:
        Whether it is written, and its value.
    """
    value = job.value
    for part in path:
        known = range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()
        if part not in known:
            return False, None
        value = value[part]
    return True, value


def apply_overrides(job: Located, overrides: Sequence[str]) -> None:
    """Put `--set a.b=value` options into a job, in their order; the last one wins.

    Args:
        job: A job whose root is a mapping.
        overrides: The options' arguments. Values are YAML; relative paths among them resolve against the working
            directory.

    Raises:
        UsageError: An option is not `KEY=VALUE`, or its value is not YAML.
    """
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise UsageError(f"--set {quoted(override)}: expected KEY=VALUE, such as --set engine.device=cpu")
        place = Place(f"--set {key.strip()}", Path())
        value = parse_yaml(text, place)
        section: Any = job.value
        path: KeyPath = ()
        for part in parts[:-1]:
            path = (*path, part)
            if section.get(part) is None:
                section[part] = {}
                job.places[path] = place
            section = section[part]
            if not isinstance(section, dict):
                break
        if isinstance(section, dict):
            job.graft(tuple(parts), value)
        else:
            message = f"holds no keys; give it whole, such as --set '{dotted(path)}=...'"
            job.problems.append(Problem(place, path, message))


def resolve_paths(job: Located) -> None:
    """Make every path of a job absolute, as text: against the job file, or the working directory for `--set`.

    Symbolic links are not followed, nothing has to exist, and `~` or variables are not expanded: what a job means does
    not depend on who starts it.
    """
    for path in _PATH_KEYS:
        written, value = value_at(job, path)
        parent = job.value if len(path) == 1 else job.value.get(path[0])
        if not written:
            continue
        if isinstance(value, str):
            parent[path[-1]] = _resolve(job, path, value)
        elif isinstance(value, list) and path == ("input", "path"):
            parent[path[-1]] = [
                _resolve(job, (*path, index), each) if isinstance(each, str) else each
                for index, each in enumerate(value)
            ]


def _resolve(job: Located, path: KeyPath, text: str) -> str:
    if path == ("labels",) and not text.lower().endswith(LABEL_FILE_SUFFIXES):
        return text  # no path: refused by who reads the labels, with a better message
    resolved, fault = text, None
    try:
        absolute = os.path.abspath(job.place(path).base / text)  # noqa: PTH100  Path.absolute leaves .. in
        resolved = path_bytes(absolute).decode()
    except OSError:
        fault = "is relative, and the working directory is gone; write an absolute path"
    except UnicodeDecodeError:
        fault = "resolves to a folder whose name is not UTF-8; move the job elsewhere"
    if not text.strip():
        fault = "is empty; write a path"
    elif "\0" in text:
        fault = "holds a NUL character; remove it"
    elif text == "~" or text.startswith("~/"):
        fault = "begins with ~, which is not expanded: HOME differs under cron; write the path out"
    elif re.match(r"\$(?:\{|[A-Za-z_])", text):
        fault = f"begins with a variable, which is not expanded; give it with --set '{dotted(path[:2])}=...' in a shell"
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        fault = "is a URL; only files of this machine are read and written, so copy or mount it"
    if fault is not None:
        job.report(path, f"{quoted(text)} {fault}")
        return text
    return resolved


def report_taken_names(job: Located, added: Sequence[str], prefix: str) -> None:
    """Report kept columns that are named like one that batchzs adds.

    Args:
        job: The job; with `keep: all` the names are known only when the input is read.
        added: Names of all columns that batchzs may add, whether this job has them or not: a later run on the same
            texts may.
        prefix: What stands before added names where the job does not say.
    """
    _, keep = value_at(job, ("input", "keep"))
    written, own_prefix = value_at(job, ("output", "prefix"))
    prefix = own_prefix if written and isinstance(own_prefix, str) else prefix
    taken = {prefix + name for name in added}
    for index, name in enumerate(keep if isinstance(keep, list) else []):
        if isinstance(name, str) and name in taken:
            message = f"batchzs adds a column named {quoted(name)} itself; set output.prefix, such as prefix: zs_"
            job.report(("input", "keep", index), message)


def report_schema_errors(job: Located, schema: type[BaseModel], error: ValidationError) -> None:
    """Turn a schema's errors into problems of the job.

    Args:
        job: The job that was validated. Keys that have a problem already get no second one.
        schema: The class that validated it; its fields' descriptions say what is expected.
        error: What it raised.
    """
    messages: dict[KeyPath, str] = {}
    for each in error.errors(include_url=False):
        path = _key_path(job, schema, each["loc"])
        # Of what a union's members say, a sentence of ours knows best.
        if path not in messages or each["type"] == "value_error":
            messages[path] = _message(job, schema, path, dict(each))
    for path, message in messages.items():
        # A union says what each of its members misses; the deepest of them knows which item is wrong.
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in messages)
        known = any(problem.path[: len(path)] == path for problem in job.problems)
        if not deeper and not known:
            job.report(path, message)


def _key_path(job: Located, schema: type[BaseModel], loc: tuple[str | int, ...]) -> KeyPath:
    """Keep of pydantic's location what is written in the file: it also names the members of unions."""
    path: list[str | int] = []
    section: type[BaseModel] | None = schema
    for part in loc:
        if section is not None:
            path.append(part)
            section = section_of(section.model_fields.get(str(part)))
        elif isinstance(part, int) and isinstance(value_at(job, tuple(path))[1], list):
            path.append(part)  # but one column given as a text is no list, whatever the schema makes of it
    return tuple(path)


def _field(schema: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    section: type[BaseModel] | None = schema
    field: FieldInfo | None = None
    for part in path:
        if section is None:
            break
        field = section.model_fields.get(str(part))
        section = section_of(field)
    return field


def _message(job: Located, schema: type[BaseModel], path: KeyPath, error: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown_key(schema, path)
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    field = _field(schema, path)
    expected = f"expected {field.description}" if field is not None and field.description else "expected another value"
    section = section_of(field)
    if section is not None:
        expected = f"expected keys: {', '.join(section.model_fields)}"
    if error["type"] == "missing":
        return f"missing; {expected}"
    _, value = value_at(job, path)
    hint = quotes_hint(value) if error["type"] in {"string_type", "path_type"} else ""
    return f"found {job.found(path, value)}, {expected}{hint}"


def _unknown_key(schema: type[BaseModel], path: KeyPath) -> str:
    section = schema
    for part in path[:-1]:
        section = section_of(section.model_fields.get(str(part))) or section
    key, valid = str(path[-1]), list(section.model_fields)
    near = difflib.get_close_matches(key, valid, n=1)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    homes = [dotted(each) for each, _ in all_keys(schema) if each[-1] == key]
    if homes:
        return f"unknown key here; it belongs to another section: {', '.join(homes)}"
    return f"unknown key; the keys here are: {', '.join(valid)}"
