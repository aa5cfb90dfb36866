"""A report as one HTML file: no script, nothing that is loaded, everything escaped by Jinja.

The page forbids itself to load anything (Content-Security-Policy), so that not even a hole in the escaping could send
a text away.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from batchzs.counted import counted
from batchzs.progress import format_duration
from batchzs.report import origin, sections, wording
from batchzs.report.shown import language, shown

if TYPE_CHECKING:
    from batchzs.report.contents import Report
    from batchzs.report.work import Scorer, Share

_MAX_WORK_ROWS = 50

STATUS_WORDS = {
    "bad_record": "a record that does not parse: too many fields, a stray quote, broken JSON",
    "bad_encoding": "bytes that are no text in the job's encoding",
    "bad_type": "a JSON value that is no string",
    "non_finite": "the model gave no finite number, in fp32 neither",
}


def render(report: Report) -> str:
    """Write the page.

    Args:
        report: what it says.

    Returns:
        The whole HTML document.
    """
    environment = Environment(
        loader=PackageLoader("batchzs.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        shown=shown,
        language=language,
        number=wording.number,
        counted=counted,
        moment=wording.moment,
        duration=format_duration,
        ours=Markup,  # for the style and for pictures, whose texts Vega has escaped; nothing of the input's is ours
    )
    aggregates, run = report.aggregates, report.run
    open_figures, folded_figures, num_more = sections.small_figures(aggregates)
    style = resources.files("batchzs.report").joinpath("templates", "report.css").read_text(encoding="utf-8")
    lengths, speed = sections.length_figure(aggregates), sections.speed_figure(report)
    return environment.get_template("report.html").render(
        report=report,
        counted=aggregates,
        job=run.job,
        record=run.record,
        model_name=origin.model_name(run),
        max_label_rows=sections.MAX_LABEL_ROWS,
        css=style,
        tiles=sections.tiles(report),
        label_figure=sections.label_figure(report),
        score_figure=sections.score_figure(aggregates),
        certainty_figure=sections.certainty_figure(aggregates),
        small_figures=open_figures,
        folded_figures=folded_figures,
        num_more_labels=num_more,
        length_figure=lengths,
        speed_figure=speed,
        bad_statuses=sections.bad_statuses(aggregates),
        status_words=STATUS_WORDS,
        scorers=_scorer_table(report),
        tasks=_task_table(report),
        backoffs=_backoff_table(report),
        confusion=None if report.truth is None else sections.confusion_figure(report.truth),
        calibration=None if report.truth is None else sections.calibration_figure(report.truth),
        job_listing=origin.job_listing(run),
        provenance=origin.provenance(report),
        model_files=origin.model_files(run),
        input_files=origin.input_files(run),
    )


def _share_cells(share: Share) -> tuple[str, ...]:
    return (
        wording.number(share.num_shards),
        wording.number(share.num_rows),
        format_duration(share.score_s),
        wording.number(share.tokens_per_s),
        wording.number(share.num_splits),
    )


_SHARE_HEADS = ("shards", "rows", "scoring", "tokens a second", "backoffs")


def _scorer_table(report: Report) -> sections.Table:
    scorers = report.work.scorers

    def cells(scorer: Scorer, share: Share) -> tuple[str, ...]:
        device = f"{scorer.device_name} ({scorer.device})"
        how = f"{scorer.precision}, {scorer.path}, {counted(scorer.threads, 'thread')}"
        return (shown(scorer.host, 60), str(scorer.attempt), shown(device, 80), how, *_share_cells(share))

    return sections.Table(
        "Who scored what",
        ("host", "attempt", "device", "how", *_SHARE_HEADS),
        tuple(cells(*scorer) for scorer in scorers[:_MAX_WORK_ROWS]),
        max(0, len(scorers) - _MAX_WORK_ROWS),
    )


def _task_table(report: Report) -> sections.Table | None:
    tasks = report.work.tasks
    if not tasks:
        return None
    nothing = ("0", "0", "–", "–", "0", "–")
    rows = tuple(
        (name, *(nothing if share is None else (*_share_cells(share), wording.moment(share.last_finished_at))))
        for name, share in tasks[:_MAX_WORK_ROWS]
    )
    return sections.Table(
        "Parts of the run", ("task", *_SHARE_HEADS, "last published"), rows, max(0, len(tasks) - _MAX_WORK_ROWS)
    )


def _backoff_table(report: Report) -> sections.Table | None:
    backoffs = report.work.backoffs
    if not backoffs:
        return None
    rows = tuple(
        (
            f"{one.shard_index:,}",
            wording.moment(one.finished_at),
            shown(one.host, 60),
            shown(one.shape, 40),
            wording.number(one.batch_tokens),
            wording.number(one.limit_tokens),
        )
        for one in backoffs[:_MAX_WORK_ROWS]
    )
    return sections.Table(
        "Batches that did not fit into memory",
        ("shard", "published", "host", "batches", "tokens of the batch", "tokens from then on"),
        rows,
        max(0, len(backoffs) - _MAX_WORK_ROWS),
    )
