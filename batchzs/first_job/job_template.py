"""The text of a new job file, with the reason for each choice beside it.

Texts from the input go in with whatever quotes YAML needs. The text is pure; `write_job` puts it on disk once the job's
own reader takes it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchzs.display_width import display_width
from batchzs.errors import MachineError, UsageError
from batchzs.job import load_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchzs.first_job.input_look import LookedAt

#: Kinds of text and a hypothesis that suits each.
TEMPLATES: Mapping[str, str] = {
    "headline": "这篇文章的标题是{}",
    "article": "这篇文章的主题是{}",
    "comment": "这条评论说的是{}",
    "review": "这条评价说的是{}",
    "ticket": "这条工单反映的问题是{}",
    "message": "这条消息说的是{}",
    "post": "这条微博说的是{}",
    "question": "这个问题问的是{}",
}
_WIDTH = 100
_PLAIN = re.compile(r"[^\W\d_][\w]*(?:-\w+)*")
#: What YAML takes for something else than a text.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
#: What may not stand in YAML as it is, even in quotes; JSON escapes what comes before.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class JobDraft:
    """What a new job file is to say. Paths are as they resolve from the working directory."""

    input: LookedAt
    text: tuple[str, ...]
    text_reason: str
    keep: tuple[str, ...]
    labels: tuple[str, ...] | Path  # or a file of them
    kind: str  # a key of `TEMPLATES`
    model: Path | str  # a directory, or a hub model's id
    output: Path


def yaml_text(text: str) -> str:
    r"""Write a text so that YAML reads that text, in quotes where it would take it for something else.

    >>> print(yaml_text("财经"), yaml_text("no"), yaml_text("12"), yaml_text("a: \u2028b"))
    财经 "no" "12" "a: \u2028b"
    """
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and text.isprintable():
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", quoted)


def job_text(draft: JobDraft, folder: Path) -> str:
    """Write the job file's text.

    Args:
        draft: what it says.
        folder: where the file will lie; paths in it are relative to that.
    """
    looked = draft.input
    lines = [
        "# Before a run: batchzs plan THIS_FILE; every key: docs/job.md. Paths start from this file's folder.",
        "input:",
        _line(f"path: {_path(looked.path, folder)}", f"looked at {looked.num_rows:,} rows"),
    ]
    if looked.names_format:
        lines.append(_line(f"format: {looked.format}", "by its content; its ending tells no format"))
    text = yaml_text(draft.text[0]) if len(draft.text) == 1 else _flow(draft.text)
    lines.append(_line(f"text: {text}", draft.text_reason))
    if draft.keep:
        lines.append(_line(f"keep: {_flow(draft.keep)}", "columns carried into the output"))
    else:
        lines.append(
            "  # keep: [id]   # columns to carry into the output; rows are told by file and position in any case"
        )
    if looked.encoding != "utf-8":
        lines.append(_line(f"encoding: {looked.encoding}", "by its bytes; plan shows texts that look wrongly decoded"))
    lines += _csv_lines(looked)
    lines += _label_lines(draft, folder)
    lines.append(f"template: {yaml_text(TEMPLATES[draft.kind])}   # for a {draft.kind}; {{}} stands for the label")
    lines.append("model:")
    if isinstance(draft.model, Path):
        lines.append(_line(f"path: {_path(draft.model, folder)}", "the checkpoint's directory"))
    else:
        lines.append(_line(f"id: {yaml_text(draft.model)}", "of ModelScope's hub; batchzs fetch gets it"))
    lines += ["output:", _line(f"path: {_path(draft.output, folder)}", "a directory; scores/ in it has the results")]
    return "\n".join(lines) + "\n"


def draft_to_json(draft: JobDraft, path: Path) -> dict[str, Any]:
    """What a new job file says, and what that goes by, as values for JSON.

    Args:
        draft: what it says.
        path: where the file lies.
    """
    looked = draft.input
    is_delimited = looked.format in ("csv", "tsv")
    return {
        "job": str(path.absolute()),
        "input": {
            "path": str(looked.path.absolute()),
            "num_rows_looked_at": looked.num_rows,
            "format": looked.format,
            "format_by": "content" if looked.names_format else "name",
            "encoding": looked.encoding,
            "delimiter": looked.delimiter if is_delimited else None,
            "has_header": looked.header if is_delimited else None,
            "has_quotes": looked.quoted if is_delimited else None,
            "columns": [
                {
                    "name": column.name,
                    "is_text": column.is_text,
                    "mean_characters": round(column.mean_characters, 1),
                    "distinct_share": round(column.distinct_share, 4),
                }
                for column in looked.columns
            ],
        },
        "text": list(draft.text),
        "text_reason": draft.text_reason,
        "keep": list(draft.keep),
        "labels": None if isinstance(draft.labels, Path) else list(draft.labels),
        "labels_path": str(draft.labels.absolute()) if isinstance(draft.labels, Path) else None,
        "kind": draft.kind,
        "template": TEMPLATES[draft.kind],
        "model_path": str(draft.model.absolute()) if isinstance(draft.model, Path) else None,
        "model_id": draft.model if isinstance(draft.model, str) else None,
        "output": str(draft.output.absolute()),
    }


def write_job(text: str, path: Path, *, force: bool) -> None:
    """Put a new job file in its place, once it is seen that it loads.

    Args:
        text: the file's.
        path: where it goes.
        force: put it over a file that is there.

    Raises:
        UsageError: the job would be wrong, or a file is there.
        MachineError: it cannot be written.
    """
    if path.exists() and not force:
        raise UsageError(f"{path}: is there already: choose another name with --to, or overwrite it with --force")
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        load_job(draft)
        draft.replace(path)
    except UsageError as exc:
        raise UsageError(str(exc).replace(str(draft), str(path))) from exc
    except (OSError, UnicodeEncodeError) as exc:
        raise MachineError(f"{path}: cannot be written: {getattr(exc, 'strerror', None) or exc}") from exc
    finally:
        draft.unlink(missing_ok=True)


def _line(entry: str, reason: str) -> str:
    return f"  {entry}   # {reason}"


def _flow(texts: Sequence[str]) -> str:
    return f"[{', '.join(yaml_text(text) for text in texts)}]"


def _path(path: Path, folder: Path) -> str:
    relative = os.path.relpath(path.absolute(), folder.absolute())
    # What begins like a variable or a home directory is no path to a job's reader.
    return yaml_text(f"./{relative}" if relative.startswith(("~", "$")) else relative)


def _csv_lines(looked: LookedAt) -> list[str]:
    if looked.format not in ("csv", "tsv"):
        return []
    settings = []
    if looked.format == "csv" and looked.delimiter != ",":
        settings.append(f"    delimiter: {json.dumps(looked.delimiter)}")
    if not looked.quoted:
        settings.append("    quote: null   # each line is a text, quotes in it too")
    if not looked.header:
        settings.append("    header: false   # the first line seems to be a row: columns are column_0, column_1, ...")
    return ["  csv:", *settings] if settings else []


def _label_lines(draft: JobDraft, folder: Path) -> list[str]:
    if isinstance(draft.labels, Path):
        return [f"labels: {_path(draft.labels, folder)}"]
    line = f"labels: {_flow(draft.labels)}"
    if display_width(line) <= _WIDTH:
        return [line]
    return ["labels:", *(f"  - {yaml_text(label)}" for label in draft.labels)]
