"""The command for before a run: `plan`, which says what a job will take.

As in `cli`, it reads its arguments, calls the library and shows what that returns, through `printing` alone, and
imports heavy libraries inside.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import click

from batchzs.commands.options import begin, job_options, selection_of, selection_options
from batchzs.errors import UsageError
from batchzs.printing import show, show_lines

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    epilog="""\b
Example:
  batchzs plan jobs/news.yaml
  batchzs plan jobs/news.yaml --probe --tasks 16
"""
)
@job_options
@selection_options
@click.option("--probe", is_flag=True, help="Load the model and measure for some seconds how fast this device is.")
@click.option("--tasks", type=click.IntRange(1, 100_000), metavar="N", help="With --probe: the time for 1 to N tasks.")
@click.option("--exact", is_flag=True, help="Read and tokenise every text, however many there are.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(  # noqa: PLR0913 - one parameter an option
    *,
    job: Path,
    overrides: tuple[str, ...],
    date: str | None,
    offline: bool,  # noqa: ARG001 - no connection is made in any case
    log_format: Literal["plain", "json"],
    limit: int | None,
    sample: int | None,
    seed: int | None,
    probe: bool,
    tasks: int | None,
    exact: bool,
    as_json: bool,
) -> None:
    """Say what a JOB will take before it runs: texts, pairs, shards, disk, memory, and with --probe the time.

    Reads the input and the model's tokenizer, and refuses what `run` would refuse. Writes nothing, makes no connection,
    and loads no weights without --probe.
    """
    selection = selection_of(limit, sample, seed)
    if tasks is not None and not probe:
        raise UsageError("--tasks says for how many tasks the time is reckoned, which --probe measures: give both")
    config = begin(job, overrides, log_format, date)
    from batchzs.escape import json_line
    from batchzs.estimate.estimate import estimate_job, open_job
    from batchzs.estimate.page import format_plan, plan_to_json

    planned = open_job(config, selection)
    estimate = estimate_job(planned, exact=exact)
    speed = None
    times = []
    if probe:
        from batchzs.estimate.speed_probe import probe_speed, task_times
        from batchzs.test_hook import TestHook

        speed = probe_speed(planned, TestHook.from_environment(os.environ))
        times = task_times(estimate.shard_rows, estimate.work.num_tokens, speed, tasks or 1)
    if as_json:
        show(json_line(plan_to_json(estimate, speed, times)))
    else:
        show_lines(format_plan(estimate, speed, times))
