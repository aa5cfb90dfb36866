"""A report's numbers in words and pictures: what the page's template puts in its places.

Everything is plain text or finished SVG. Nothing here is escaped: the template engine does that, for all texts alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from batchzs.progress import format_duration
from batchzs.records import SOUND_STATUSES, count_quarantined
from batchzs.report import charts, truth_charts
from batchzs.report.binning import NUM_SCORE_BINS
from batchzs.report.drawing import NARROW, WIDE
from batchzs.report.wording import moment, moment_of_day, number, share
from batchzs.tables import decimal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.report.aggregate import Aggregates, LabelRows
    from batchzs.report.contents import Report
    from batchzs.report.truth_section import TruthSection

#: Labels drawn in the distribution; the rest are one bar. And those with a histogram of their own, open and folded.
_MAX_BARS = 30
_MAX_SMALL, _MAX_FOLDED = 12, 18
MAX_LABEL_ROWS = 200

_CERTAINTY_WORDS = {
    "margin": (
        "Margin between the two best labels",
        "best score less the second best",
        "A margin near 0 means that two labels fit a text about equally well.",
    ),
    "threshold": (
        "Distance to the threshold",
        "distance from the threshold to the nearest score",
        "A distance near 0 means that a label is decided by a hair.",
    ),
    "score": (
        "Best score",
        "best score",
        "This output keeps no second score (output.scores), so the best one stands for how sure a row is.",
    ),
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first column names its rows. Text that is a user's is marked by its column."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, what it shows in one sentence, and its numbers."""

    title: str
    svg: str
    description: str
    note: str
    table: Table
    wide_svg: str | None = None  # for screens with room


@dataclass(frozen=True, slots=True)
class Tile:
    """One large number."""

    name: str
    figure: str
    note: str = ""
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class SmallFigure:
    """One label's histogram among many."""

    name: str
    figure: str
    svg: str
    description: str


def tiles(report: Report) -> list[Tile]:
    """The totals."""
    counted, work = report.aggregates, report.work
    num_bad = count_quarantined(counted.statuses)
    num_rows, num_ok = counted.num_rows, counted.statuses.get("ok", 0)
    num_empty = counted.statuses.get("empty", 0)
    planned = report.num_rows_planned
    done = "all of the job" if num_rows == planned else f"of {planned:,}, {share(num_rows, planned)}"
    found = [
        Tile("rows", number(num_rows), done, is_warning=num_rows != planned),
        Tile("scored", number(num_ok), share(num_ok, num_rows)),
        Tile("quarantined", number(num_bad), share(num_bad, num_rows), is_warning=num_bad > 0),
        Tile("empty texts", number(num_empty), share(num_empty, num_rows)),
        Tile("truncated", number(counted.num_truncated), share(counted.num_truncated, num_ok)),
    ]
    if report.run.job.resolved_threshold is not None:
        what = f"below {report.run.job.resolved_threshold:g}"
        found.append(Tile("without a label", number(counted.num_unlabelled), what))
    if report.run.job.rescores_close(report.run.record.resolved.precision):
        found.append(Tile("scored again in fp32", number(counted.num_rescored), share(counted.num_rescored, num_ok)))
    if work.total is not None:
        note = f"{format_duration(work.total.score_s)} of scoring"
        found.append(Tile("tokens a second", number(work.total.tokens_per_s), note))
    if work.backoffs:
        found.append(Tile("backoffs", number(len(work.backoffs)), "batches made smaller", is_warning=True))
    return found


def label_figure(report: Report) -> Figure:
    """How many rows each label has."""
    counted, job = report.aggregates, report.run.job
    num_ok = counted.statuses.get("ok", 0)
    bars = [(label.name, label.num_reaching, label) for label in counted.labels]
    shown_bars = [(name, rows) for name, rows, _ in bars[:_MAX_BARS]]
    if rest := bars[_MAX_BARS:]:
        shown_bars.append((f"{len(rest):,} others", sum(rows for _, rows, _ in rest)))
    if counted.num_unlabelled:
        shown_bars.append(("(none)", counted.num_unlabelled))
    drawn = [(name, rows, f"{rows:,} · {share(rows, num_ok)}") for name, rows in shown_bars]
    table = Table(
        "Rows by label",
        ("label", "rows", "share of the scored", "mean score"),
        tuple(
            (name, number(rows), share(rows, num_ok), "–" if one.mean_score is None else f"{one.mean_score:.3f}")
            for name, rows, one in bars[:MAX_LABEL_ROWS]
        ),
        max(0, len(bars) - MAX_LABEL_ROWS),
    )
    note = "Several labels may reach the threshold in one row, so that shares add up to more or less than 100 %."
    first = "; ".join(f"{name} {figure}" for name, _, figure in drawn[:3])
    return Figure(
        "Rows by label",
        charts.bar_list(drawn),
        f"Bar chart of rows by label, {len(bars)} labels. The most frequent: {first}.",
        note if job.multi_label else "",
        table,
    )


def score_figure(counted: Aggregates) -> Figure | None:
    """The best scores of all scored rows."""
    bins = counted.score_bins
    if not any(bins):
        return None
    sentence = _below_sentence(bins, (0.5, 0.9))
    return Figure(
        "Best score",
        charts.histogram(bins, "best score, rows on a logarithmic scale"),
        f"Histogram of the scored rows by best score. {sentence}",
        sentence,
        _bins_table("Rows by best score", "best score", bins),
    )


def certainty_figure(counted: Aggregates) -> Figure | None:
    """How far rows are from being decided otherwise."""
    if not any(counted.certainty_bins):
        return None
    title, what, note = _CERTAINTY_WORDS[counted.certainty_kind]
    sentence = _below_sentence(counted.certainty_bins, (0.1, 0.5))
    return Figure(
        title,
        charts.histogram(counted.certainty_bins, "rows on a logarithmic scale"),
        f"Histogram of the scored rows by the {what}. {sentence}",
        f"{note} {sentence}",
        _bins_table(title, what, counted.certainty_bins),
    )


def _below_sentence(bins: Sequence[int], limits: Sequence[float]) -> str:
    """How many rows lie low; the limits are edges of bins, which are not all empty."""
    total = sum(bins)
    shares = [f"{share(sum(bins[: round(limit * len(bins))]), total)} lie below {limit:g}" for limit in limits]
    return f"Of the scored rows {' and '.join(shares)}."


def _bins_table(caption: str, what: str, bins: Sequence[int]) -> Table:
    """Five bins of the picture a row: fifty rows of numbers are nobody's help."""
    step = NUM_SCORE_BINS // 10
    total, below = sum(bins), 0
    rows = []
    for start in range(0, len(bins), step):
        here = sum(bins[start : start + step])
        below += here
        edges = f"{start / len(bins):.1f} to {(start + step) / len(bins):.1f}"
        rows.append((edges, number(here), share(here, total), share(below, total)))
    return Table(caption, (what, "rows", "share", "up to here"), tuple(rows))


def small_figures(counted: Aggregates) -> tuple[list[SmallFigure], list[SmallFigure], int]:
    """Each label's scores: those shown at once, those folded away, and how many are left out."""
    named = [label for label in counted.labels if label.num_rows]
    drawn = [_small(label) for label in named[: _MAX_SMALL + _MAX_FOLDED]]
    return drawn[:_MAX_SMALL], drawn[_MAX_SMALL:], max(0, len(named) - _MAX_SMALL - _MAX_FOLDED)


def _small(label: LabelRows) -> SmallFigure:
    sentence = _below_sentence(label.score_bins, (0.5,))
    mean = 0.0 if label.mean_score is None else label.mean_score
    return SmallFigure(
        label.name,
        f"{label.num_rows:,} rows, mean {mean:.2f}",
        charts.small_histogram(label.score_bins),
        f"Histogram of the scores of {label.num_rows:,} rows. {sentence}",
    )


def length_figure(counted: Aggregates) -> Figure | None:
    """Texts by length."""
    lengths = counted.lengths
    if lengths.longest is None or lengths.median is None or lengths.percentile_95 is None:
        return None
    sentence = (
        f"Half of the texts have {lengths.median:,} tokens or fewer, 95 % have {lengths.percentile_95:,} or fewer, the "
        f"longest has {lengths.longest:,}. {number(counted.num_truncated)} were truncated."
    )
    rows = tuple(
        (f"{one.start:,} to {one.stop - 1:,}", number(one.num_rows), number(one.num_marked)) for one in lengths.bins
    )
    return Figure(
        "Texts by length",
        charts.length_chart(lengths.bins, NARROW),
        f"Histogram of the texts by number of tokens. {sentence}",
        sentence,
        Table("Texts by number of tokens", ("tokens", "texts", "of these truncated"), rows),
        charts.length_chart(lengths.bins, WIDE),
    )


def speed_figure(report: Report) -> Figure | None:
    """Tokens a second over time; None where there is one number alone, of a single shard say: a tile has it."""
    work = report.work
    if work.speed is None or (len(set(map(round, work.speed.tokens_per_s))) == 1 and not work.backoffs):
        return None
    speed = work.speed
    backoffs_s = [datetime.fromisoformat(one.finished_at).timestamp() for one in work.backoffs]
    rows = tuple(
        (moment_of_day(speed.start_s + place * speed.step_s), number(rate))
        for place, rate in enumerate(speed.tokens_per_s)
    )
    highest, lowest = max(speed.tokens_per_s), min(speed.tokens_per_s)
    sentence = (
        f"From {moment(speed.start_s)} on, in steps of {format_duration(speed.step_s)}: between {lowest:,.0f} and "
        f"{highest:,.0f} tokens a second, all workers together."
    )
    marks = " Triangles are shards in which a batch did not fit into memory." if backoffs_s else ""
    return Figure(
        "Tokens a second",
        charts.speed_chart(speed, backoffs_s, NARROW),
        f"Chart of tokens a second over time. {sentence}",
        sentence + marks,
        Table("Tokens a second over time", ("from, UTC", "tokens a second"), rows),
        charts.speed_chart(speed, backoffs_s, WIDE),
    )


def confusion_figure(truth: TruthSection) -> Figure:
    """Which label rows of each true label got; many labels' are put together."""
    names = [label.name for label in truth.report.labels][:_MAX_BARS]
    num_rest = len(truth.report.labels) - len(names)
    ends = ["others", "(none)"] if num_rest else ["(none)"]
    cells = [_put_together(row, len(names)) for row in truth.confusion()[: len(names)]]
    rows = tuple((name, *(number(cell) for cell in of_name)) for name, of_name in zip(names, cells, strict=True))
    return Figure(
        "Which labels are taken for which",
        truth_charts.heat_map(names, [*names, *ends], cells),
        "Heat map of true labels against given labels; the table has the numbers.",
        "A line for each true label: the stronger a field's colour, the more of its rows got the label above it.",
        Table("True labels by given label", ("true label", *names, *ends), rows, num_rest),
    )


def _put_together(cells: Sequence[int], num_kept: int) -> list[int]:
    """A line of the confusion table with its first labels, the rest of them as one, and the rows without a label.

    >>> _put_together([5, 1, 2, 3, 9], 2), _put_together([5, 1, 9], 2)
    ([5, 1, 5, 9], [5, 1, 9])
    """
    *labels, none = cells
    rest = [sum(labels[num_kept:])] if len(labels) > num_kept else []
    return [*labels[:num_kept], *rest, none]


def calibration_figure(truth: TruthSection) -> Figure:
    """How right scores are."""
    bins = truth.filled_bins
    rows = tuple((decimal(one.mean_score, 3), decimal(one.accuracy, 3), number(one.num_rows)) for one in bins)
    return Figure(
        "Calibration",
        truth_charts.calibration_chart(bins),
        "Line chart of accuracy by mean score; the table has the numbers.",
        "On the dashed line a score of 0.8 is right in 80 of 100 rows; below it scores promise more than they keep.",
        Table("Accuracy by score", ("mean score", "accuracy", "rows"), rows),
    )


def bad_statuses(counted: Aggregates) -> list[tuple[str, int]]:
    """Kinds of quarantine with their rows, most rows first."""
    bad = [(status, rows) for status, rows in counted.statuses.items() if status not in SOUND_STATUSES]
    return sorted(bad, key=lambda kind: -kind[1])
