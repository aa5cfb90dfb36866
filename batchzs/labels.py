"""Candidate labels and their hypotheses: from the job's list, or from a .txt, .csv or .yaml file.

A hypothesis is the template with the label's name put in for `{}`, or the sentence that the label brings along. The
name is put in by replacement, never by `str.format`, so a label may hold braces, and a template reaches nothing.

Nothing is ever split: a comma inside a label belongs to it. Names are stripped of white space around them; two names
that are the same after Unicode normalisation (NFC), or two equal hypotheses, are refused, since their scores would
tie. Whether a hypothesis fits the model is decided where there is a tokenizer, not here.
"""

import csv
import io
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from batchzs.errors import UsageError
from batchzs.located import KeyPath, Located, Place, Problem, path_text, quoted, quotes_hint
from batchzs.yaml_lines import parse_yaml, read_utf8

LABEL_FILE_SUFFIXES = (".csv", ".txt", ".yaml")

#: A label's checked name and hypothesis.
NamedHypothesis: TypeAlias = tuple[str, str]

#: Spaces, control and format characters: a name of these alone looks empty.
_INVISIBLE = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})


def template_fault(template: str) -> str | None:
    """Say what is wrong with a hypothesis template.

    Args:
        template: A sentence with one place for the label.

    Returns:
        The fault and what to do, or None for a good template.

    >>> template_fault("这篇文章的标题是{}") is None
    True
    """
    if template.count("{}") == 1 and not set(template.replace("{}", "")) & {"{", "}"}:
        return None
    return f"found {quoted(template)}, expected a sentence with exactly one {{}} for the label and no other brace"


def fill_template(template: str, name: str) -> str:
    """Put a label's name into a template.

    >>> fill_template("这篇文章的标题是{}", "财经,股市 {x}")
    '这篇文章的标题是财经,股市 {x}'
    """
    return template.replace("{}", name, 1)


def read_label_file(path: Path) -> Located:
    """Read labels from a file.

    Args:
        path: A `.txt` with one label a line (blank lines are skipped, `#` is a character like any other); a `.csv`
            with the header `name` or `name,hypothesis`; or a `.yaml` with a list as the job file takes it.

    Returns:
        The labels as they would stand in the job, each with its line.

    Raises:
        UsageError: The file cannot be read or parsed.
    """
    text = read_utf8(path)
    suffix = path.suffix.lower()
    if suffix == ".yaml":
        return parse_yaml(text, Place(path_text(path), path.parent, line=1))
    labels = Located(value=[], places={(): Place(path_text(path), path.parent)})
    if suffix == ".csv":
        _read_csv(text, path, labels)
    else:
        # Only \n, \r\n and \r end a line; str.splitlines would cut at others that a label may hold.
        for line, name in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
            if name.strip():
                labels.places[(len(labels.value),)] = Place(path_text(path), path.parent, line)
                labels.value.append(name)
    return labels


def _read_csv(text: str, path: Path, labels: Located) -> None:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    line = 1  # of the record that comes next
    try:
        for record in reader:
            fields, place = [cell.strip() for cell in record], Place(path_text(path), path.parent, line)
            line = reader.line_num + 1
            if not any(fields):
                continue
            if header is None:
                header = fields
                if header not in (["name"], ["name", "hypothesis"]):
                    raise UsageError(
                        f"{place}: found the header {quoted(','.join(fields))}, expected name or name,hypothesis"
                    )
            elif len(fields) != len(header):
                message = f"found {len(fields)} fields, expected {len(header)}; put a label with a comma in quotes"
                labels.problems.append(Problem(place, (), message))
            else:
                labels.places[(len(labels.value),)] = place
                # An empty hypothesis cell means the template, as an absent key does in YAML.
                labels.value.append(
                    {key: cell for key, cell in zip(header, fields, strict=True) if cell or key == "name"}
                )
    except csv.Error as exc:
        raise UsageError(f"{path_text(path)}:{reader.line_num}: not valid CSV: {exc}; check the quotes") from exc


def checked_labels(job: Located, template: str | None) -> list[NamedHypothesis] | None:
    """Check the labels of a job, from its list or from the file it names, reporting every problem at its line.

    Args:
        job: The job; its root is a mapping, and a path at `labels` is absolute.
        template: What names are filled into; None where the template itself is faulty, and equal hypotheses are then
            not looked for.

    Returns:
        The good labels, in order: all of them if no problem was reported. None if there is nothing to check.
    """
    labels = job.value.get("labels")
    if labels is None:
        return None
    if isinstance(labels, str) and any(problem.path == ("labels",) for problem in job.problems):
        return None  # no good path
    if isinstance(labels, str) and labels.lower().endswith(LABEL_FILE_SUFFIXES):
        try:
            job.graft(("labels",), read_label_file(Path(labels)))
        except UsageError as exc:
            job.report(("labels",), str(exc))
            return None
        labels = job.value["labels"]
    if not isinstance(labels, list):
        found = job.found(("labels",), labels)
        message = f"found {found}, expected a list, such as [财经, 体育], or the path of a .csv, .txt or .yaml file"
        job.report(("labels",), message)
        return None
    if not labels and not any(problem.path[:1] == ("labels",) for problem in job.problems):
        job.report(("labels",), "found no label, expected at least one")
    checked = [_check_label(job, index, label, template) for index, label in enumerate(labels)]
    same_name = _report_repeated(job, [label and label[0] for label in checked], "the same name as", frozenset())
    if template is not None:
        _report_repeated(job, [label and label[1] for label in checked], "the same hypothesis as", same_name)
    return [label for label in checked if label is not None]


def _check_label(job: Located, index: int, label: object, template: str | None) -> NamedHypothesis | None:
    path: KeyPath = ("labels", index)
    hypothesis: Any = None
    if isinstance(label, dict):
        unknown = [key for key in label if key not in {"name", "hypothesis"}]
        if unknown:
            message = (
                f"found the key {quoted(unknown[0])}, expected name and hypothesis; a label with a colon needs quotes"
            )
            job.report((*path, unknown[0]), message)
            return None
        if "name" not in label:
            job.report(path, "the key name is missing, expected {name, hypothesis}")
            return None
        hypothesis = label.get("hypothesis")
        if hypothesis is not None:
            hypothesis = _check_text(job, (*path, "hypothesis"), hypothesis)
            if hypothesis is None:
                return None
            if "{}" in hypothesis:
                message = "{} is filled in the template alone; write the whole sentence with its label"
                job.report((*path, "hypothesis"), message)
                return None
        path, label = (*path, "name"), label["name"]
    name = _check_text(job, path, label)
    if name is None:
        return None
    return name, hypothesis or fill_template(template or "{}", name)


def _check_text(job: Located, path: KeyPath, text: object) -> str | None:
    """Return a stripped text with something to see in it, or report why there is none."""
    if isinstance(text, str):
        if all(unicodedata.category(character) in _INVISIBLE for character in text):
            job.report(path, f"found {quoted(text)}, which is empty; remove it or write something")
            return None
        return text.strip()
    job.report(path, f"found {job.found(path, text)}, expected a text{quotes_hint(text)}")
    return None


def _report_repeated(job: Located, texts: Sequence[str | None], what: str, known: frozenset[int]) -> frozenset[int]:
    """Report texts that are the same as an earlier one, but not at positions whose fault is known; return positions."""
    first_at: dict[str, int] = {}
    repeated = set()
    for index, text in enumerate(texts):
        if text is None or index in known:
            continue
        first = first_at.setdefault(unicodedata.normalize("NFC", text), index)
        if first != index:
            place = job.place(("labels", first))
            where = "" if place.line is None else f" (line {place.line})"
            job.report(("labels", index), f"{quoted(text)} is {what} item {first + 1}{where}; remove one of the two")
            repeated.add(index)
    return frozenset(repeated)
