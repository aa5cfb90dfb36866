"""YAML to plain data with the line of every key, read strictly.

PyYAML parses; this module decides what comes out of it. Only mappings with text keys, lists, texts, whole and decimal
numbers, yes/no and null exist. What YAML 1.1 makes of unquoted values and nobody means (dates, octal and sexagesimal
numbers, infinity) comes out as an `OddScalar`, so that the key that finds it can ask for quotes. Keys given twice,
tags and merge keys are problems. No object is ever constructed, and aliases cannot blow a small file up.

It knows no key of the job, and it does not depend on the locale: bytes are decoded as UTF-8, with or without a BOM.
"""

import codecs
import math
import re
from pathlib import Path
from typing import Any

import yaml

from batchzs.errors import UsageError
from batchzs.located import KeyPath, Located, OddScalar, Place, Problem, path_bytes, path_text, shown

#: The job file and a file of labels are written by people. What is larger was named by mistake.
_MAX_FILE_BYTES = 4 * 2**20

#: Values in one document, counted after aliases are expanded: nine nested aliases make a billion out of 200 bytes.
_MAX_VALUES = 50_000

#: A job nests four levels. Python's own stack would end at a few hundred.
_MAX_DEPTH = 32

_TAG = "tag:yaml.org,2002:"
_WHOLE_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,30})")

_UTF16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # UTF-32-LE begins as UTF-16-LE does


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, used to compose nodes alone, with a floor under its recursion."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"lists and mappings are nested more than {_MAX_DEPTH} deep",
                problem_mark=self.get_mark(),
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


# YAML 1.1 takes 1e-3 for a text, because it has no point.
_Loader.add_implicit_resolver(f"{_TAG}float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789"))


def read_utf8(path: Path) -> str:
    """Read a small file that a person wrote.

    Args:
        path: The file; in messages it stands as it is given here.

    Returns:
        Its text without a byte order mark.

    Raises:
        UsageError: The file is missing, unreadable, too large, or not UTF-8.
    """
    shown_path = path_text(path)
    try:
        with open(path_bytes(path), "rb") as file:  # noqa: PTH123  Path encodes as the locale says
            raw = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError as exc:
        raise UsageError(f"{shown_path}: there is no such file; check the path") from exc
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise UsageError(f"{shown_path}: cannot be read: {reason}") from exc
    if len(raw) > _MAX_FILE_BYTES:
        raise UsageError(f"{shown_path}: larger than {_MAX_FILE_BYTES // 2**20} MiB; is this the right file?")
    if raw.startswith(_UTF16_OR_32) or b"\0" in raw:
        raise UsageError(f"{shown_path}: not UTF-8 text (it looks like UTF-16, or is no text); save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        # With a BOM the position counts from behind it.
        good = exc.start + (len(codecs.BOM_UTF8) if raw.startswith(codecs.BOM_UTF8) else 0)
        line = raw.count(b"\n", 0, good) + 1
        hint = "save it as UTF-8"
        if good == exc.start and _decodes_as_gb18030(raw):
            hint = "it reads as GB18030; convert it: iconv -f gb18030 -t utf-8 OLD > NEW"
        raise UsageError(f"{shown_path}:{line}: not UTF-8: byte {raw[good]:#04x} at offset {good}; {hint}") from exc


def read_yaml(path: Path) -> Located:
    """Read a YAML file, whose places name it.

    Raises:
        UsageError: As `read_utf8` and `parse_yaml`.
    """
    return parse_yaml(read_utf8(path), Place(path_text(path), path.absolute().parent, line=1))


def parse_yaml(text: str, place: Place) -> Located:
    """Parse one YAML document.

    Args:
        text: The document.
        place: What the text is. Lines are named only where it comes from a file, that is where `place.line` is set
            (to any number).

    Returns:
        Plain data (None for an empty document), with the problems that leave the rest readable.

    Raises:
        UsageError: It is not YAML, or larger than any job is.
    """
    try:
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as exc:
        raise UsageError(_syntax_message(exc, text, place)) from exc
    except yaml.reader.ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        where = Place(place.source, place.base, None if place.line is None else line)
        raise UsageError(f"{where}: character {exc.character:#06x} may not stand in YAML; remove it") from exc
    except (ValueError, OverflowError) as exc:  # "\UFFFFFFFF" and its like reach chr() unchecked
        raise UsageError(f"{place.source}: not valid YAML: an escape in double quotes is no character") from exc
    document = Located(value=None, places={(): Place(place.source, place.base)})
    if root is not None:
        document.value = _Builder(document, place).build(root, ())
    return document


class _Builder:
    """Turns PyYAML's nodes into plain data, noting lines and problems in a document."""

    def __init__(self, document: Located, place: Place) -> None:
        self.document = document
        self.origin = place
        self.num_values = 0

    def place(self, node: yaml.Node) -> Place:
        line = None if self.origin.line is None else node.start_mark.line + 1
        return Place(self.origin.source, self.origin.base, line)

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.num_values += 1
        if self.num_values > _MAX_VALUES or len(path) > _MAX_DEPTH:
            raise UsageError(
                f"{self.place(node)}: more than {_MAX_VALUES:,} values, or an alias (*name) that holds itself; "
                "write the values out, and put long lists of labels into a .txt file"
            )
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return self.sequence(node, path)
        if isinstance(node, yaml.ScalarNode) and kind in {
            *("str", "int", "float", "bool", "null"),
            *("timestamp", "value", "merge"),  # a date, a lone =, and << where no key is
        }:
            return self.scalar(node, kind, path)
        self.document.report(path, f"the YAML tag {shown(node.tag)} is not allowed here; write the plain value")
        return None

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self.place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                message = "a key must be a plain word; a text that begins with ? or { needs quotes"
                self.document.problems.append(Problem(place, path, message))
                continue
            key = _joined(key_node.value)
            if key is None or key_node.tag == f"{_TAG}merge":
                key = _ascii(shown(key_node.value))
                self.document.places.setdefault((*path, key), place)
                self.document.report(
                    (*path, key), "no key of a job; YAML's merging (<<) is not supported, write it out"
                )
                continue
            key_path = (*path, key)
            if key in result:
                first = self.document.places[key_path].line
                where = "" if first is None else f", first on line {first}"
                # The key's own place stays where its value is taken from, the first one.
                self.document.problems.append(Problem(place, key_path, f"given twice{where}; keep one of the two"))
                continue
            self.document.places[key_path] = place
            result[key] = self.build(value_node, key_path)
        return result

    def sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        result = []
        for index, item in enumerate(node.value):
            self.document.places[(*path, index)] = self.place(item)
            result.append(self.build(item, (*path, index)))
        return result

    def scalar(self, node: yaml.ScalarNode, kind: str, path: KeyPath) -> str | float | bool | OddScalar | None:
        value = _plain_value(node.value, kind)
        if not isinstance(value, str | OddScalar):
            self.document.written[path] = node.value
        return value


def _plain_value(text: str, kind: str) -> str | float | bool | OddScalar | None:
    kinds = {"timestamp": "a date", "int": "a number that is not written in plain decimal digits"}
    value: str | float | bool | OddScalar | None = OddScalar(text, kinds.get(kind, "something else than its tag says"))
    if kind in {"str", "value", "merge"}:
        joined = _joined(text)
        value = OddScalar(_ascii(text), "half a character (a lone surrogate)") if joined is None else joined
    elif kind == "null" and text.lower() in {"", "~", "null"}:
        value = None
    elif kind == "bool" and text.lower() in yaml.SafeLoader.bool_values:
        value = yaml.SafeLoader.bool_values[text.lower()]
    elif kind == "int" and _WHOLE_NUMBER.fullmatch(text):
        value = int(text.replace("_", ""))
    elif kind == "float":
        value = _plain_float(text)
    return value


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _plain_float(text: str) -> float | OddScalar:
    try:
        number = float(text.replace("_", ""))
    except ValueError:  # .inf, .nan, and 1:30.5, which YAML 1.1 counts in sixties
        number = math.inf
    return number if math.isfinite(number) else OddScalar(text, "a number that is not finite or not decimal")


def _joined(text: str) -> str | None:
    """Join surrogate pairs, as JSON escapes make them; None where a half is alone and no UTF-8 file could hold it."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


def _decodes_as_gb18030(raw: bytes) -> bool:
    try:
        raw.decode("gb18030")
    except UnicodeDecodeError:
        return False
    return True


def _syntax_message(exc: yaml.MarkedYAMLError, text: str, place: Place) -> str:
    mark = exc.problem_mark or exc.context_mark
    problem = exc.problem or "it ends too early"
    where, hint = (
        place.source,
        "put a value in quotes that begins with one of [ { * & ! % @ ` | > or holds ': ' or ' #'",
    )
    if mark is not None:
        where = f"{place}:" if place.line is None else f"{place.source}:{mark.line + 1}:{mark.column + 1}"
        where = where.rstrip(":")
        lines = text.splitlines()
        nearby = "\n".join(lines[max(mark.line - 1, 0) : mark.line + 1])
        if "\\t" in problem:
            hint = "indent with spaces, not with tabs"
        elif "nested" in problem:
            hint = "a job nests four levels at most"
        elif "single document" in (exc.context or ""):
            hint = "a file holds one job; remove the line ---"
        elif "alias" in problem or "anchor" in problem:
            hint = "a value that begins with * or & needs quotes"
        elif "：" in nearby:
            hint = "is a full-width ： meant to be : and a space?"
    return f"{where}: not valid YAML: {problem}; {hint}"
