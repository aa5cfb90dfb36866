"""Plain values that know where each of them was written, and the problems found in them.

A job is put together from a YAML file, `--set` options and perhaps a file of labels. `Located` holds the values as
plain Python data, beside them the place of every key, so that whoever finds a problem, however late, can name the
file and the line. Problems are collected, not raised one by one: a person mends a file once, not once an error.

It does not read YAML (`yaml_lines`) and knows no key of the job (`job`).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from batchzs.errors import UsageError

#: From the root to a value: keys of mappings, and 0-based positions in lists.
KeyPath: TypeAlias = tuple[str | int, ...]

#: A message shows so much of a value and no more, to stay one line.
_SHOWN_CHARACTERS = 60

#: More problems than this are counted, not listed: a label file with the wrong encoding has thousands.
_LISTED_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written."""

    source: str  # a file's path as it was given, or "--set a.b"
    base: Path  # relative paths written here resolve against it; Path() is the working directory
    line: int | None = None  # 1-based

    def __str__(self) -> str:
        """`jobs/news.yaml:12`, or the source alone where there is no line."""
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True, slots=True)
class OddScalar:
    """A value that YAML 1.1 reads as something that no key takes, such as a date or an octal number."""

    text: str  # as it is written
    kind: str  # "a date"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend."""

    place: Place
    path: KeyPath
    message: str

    def __str__(self) -> str:
        """One line for a person: place, key, what is wrong and what to do."""
        key = dotted(self.path)
        if not key or self.place.source == f"--set {key}":
            return f"{self.place}: {self.message}"
        return f"{self.place}: {key}: {self.message}"


@dataclass(slots=True)
class Located:
    """Plain data, the place of every key in it, and what is wrong with it so far."""

    value: Any
    places: dict[KeyPath, Place]  # has at least the root, ()
    written: dict[KeyPath, str] = field(default_factory=dict)  # unquoted scalars that are no text, as they are written
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: KeyPath) -> Place:
        """Find where a value is written; for a key that is not written, where the section that lacks it is."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.places[()]

    def report(self, path: KeyPath, message: str) -> None:
        """Add a problem at a key."""
        self.problems.append(Problem(self.place(path), path, message))

    def found(self, path: KeyPath, value: object) -> str:
        """Describe a value for a message, as it is written."""
        if isinstance(value, OddScalar):
            return f"{shown(value.text)}, which YAML reads as {value.kind}"
        if value is None:
            return "nothing"
        if isinstance(value, bool):
            return self.written.get(path, str(value).lower())
        if isinstance(value, int | float):
            return shown(self.written.get(path, str(value)))
        if isinstance(value, str):
            return quoted(value)
        return "a list" if isinstance(value, list) else "a mapping (key: value)"

    def graft(self, path: KeyPath, other: "Located") -> None:
        """Put another document's value at a key of this one, in place of what is there.

        Args:
            path: A non-empty path whose parent is a mapping of this document.
            other: The document to put there; its places and problems come along.
        """
        parent = self.value
        for part in path[:-1]:
            parent = parent[part]
        parent[path[-1]] = other.value
        for known in (self.places, self.written):
            for below in [key for key in known if key[: len(path)] == path]:
                del known[below]
        self.places.update({path + key: place for key, place in other.places.items()})
        self.written.update({path + key: text for key, text in other.written.items()})
        # What was wrong with the value that is gone does not matter any more.
        self.problems = [problem for problem in self.problems if problem.path[: len(path)] != path]
        self.problems += [Problem(each.place, path + each.path, each.message) for each in other.problems]

    def raise_problems(self) -> None:
        """Raise everything that was found, one line each, in the order in which it is written.

        Raises:
            UsageError: There is at least one problem.
        """
        if not self.problems:
            return
        sources = list(dict.fromkeys(place.source for place in self.places.values()))
        sources += [problem.place.source for problem in self.problems]
        lines = list(
            dict.fromkeys(
                str(problem)
                for problem in sorted(
                    self.problems, key=lambda each: (sources.index(each.place.source), each.place.line or 0)
                )
            )
        )
        if len(lines) > _LISTED_PROBLEMS:
            lines = [*lines[:_LISTED_PROBLEMS], f"... and {len(lines) - _LISTED_PROBLEMS} more like these"]
        raise UsageError("\n".join(lines))


def path_bytes(path: Path | str) -> bytes:
    """Encode a path for the system as UTF-8, as job files write it, whatever the locale.

    Under `LC_ALL=C` Python decodes the command line as ASCII and keeps the other bytes as surrogates; these become what
    they were, so that a folder from the command line and a name from the job make one path.
    """
    return str(path).encode("utf-8", "surrogateescape")


def path_text(path: Path | str) -> str:
    """Write a path for a message."""
    return path_bytes(path).decode("utf-8", "backslashreplace")


def quotes_hint(value: object) -> str:
    """Say, as the end of a message, why a value that was meant as a text is none; empty where quotes do not help."""
    if isinstance(value, bool):
        return "; YAML reads it as a yes or no, put it in quotes"
    if isinstance(value, int | float):
        return "; YAML reads it as a number, put it in quotes"
    if isinstance(value, OddScalar):
        return "; put it in quotes"
    if value is None:
        return "; a text that begins with # needs quotes"
    if isinstance(value, dict):
        return "; a text that begins with { or holds a colon and a space needs quotes"
    return ""


def dotted(path: KeyPath) -> str:
    """Write a path as a person would name it; positions in lists count from one.

    >>> dotted(("engine", "max_length")), dotted(("labels", 2, "hypothesis"))
    ('engine.max_length', 'labels, item 3, hypothesis')
    """
    text = ""
    after_item = False
    for part in path:
        if isinstance(part, int):
            text += f", item {part + 1}" if text else f"item {part + 1}"
        else:
            name = shown(part) if part.isidentifier() else quoted(part)
            text += name if not text else f", {name}" if after_item else f".{name}"
        after_item = isinstance(part, int)
    return text


def quoted(text: str) -> str:
    """Write a text in double quotes, on one line and not too long."""
    return json.dumps(shown(text), ensure_ascii=False)


def shown(text: str) -> str:
    """Cut a text to what a message has room for."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
