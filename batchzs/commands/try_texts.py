"""The command `try`: a few texts scored and shown, for working on labels and templates. Nothing is written.

As in `run`, the command reads its arguments, calls the library and shows what it returns, through `printing`
alone, and heavy libraries are imported inside.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from typing import TYPE_CHECKING, Literal

import click

from batchzs.commands.options import begin, job_options
from batchzs.counted import counted
from batchzs.errors import UsageError
from batchzs.printing import show, show_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchzs.inputs.preview import Preview
    from batchzs.inputs.rows import ShardRows
    from batchzs.job import JobConfig
    from batchzs.plan import Selection

logger = logging.getLogger(__name__)

_ROWS_SHOWN = 5
_ROWS_HELD = 200


@click.command(
    "try",
    epilog="""\b
Example:
  batchzs try jobs/news.yaml --text 央行宣布降准
  batchzs try jobs/news.yaml --rows 3 --template '这篇文章的标题是{}' --template '这是一篇关于{}的报道'
  batchzs try jobs/news.yaml --label 财经 --label '体育=这篇文章说的是比赛' --text 球队昨夜取胜
  batchzs try jobs/news.yaml --truth topic --sample 500 --template '{}' --template '这是{}新闻'
""",
)
@job_options
@click.option("--text", "texts", multiple=True, help="A text to score; may be repeated.")
@click.option(
    "--rows", type=click.IntRange(min=1), metavar="N", help=f"The first N rows of the input; {_ROWS_SHOWN} if absent."
)
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="N rows of the input, drawn at random.")
@click.option("--seed", type=int, help="The seed of --sample, 0 if absent.")
@click.option(
    "--template",
    "templates",
    multiple=True,
    help="A template in place of the job's, with {} for the label; several are compared.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME[=HYPOTHESIS]",
    help="A label in place of the job's; give each one so. A hypothesis is a whole sentence.",
)
@click.option(
    "--truth",
    metavar="COLUMN",
    help="The input's column with the true labels: show how often each wording is right, over --rows or --sample "
    f"({_ROWS_HELD} random rows if absent).",
)
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Show the N best labels.")
@click.option("--ascii", "is_ascii", is_flag=True, help="Draw bars of # in place of block characters.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a text; with --truth, one a wording.")
def try_texts(  # noqa: PLR0913 - one parameter an option
    *,
    job: Path,
    overrides: tuple[str, ...],
    date: str | None,
    offline: bool,
    log_format: Literal["plain", "json"],
    texts: tuple[str, ...],
    rows: int | None,
    sample: int | None,
    seed: int | None,
    templates: tuple[str, ...],
    labels: tuple[str, ...],
    truth: str | None,
    top: int,
    is_ascii: bool,
    as_json: bool,
) -> None:
    """Score a few texts and show their labels, best first, without writing anything.

    The texts are those given, or rows of the job's input. Several templates stand side by side; the labels that a run
    would give are marked. With --truth wordings are held against true labels: accuracy, each label's precision and
    recall, and which label is taken for which.
    """
    _refuse_contradictions(texts, rows, sample, seed, truth)
    config = begin(job, overrides, log_format, date)
    from batchzs.escape import json_line
    from batchzs.plan import Selection
    from batchzs.wordings.bars import Style, format_texts, format_wordings, says_utf8, texts_to_json
    from batchzs.wordings.scored import score_wordings, wordings_of
    from batchzs.wordings.truth import format_judgement, judge, judgement_to_json

    wordings = wordings_of(config, templates, labels)  # what is wrong there is said before anything is read
    if texts:
        source, found = f"{len(texts)} given", _given(texts)
    else:
        if truth is not None and rows is None and sample is None:
            sample = _ROWS_HELD
        limit = None if sample is not None else rows or _ROWS_SHOWN
        selection = Selection(limit, sample, seed or 0)
        preview = _read(config, selection, truth)
        source, found = _describe(preview, selection), preview.rows
    logger.info(
        "loading the model, then scoring %s in %s", counted(found.num_rows, "text"), counted(len(wordings), "wording")
    )
    scored = score_wordings(wordings, found, offline=offline)
    width = max(shutil.get_terminal_size().columns, 40)
    if truth is not None:
        judgement = judge(scored, found, truth)
        if as_json:
            show_lines(json_line(entry) for entry in judgement_to_json(judgement))
        elif show(f"{'texts':<12}{source}"):
            show_lines(format_judgement(judgement, width))
        return
    if as_json:
        show_lines(json_line(entry) for entry in texts_to_json(scored, found))
        return
    style = Style(width, is_ascii or not says_utf8(os.environ), top, _emphasise)
    if show(f"{'texts':<12}{source}") and show_lines(format_wordings(wordings)):
        show_lines(format_texts(scored, found, style))


def _refuse_contradictions(
    texts: Sequence[str], rows: int | None, sample: int | None, seed: int | None, truth: str | None
) -> None:
    if rows is not None and sample is not None:
        raise UsageError("--rows and --sample exclude each other: the first rows, or random ones")
    if seed is not None and sample is None and (truth is None or rows is not None):
        raise UsageError("--seed goes with --sample: how many rows are to be drawn?")
    if texts and (rows is not None or sample is not None):
        raise UsageError("--text and --rows or --sample exclude each other: texts given, or rows of the input")
    if texts and truth is not None:
        raise UsageError("--truth is a column of the input, and --text is none of its rows; leave one of the two out")


def _read(job: JobConfig, selection: Selection, truth: str | None) -> Preview:
    from batchzs.inputs.discovery import find_files
    from batchzs.inputs.preview import read_preview
    from batchzs.prepare import read_spec

    spec = read_spec(job)
    return read_preview(spec, find_files(spec, exclude=[job.output.path]), selection, truth)


def _given(texts: Sequence[str]) -> ShardRows:
    """Texts of the command line as rows from nowhere."""
    import numpy as np
    import polars as pl

    from batchzs.inputs.rows import OK, ShardRows

    # What the shell hands over in another encoding than UTF-8 comes as halves of surrogate pairs.
    return ShardRows(
        texts=[text.encode(errors="surrogateescape").decode(errors="replace") for text in texts],
        statuses=[OK] * len(texts),
        reasons=[None] * len(texts),
        carried=pl.DataFrame(),
        source_files=[""] * len(texts),
        source_rows=np.arange(len(texts), dtype=np.int64),
    )


def _describe(preview: Preview, selection: Selection) -> str:
    """Which rows they are, and what of the input was looked at for them."""
    num_rows = preview.rows.num_rows
    files = f"{preview.num_seen_files:,} of {counted(preview.num_files, 'file')}"
    if selection.sample is None:
        return f"the first {counted(num_rows, 'row')} of the input, from {files}"
    seen = f"{preview.num_seen_rows:,} rows" + ("" if preview.is_whole else f" at the beginning of {files}")
    if not preview.is_whole and preview.num_seen_files < preview.num_files:
        seen = f"{preview.num_seen_rows:,} rows of {files}"
    return f"{num_rows:,} of {seen}, drawn at random with seed {selection.seed}"


def _emphasise(text: str) -> str:
    """Bold, on a terminal whose user does not object."""
    is_wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return click.style(text, bold=True) if is_wanted else text
