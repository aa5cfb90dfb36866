"""Wordings held against the true labels of some rows: which is best, and whether that can be told.

A text has one true label. The label that a wording gives is right or wrong; none given, where all are below the
threshold, is wrong. The interval of an accuracy is Wilson's score interval. Two wordings are compared on the rows
where one of them alone is right, by the exact sign test (McNemar's): the same rows were scored twice, so that the two
intervals say too little of the difference.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from batchzs.display_width import display_width
from batchzs.escape import escaped
from batchzs.inputs.rows import OK
from batchzs.tables import NO_LABEL, format_table
from batchzs.truth.metrics import TruthReport, hold_against_truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from batchzs.inputs.rows import ShardRows
    from batchzs.wordings.scored import Scored

#: Standard deviations to either side that hold 95 % of a normal distribution.
_Z = 1.959964
#: Above it a difference is what chance often gives.
_SIGNIFICANT = 0.05
_SHOWN_CONFUSIONS = 20
_SHOWN_UNKNOWN = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """One wording held against the truth."""

    scored: Scored
    report: TruthReport
    is_right: np.ndarray  # (rows with a truth and a score,) bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """All wordings held against the truth of the same rows."""

    wordings: tuple[Judged, ...]
    num_rows: int  # that were read
    num_unknown: int  # without a truth
    num_unscored: int  # with a truth and no score: empty texts, quarantined rows
    no_labels: dict[str, int]  # truths that are none of the labels, and how many rows have them


def judge(scored: Sequence[Scored], rows: ShardRows, column: str) -> Judgement:
    """Hold wordings against the truth.

    Args:
        scored: the rows in every wording, which all have the same labels.
        rows: the rows; the truth is among their carried columns.
        column: its name.
    """
    text = rows.carried[column].cast(pl.String).str.strip_chars()
    truth = text.set(text == "", None)
    # Whether a row is scored hangs on its text; that a number is not finite may hang on the wording.
    is_scored = pl.Series(
        [
            all(one.frame["status"][row] == OK for one in scored) and rows.statuses[row] == OK
            for row in range(len(truth))
        ],
        dtype=pl.Boolean,
    )
    held = is_scored & truth.is_not_null()
    names = scored[0].wording.names
    others = Counter(label for label in truth.filter(held).to_list() if label not in names)
    return Judgement(
        wordings=tuple(_judged(one, truth, held) for one in scored),
        num_rows=len(truth),
        num_unknown=truth.null_count(),
        num_unscored=int((truth.is_not_null() & ~is_scored).sum()),
        no_labels=dict(sorted(others.items(), key=lambda item: (-item[1], item[0]))),
    )


def _judged(scored: Scored, truth: pl.Series, held: pl.Series) -> Judged:
    frame = scored.frame.filter(held)
    scores = frame["score"].fill_null(float("nan")).to_numpy()
    report = hold_against_truth(truth.filter(held), frame["label"], scores)
    is_right = (truth.filter(held) == frame["label"]).fill_null(value=False).to_numpy()
    return Judged(scored, report, is_right)


def wilson_interval(num_right: int, num_rows: int) -> tuple[float, float]:
    """Where a share lies with 95 % confidence.

    >>> [round(end, 4) for end in wilson_interval(81, 263)]  # Newcombe 1998: 0.2553 to 0.3662
    [0.2553, 0.3662]
    >>> wilson_interval(0, 0)
    (0.0, 1.0)
    """
    if num_rows == 0:
        return 0.0, 1.0
    share = num_right / num_rows
    middle = share + _Z**2 / (2 * num_rows)
    half = _Z * math.sqrt(share * (1 - share) / num_rows + _Z**2 / (4 * num_rows**2))
    scale = 1 + _Z**2 / num_rows
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def sign_test(num_first: int, num_second: int) -> float:
    """How often chance alone parts so many rows at least as unevenly.

    >>> sign_test(5, 0)  # 2 / 2**5
    0.0625
    >>> sign_test(3, 3)
    1.0
    """
    total, fewer = num_first + num_second, min(num_first, num_second)
    num_ways = sum(math.comb(total, count) for count in range(fewer + 1))
    return min(1.0, num_ways / (1 << total) * 2)


def format_judgement(judgement: Judgement, width: int) -> Iterator[str]:
    """Write accuracy, labels and confusions of each wording, and which wording is best.

    Args:
        judgement: as `judge` gives it.
        width: of the terminal, in columns.
    """
    yield from _what_was_held(judgement)
    if not len(judgement.wordings[0].is_right):
        return
    for number, judged in enumerate(judgement.wordings, start=1):
        yield ""
        head = "template" if len(judgement.wordings) == 1 else f"wording {number}"
        yield f"{head:<12}{escaped(judged.scored.wording.template)}"
        yield from _one(judged, width)
    if len(judgement.wordings) > 1:
        yield ""
        yield from _best(judgement.wordings)


def _what_was_held(judgement: Judgement) -> Iterator[str]:
    num_held = len(judgement.wordings[0].is_right)
    yield f"{'held':<12}{num_held:,} of {judgement.num_rows:,} rows against their true labels"
    if judgement.num_unknown:
        yield f"{'left out':<12}{judgement.num_unknown:,} rows without a true label"
    if judgement.num_unscored:
        yield f"{'left out':<12}{judgement.num_unscored:,} rows with a true label whose text has no score"
    if judgement.no_labels:
        named = [f"{escaped(name)} {count:,}" for name, count in judgement.no_labels.items()]
        more = f" and {len(named) - _SHOWN_UNKNOWN} more" if len(named) > _SHOWN_UNKNOWN else ""
        yield (
            f"{'no label':<12}{sum(judgement.no_labels.values()):,} rows have a true label that is none of the labels: "
            "they count as wrong"
        )
        yield f"{'':<12}{', '.join(named[:_SHOWN_UNKNOWN])}{more}"


def _one(judged: Judged, width: int) -> Iterator[str]:
    report = judged.report
    low, high = wilson_interval(report.num_correct, report.num_rows)
    yield (
        f"{'accuracy':<12}{report.accuracy or 0:.1%}: {report.num_correct:,} of {report.num_rows:,} right "
        f"(95 % interval {low:.1%} to {high:.1%})"
    )
    num_possible, share = _among_labels(judged)
    if num_possible < report.num_rows and share is not None:
        yield f"{'':<12}{share:.1%} of the {num_possible:,} rows whose true label is one of the labels"
    yield ""
    yield from format_table(
        ["label", "true", "given", "right", "precision", "recall", "F1"],
        [
            [
                escaped(one.name),
                *(f"{count:,}" for count in (one.num_true, one.num_given, one.num_correct)),
                *("-" if share is None else f"{share:.3f}" for share in (one.precision, one.recall, one.f1)),
            ]
            for one in report.labels
            if one.name in judged.scored.wording.names
        ],
    )
    yield ""
    yield from _confusions(report, judged.scored.wording.names, width)


def _among_labels(judged: Judged) -> tuple[int, float | None]:
    """How many rows have a true label that could be given, and the share of them that is right."""
    report, names = judged.report, judged.scored.wording.names
    num_possible = sum(one.num_true for one in report.labels if one.name in names)
    return num_possible, report.num_correct / num_possible if num_possible else None


def _confusions(report: TruthReport, names: Sequence[str], width: int) -> Iterator[str]:
    """The confusion table, or where it is too wide its largest wrong entries."""
    counts = {(one.truth, one.given): one.num_rows for one in report.confusions}
    truths = [one.name for one in report.labels if one.num_true]
    givens: list[str | None] = [one.name for one in report.labels if one.name in names]
    if any(given is None for _, given in counts):
        givens.append(None)
    rows = [
        [escaped(truth), *(f"{count:,}" if (count := counts.get((truth, given), 0)) else "-" for given in givens)]
        for truth in truths
    ]
    table = format_table(["true \\ given", *(NO_LABEL if given is None else escaped(given) for given in givens)], rows)
    if max(map(display_width, table)) <= width:
        yield from table
        return
    wrong = [one for one in report.confusions if one.given != one.truth]
    yield from format_table(
        ["true", "given", "rows"],
        [
            [escaped(one.truth), escaped(one.given or NO_LABEL), f"{one.num_rows:,}"]
            for one in wrong[:_SHOWN_CONFUSIONS]
        ],
    )
    if len(wrong) > _SHOWN_CONFUSIONS:
        yield f"and {len(wrong) - _SHOWN_CONFUSIONS} more pairs (--json has all)"


def _ranking(wordings: Sequence[Judged]) -> list[int]:
    return sorted(range(len(wordings)), key=lambda place: (-wordings[place].report.num_correct, place))


def _best(wordings: Sequence[Judged]) -> Iterator[str]:
    best, *others = _ranking(wordings)
    for other in others:
        alone, other_alone, chance = _compared(wordings[best], wordings[other])
        if alone == other_alone:
            yield f"{'best':<12}wordings {best + 1} and {other + 1} are right equally often"
            continue
        share = (alone - other_alone) / len(wordings[best].is_right)
        yield (
            f"{'best':<12}wording {best + 1}, by {share:.1%} over wording {other + 1}: alone right on {alone:,} rows, "
            f"the other on {other_alone:,}"
        )
        if chance > _SIGNIFICANT:
            yield f"{'':<12}within noise: chance gives as much in {chance:.0%} of cases; more rows may tell"


def _compared(best: Judged, other: Judged) -> tuple[int, int, float]:
    """On how many rows each alone is right, and what the sign test says."""
    alone = int((best.is_right & ~other.is_right).sum())
    other_alone = int((other.is_right & ~best.is_right).sum())
    return alone, other_alone, sign_test(alone, other_alone)


def judgement_to_json(judgement: Judgement) -> Iterator[dict[str, Any]]:
    """The same as values for JSON, a wording each."""
    best = _ranking(judgement.wordings)[0]
    for place, judged in enumerate(judgement.wordings):
        report = judged.report
        alone, other_alone, chance = _compared(judgement.wordings[best], judged)
        yield {
            "template": judged.scored.wording.template,
            "rows": judgement.num_rows,
            "unknown": judgement.num_unknown,
            "unscored": judgement.num_unscored,
            "no_labels": judgement.no_labels,
            "held": report.num_rows,
            "right": report.num_correct,
            "accuracy": report.accuracy,
            "accuracy_among_labels": _among_labels(judged)[1],
            "interval": list(wilson_interval(report.num_correct, report.num_rows)),
            "labels": [
                {**asdict(one), "precision": one.precision, "recall": one.recall, "f1": one.f1} for one in report.labels
            ],
            "confusions": [asdict(one) for one in report.confusions],
            "is_best": place == best,
            "behind_best": {"best_alone": alone, "this_alone": other_alone, "chance": chance},
        }
