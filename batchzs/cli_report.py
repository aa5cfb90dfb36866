"""The command that shows an output as a page: `report`.

It reads, takes no lock, and writes one file. As in `cli`, it reads its arguments, calls the library and shows what that
returns through `printing`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from batchzs.logs import log_to_stream
from batchzs.printing import show


@click.command(
    epilog="""\b
Example:
  batchzs report out/news
  batchzs report out/news --to ~/news.html --rows 50
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
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as one JSON object, and write no page.")
def report(*, output: Path, target: Path | None, rows: int, as_json: bool) -> None:
    """Write one HTML page about a job's OUTPUT: labels, scores, doubtful texts, lengths, quarantine, speed, provenance.

    The page is a single file without scripts that loads nothing. It holds texts of the input where the input is still
    there. Works while the run goes on.
    """
    log_to_stream(sys.stderr, "plain")
    from batchzs.libraries import refuse_old_libraries

    refuse_old_libraries()
    from batchzs.escape import escaped, json_line
    from batchzs.finished import open_run
    from batchzs.report.contents import gather, report_to_json

    run = open_run(output)
    if as_json:
        show(json_line(report_to_json(gather(run, rows))))
        return
    from batchzs.report.files import page_path, write_page
    from batchzs.report.page import render

    path = page_path(run.paths, target)  # what is wrong with it is known before the long part
    write_page(run.paths, path, render(gather(run, rows)))
    show(escaped(str(path)))
