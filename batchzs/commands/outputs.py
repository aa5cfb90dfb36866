"""The commands that look at an output: `status`, `verify` and `bad`.

They read, and neither lock nor write. As in `cli`, a command reads its arguments, calls the library and shows what it
returns, here too through `printing` alone, and imports heavy libraries inside. What comes from files is escaped, so
that no name or text in it can act on a terminal.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchzs.commands.options import date_option
from batchzs.counted import counted
from batchzs.errors import UsageError
from batchzs.logs import log_to_stream
from batchzs.printing import show, show_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchzs.quarantine import BadRow, Quarantine

logger = logging.getLogger(__name__)

_OUTPUT = click.argument("output", type=click.Path(path_type=Path))


@click.command(
    epilog="""\b
Example:
  batchzs verify out/news
  batchzs verify out/news --rescore 200
"""
)
@_OUTPUT
@click.option(
    "--rescore", type=click.IntRange(min=1), metavar="N", help="Score N random rows again, in fp32 with transformers."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of --rescore.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every finding.")
def verify(*, output: Path, rescore: int | None, seed: int, as_json: bool) -> None:
    """Read a job's whole OUTPUT again and see that it is what the run wrote.

    Checksums, footers, columns, every row once and in order, labels and scores that follow from the logits, numbers
    that add up, and the input files where they are still there. Ends with 9 where anything is not as it should be.
    """
    log_to_stream(sys.stderr, "plain")
    from batchzs.libraries import refuse_old_libraries

    refuse_old_libraries()
    from batchzs.escape import escaped, json_line
    from batchzs.finished import open_run
    from batchzs.verify.output import format_verification, refuse_findings, verification_to_json, verify_run

    run = open_run(output)
    rescored = None
    if rescore is None:
        result = verify_run(run)
    else:
        from batchzs.verify.rescore import open_rescorer, rescore_rows

        rescorer = open_rescorer(run)  # before the long part: what is missing for it is known at once
        result = verify_run(run)
        rescored = rescore_rows(rescorer, result.num_ok, rescore, seed)
        if rescored.worst is not None:
            result.findings.append(rescored.worst)
    if as_json:
        show(json_line(verification_to_json(result, rescored)))
    else:
        show_lines(escaped(line) for line in format_verification(result, rescored))
    refuse_findings(result)


@click.command(
    epilog="""\b
Example:
  batchzs bad out/news
  batchzs bad out/news --texts | less
"""
)
@_OUTPUT
@click.option("--texts", is_flag=True, help="Show each row's text too, or its damaged record, from the input.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row.")
def bad(*, output: Path, texts: bool, as_json: bool) -> None:
    """List the quarantined rows of a job's OUTPUT: where they lie in the input, and why they have no score.

    Works while the run goes on. Fields are separated by tabs; control characters in them are escaped.
    """
    log_to_stream(sys.stderr, "plain")
    from batchzs.finished import open_run
    from batchzs.quarantine import Quarantine

    quarantine = Quarantine(open_run(output), with_texts=texts)
    counts: Counter[str] = Counter()
    if show_lines(_bad_lines(quarantine, counts, as_json=as_json)):
        for line in _bad_ending(quarantine, counts):
            if as_json:  # standard output is for rows alone
                logger.info(line)
            else:
                show(line)


def _bad_lines(quarantine: Quarantine, counts: Counter[str], *, as_json: bool) -> Iterator[str]:
    """A line for each row, counted in passing."""
    from batchzs.escape import escaped, json_line

    for row in quarantine.rows():
        counts[row.status] += 1
        if as_json:
            entry = asdict(row)
            if not quarantine.with_texts:
                del entry["text"]
            yield json_line(entry)
        else:
            yield "\t".join(escaped(field) for field in _fields_of(row, with_text=quarantine.with_texts))


def _fields_of(row: BadRow, *, with_text: bool) -> list[str]:
    fields = [row.source_file, str(row.source_row), row.status, row.reason or ""]
    return [*fields, "(not read)" if row.text is None else row.text] if with_text else fields


def _bad_ending(quarantine: Quarantine, counts: Counter[str]) -> Iterator[str]:
    from batchzs.escape import escaped

    num_shards = len(quarantine.run.shards)
    if counts:
        kinds = ", ".join(f"{status} {count:,}" for status, count in sorted(counts.items()))
        yield escaped(f"{counted(counts.total(), 'row')} quarantined: {kinds}")
    else:
        yield "nothing is quarantined"
    if quarantine.num_missing:
        those = "is not there yet: its" if quarantine.num_missing == 1 else "are not there yet: their"
        yield f"{quarantine.num_missing:,} of {counted(num_shards, 'shard')} {those} rows are not listed"
    for name, why in quarantine.unread.items():
        yield escaped(f"texts of {name} are not shown: {why}")


@click.command(
    epilog="""\b
Example:
  batchzs status jobs/news.yaml
  batchzs status out/news --watch 10
"""
)
@click.argument("job_or_output", type=click.Path(path_type=Path))
@date_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--watch", type=click.IntRange(min=1), metavar="S", help="Again every S seconds, until it is finished.")
def status(*, job_or_output: Path, date: str | None, as_json: bool, watch: int | None) -> None:
    """Say how far a job is: rows done, speed, who is at work, what stopped it.

    From the state alone, at once, while it runs or after it died; of a whole run or of its tasks.
    """
    log_to_stream(sys.stderr, "plain")
    from batchzs.escape import escaped, json_line
    from batchzs.paths import RunPaths
    from batchzs.status import format_status, read_status

    output = _output_of(job_or_output, date)
    while True:
        found = read_status(RunPaths(output.absolute()))
        lines = [json_line(asdict(found))] if as_json else [escaped(line) for line in format_status(found)]
        if not show_lines(lines) or watch is None or found.is_finished:
            return
        time.sleep(watch)
        if not as_json:
            show("")


def _output_of(job_or_output: Path, date: str | None) -> Path:
    """The output that a job writes on a day, or the one that is named itself."""
    if not job_or_output.is_file():
        if date is not None:
            raise UsageError(f"--date goes with a job file, and {job_or_output} is none: name the output of that day")
        return job_or_output
    from batchzs.dates import parse_date
    from batchzs.job import load_dated_job
    from batchzs.job_dates import DateRequest

    job, day = load_dated_job(job_or_output, (), DateRequest(None if date is None else parse_date(date)))
    if day is not None and not day.is_fixed:
        logger.info("the date is %s", day)
    return job.output.path
