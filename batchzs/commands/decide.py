"""The commands on finished results: `decide`, and `compare`.

As in `cli`, a command reads its arguments, calls the library and shows what it returns through `printing`; heavy
libraries are imported inside. What comes from files is escaped before it is shown.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchzs.errors import UsageError
from batchzs.logs import log_to_stream
from batchzs.printing import show, show_lines

if TYPE_CHECKING:
    from batchzs.decide.decider import Decided
    from batchzs.truth.metrics import PrecisionThreshold, TruthReport

_SHARE = click.FloatRange(0, 1)


@click.command(
    epilog="""\b
Example:
  batchzs decide out/news --to out/news-strict --threshold 0.8 --other 其他
  batchzs decide out/news --to out/news-few --merge 文体=文化,体育 --labels 文体,财经
  batchzs decide out/news --truth topic --precision 0.95
"""
)
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), metavar="FOLDER", help="Where the new labels go, or nowhere.")
@click.option("--threshold", metavar="X", help="Labels count from this score on; or none.")
@click.option("--multi-label/--single-label", "multi_label", default=None, help="Decide every label by itself, or one.")
@click.option("--labels", multiple=True, metavar="A,B", help="Only these labels, in this order; may be repeated.")
@click.option("--merge", multiple=True, metavar="C=A,B", help="Make one label of several; may be repeated.")
@click.option("--other", metavar="NAME", help="The label of rows that none fits.")
@click.option("--other-below", type=_SHARE, metavar="X", help="None fits below this score; absent: the threshold.")
@click.option("--other-margin", type=_SHARE, metavar="X", help="None fits where the two best are nearer than this.")
@click.option("--priors", type=click.Choice(["batch", "content-free"]), help="Correct scores by the labels' mean ones.")
@click.option("--priors-from", type=click.Path(path_type=Path), metavar="OUTPUT", help="Scored texts that say nothing.")
@click.option("--truth", metavar="COLUMN", help="Hold the labels against this column, carried or in the input.")
@click.option("--precision", type=_SHARE, metavar="P", help="With --truth: find the threshold for this precision.")
@click.option("--restart", is_flag=True, help="Replace what another `decide` wrote into FOLDER.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def decide(  # noqa: PLR0913 - one parameter an option
    *,
    output: Path,
    to: Path | None,
    threshold: str | None,
    multi_label: bool | None,
    labels: tuple[str, ...],
    merge: tuple[str, ...],
    other: str | None,
    other_below: float | None,
    other_margin: float | None,
    priors: str | None,
    priors_from: Path | None,
    truth: str | None,
    precision: float | None,
    restart: bool,
    as_json: bool,
) -> None:
    """Make labels again from a finished OUTPUT's stored logits, without a model.

    What is not asked for stays as the run had it. OUTPUT itself is not changed; FOLDER gets the same rows in an output
    of the same shape.
    """
    if precision is not None and truth is None:
        raise UsageError("--precision goes with --truth COLUMN: against what is it measured?")
    if restart and to is None:
        raise UsageError("--restart goes with --to FOLDER: what is to be replaced?")
    log_to_stream(sys.stderr, "plain")
    from batchzs.libraries import refuse_old_libraries

    refuse_old_libraries()
    from batchzs.decide.decider import DecideRequest, decide_shards, prepare_decision
    from batchzs.decide.output import refuse_overlap
    from batchzs.decide.settings import DecideOptions, settle
    from batchzs.decide.source import open_source
    from batchzs.decide.text import decided_to_json, format_decided
    from batchzs.escape import escaped, json_line
    from batchzs.truth.column import open_truth
    from batchzs.truth.text import format_truth, truth_to_json

    options = DecideOptions(
        threshold=threshold,
        multi_label=multi_label,
        labels=labels,
        merge=merge,
        other=other,
        other_below=other_below,
        other_margin=other_margin,
        priors=priors,
        priors_from=priors_from,
    )
    if to is not None:
        refuse_overlap(output, to)
    source = open_source(output)
    settings = settle(source, options, (to or output).absolute())
    column = None if truth is None else open_truth(source, truth)
    decider = prepare_decision(DecideRequest(source, settings, options, to, column))
    result = decide_shards(decider, writes=to is not None, restart=restart)
    held = None if column is None else _held_against_truth(result, precision)
    if as_json:
        found = None if held is None else truth_to_json(*held)
        show(json_line(decided_to_json(decider, result, writes=to is not None) | {"truth": found}))
        return
    lines = format_decided(decider, result, writes=to is not None)
    if held is not None:
        lines += ["", *format_truth(*held, precision)]
    show_lines(escaped(line) for line in lines)


def _held_against_truth(result: Decided, precision: float | None) -> tuple[TruthReport, PrecisionThreshold | None]:
    """Hold the labels of all rows whose truth is known against it."""
    import polars as pl

    from batchzs.truth.metrics import hold_rows

    report, found = hold_rows(pl.concat(result.against_truth), precision)
    return replace(report, num_unknown=result.num_unknown), found


@click.command(
    epilog="""\b
Example:
  batchzs compare out/news out/news-large
  batchzs compare out/news out/news-bf16 --rows 20
"""
)
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--rows", type=click.IntRange(min=0), default=0, metavar="N", help="Show the N rows that moved most.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(*, old: Path, new: Path, rows: int, as_json: bool) -> None:
    """Compare two outputs over the same rows: of another model, template or precision, or of `decide`.

    Which labels changed, from what to what, how the labels' shares drifted. As `diff` does, it ends with 0 where every
    row has the same label in both, and otherwise with a code of its own, 9.
    """
    log_to_stream(sys.stderr, "plain")
    from batchzs.libraries import refuse_old_libraries

    refuse_old_libraries()
    from batchzs.compare.comparison import compare_runs, refuse_differences
    from batchzs.compare.moved_texts import read_moved_texts
    from batchzs.compare.text import comparison_to_json, format_comparison
    from batchzs.escape import escaped, json_line
    from batchzs.finished import open_run

    result = compare_runs(open_run(old), open_run(new), rows)
    if rows:
        read_moved_texts(result)
    if as_json:
        show(json_line(comparison_to_json(result)))
    else:
        show_lines(escaped(line) for line in format_comparison(result))
    refuse_differences(result)
