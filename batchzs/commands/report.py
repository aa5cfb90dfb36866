"""The command that shows an output as a page: `report`.

It reads, takes no lock, and writes one file. As in `cli`, it reads its arguments, calls the library and shows what that
returns through `printing`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchzs.errors import UsageError
from batchzs.logs import log_to_stream
from batchzs.printing import show

if TYPE_CHECKING:
    from batchzs.finished import FinishedRun
    from batchzs.report.truth_section import TruthSection


@click.command(
    epilog="""\b
Example:
  batchzs report out/news
  batchzs report out/news --to ~/news.html --rows 50
  batchzs report out/news --truth topic --precision 0.95
"""
)
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--to", "target", type=click.Path(path_type=Path), metavar="FILE", help="OUTPUT/report.html by default.")
@click.option(
    "--rows",
    type=click.IntRange(min=0, max=1000),
    default=20,
    show_default=True,
    help="So many of the least certain texts, and of each kind of quarantined rows; 0: the page holds no text.",
)
@click.option("--truth", metavar="COLUMN", help="Hold the labels against this column, carried or in the input.")
@click.option(
    "--precision",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="With --truth: find the threshold for this precision.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as one JSON object, and write no page.")
def report(  # noqa: PLR0913 - one parameter an option
    *, output: Path, target: Path | None, rows: int, truth: str | None, precision: float | None, as_json: bool
) -> None:
    """Write one HTML page about a job's OUTPUT: labels, scores, doubtful texts, lengths, quarantine, speed, provenance.

    The page is a single file without scripts that loads nothing. It holds texts of the input where the input is still
    there. Works while the run goes on.
    """
    log_to_stream(sys.stderr, "plain")
    if precision is not None and truth is None:
        raise UsageError("--precision goes with --truth COLUMN: against what is it measured?")
    from batchzs.libraries import refuse_old_libraries

    refuse_old_libraries()
    from batchzs.finished import open_run
    from batchzs.report.files import page_path, write_page

    run = open_run(output)
    path = page_path(run.paths, None if as_json else target)  # what is wrong with it is known before the long part
    from batchzs.escape import escaped, json_line
    from batchzs.report.contents import gather, report_to_json

    section = None if truth is None else _truth(run, truth, precision)
    contents = replace(gather(run, rows), truth=section)
    if as_json:
        show(json_line(report_to_json(contents)))
        return
    from batchzs.report.page import render

    write_page(run.paths, path, render(contents))
    show(escaped(str(path)))


def _truth(run: FinishedRun, name: str, precision: float | None) -> TruthSection:
    from batchzs.report.truth_join import hold_run_against_truth
    from batchzs.truth.column import open_truth

    return hold_run_against_truth(run, open_truth(run, name), precision)
