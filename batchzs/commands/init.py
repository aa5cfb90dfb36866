"""The command that writes a first job file: `init`.

It looks at the input, guesses what can be guessed, takes the rest from options or, on a terminal, asks. As in `cli`,
what comes from files is escaped before it is shown, and heavy libraries are imported inside.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchzs.errors import UsageError
from batchzs.logs import log_to_stream
from batchzs.printing import show_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from batchzs.first_job.guess import Column
    from batchzs.first_job.input_look import LookedAt
    from batchzs.first_job.job_template import JobDraft

_DEFAULT_MODEL = "damo/nlp_structbert_zero-shot-classification_chinese-base"
#: The keys of `job_template.TEMPLATES`, which is not imported for `--help`; a test holds them together.
KINDS = ("headline", "article", "comment", "review", "ticket", "message", "post", "question")


@click.command(
    epilog="""\b
Example:
  batchzs init sample_data/news.csv
  batchzs init news.csv --labels 财经,体育 --kind headline --model models/structbert
"""
)
@click.argument("source", metavar="INPUT", type=click.Path(path_type=Path))
@click.option("--labels", metavar="A,B,C", help="The labels, or a .txt, .csv or .yaml file with them.")
@click.option("--kind", type=click.Choice(KINDS), help="What kind of text it is; the template goes by it.")
@click.option("--text", multiple=True, metavar="COLUMN", help="The column with the text; several are joined.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column to carry into the output; may be repeated.")
@click.option(
    "--model", default=_DEFAULT_MODEL, show_default=True, help="A checkpoint's directory or a hub model's id."
)
@click.option("--output", type=click.Path(path_type=Path), help="Where results go; out/NAME if absent.")
@click.option("--to", type=click.Path(path_type=Path), help="The job file to write; NAME.yaml if absent.")
@click.option("--force", is_flag=True, help="Overwrite a job file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the file, and what stands in it and why.")
def init(  # noqa: PLR0913 - one parameter an option
    *,
    source: Path,
    labels: str | None,
    kind: str | None,
    text: tuple[str, ...],
    keep: tuple[str, ...],
    model: str,
    output: Path | None,
    to: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Look at INPUT, a file or a directory, and write a job file for it, with the reason for each choice.

    Asks for what is missing on a terminal; without one, --labels and --kind have to be given.
    """
    log_to_stream(sys.stderr, "plain")
    asks = sys.stdin is not None and sys.stdin.isatty()
    missing = [name for name, value in (("--labels", labels), ("--kind", kind)) if value is None]
    if missing and not asks:
        raise UsageError(f"{' and '.join(missing)}: missing, and there is no terminal to ask on")
    target = to if to is not None else Path(f"{source.absolute().stem}.yaml")
    if target.exists() and not force:
        raise UsageError(f"{target}: is there already: choose another name with --to, or overwrite it with --force")
    from batchzs.escape import json_line
    from batchzs.first_job.input_look import look_at
    from batchzs.first_job.job_template import JobDraft, draft_to_json, job_text, write_job

    looked = look_at(source)
    texts, reason = _text_columns(looked, text, asks=asks)
    if labels is None:
        labels = str(click.prompt("Labels, with commas between them, or a file with them", err=True))
    if kind is None:
        kind = str(click.prompt("What kind of text is it", type=click.Choice(KINDS), err=True))
    draft = JobDraft(
        input=looked,
        text=texts,
        text_reason=reason,
        keep=_kept_columns(looked, keep, texts),
        labels=_labels(labels),
        kind=kind,
        model=_model(model),
        output=output if output is not None else Path("out", target.stem),
    )
    write_job(job_text(draft, target.absolute().parent), target, force=force)
    show_lines([json_line(draft_to_json(draft, target))] if as_json else _next_steps(target, draft))


def _text_columns(looked: LookedAt, stated: Sequence[str], *, asks: bool) -> tuple[tuple[str, ...], str]:
    """The columns of the text, and why these."""
    from batchzs.first_job.guess import guess_text_column

    names = [column.name for column in looked.columns]
    if stated:
        _refuse_unknown(stated, names, "--text")
        return tuple(stated), "as given"
    guess = guess_text_column(looked.columns)
    if guess is None:
        raise UsageError(f"--text: no column of the input seems to hold texts; its columns are: {_list(names)}")
    reason = (
        f"of {len(names)} columns the one with the longest distinct texts, {guess.mean_characters:.0f} characters on "
        "average"
    )
    if asks and len(names) > 1:
        chosen = str(click.prompt(f"The column with the text ({_list(names)})", default=guess.name, err=True))
        _refuse_unknown([chosen], names, "--text")
        if chosen != guess.name:
            return (chosen,), "as given"
    return (guess.name,), reason


def _kept_columns(looked: LookedAt, stated: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    from batchzs.first_job.guess import guess_kept
    from batchzs.job import ADDED_COLUMNS

    names = [column.name for column in looked.columns]
    if stated:
        # A name may hold a comma; what is no name is taken for a list of them.
        kept = [one for name in stated for one in ([name] if name in names else name.split(","))]
        _refuse_unknown(kept, names, "--keep")
        return tuple(dict.fromkeys(kept))
    columns: list[Column] = [column for column in looked.columns if column.name not in ADDED_COLUMNS]
    return tuple(guess_kept(columns, texts[0]))


def _labels(given: str) -> tuple[str, ...] | Path:
    if given.lower().endswith((".txt", ".csv", ".yaml")):
        path = Path(given)
        if not path.is_file():
            raise UsageError(f"--labels: {given}: there is no such file")
        return path
    names = tuple(name.strip() for name in re.split("[,，、]", given) if name.strip())
    if not names:
        raise UsageError("--labels: there is no label in it, expected some with commas between them")
    return names


def _model(given: str) -> Path | str:
    path = Path(given)
    if path.is_dir():
        return path
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", given):
        return given
    raise UsageError(f"--model: {given}: is neither a directory nor a hub model's id, owner/name")


def _refuse_unknown(chosen: Sequence[str], names: Sequence[str], option: str) -> None:
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise UsageError(f"{option}: the input has no column {_list(unknown)}; its columns are: {_list(names)}")


def _list(names: Sequence[str]) -> str:
    from batchzs.escape import escaped

    return ", ".join(map(escaped, names))


def _next_steps(target: Path, draft: JobDraft) -> Iterator[str]:
    job = shlex.quote(str(target))
    yield f"wrote {_list([str(target)])}: look it through, then"
    if isinstance(draft.model, str):
        yield f"  batchzs fetch {job}                     # get the model"
    yield f"  batchzs plan {job} --probe              # what it will take"
    yield f"  batchzs run {job} --sample 200 --set output.path=out/try    # a first look at scores"
    yield f"  batchzs run {job}"
