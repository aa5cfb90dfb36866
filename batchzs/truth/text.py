"""Labels held against the truth (`truth`), for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from batchzs.tables import NO_LABEL, decimal, format_table, percent

if TYPE_CHECKING:
    from batchzs.truth.metrics import PrecisionThreshold, TruthReport

_SHOWN_LABELS = 50
_SHOWN_CONFUSIONS = 20


def format_truth(report: TruthReport, found: PrecisionThreshold | None, wanted: float | None) -> list[str]:
    """Write what labels held against the truth came to."""
    lines = [
        f"{'truth':<12}known for {report.num_rows:,} rows, not for {report.num_unknown:,}",
        f"{'accuracy':<12}{percent(report.accuracy)}: {report.num_correct:,} right",
        f"{'precision':<12}{percent(report.precision)} of the {report.num_given:,} with a label",
        f"{'coverage':<12}{percent(report.coverage)} of the rows whose truth is known have a label",
        "",
        *format_table(
            ["label", "true", "given", "right", "precision", "recall", "F1"],
            [
                [
                    one.name,
                    *(f"{number:,}" for number in (one.num_true, one.num_given, one.num_correct)),
                    *(percent(share) for share in (one.precision, one.recall)),
                    decimal(one.f1),
                ]
                for one in report.labels[:_SHOWN_LABELS]
            ],
        ),
    ]
    wrong = [one for one in report.confusions if one.given != one.truth]
    if wrong:
        rows = [[one.truth, one.given or NO_LABEL, f"{one.num_rows:,}"] for one in wrong[:_SHOWN_CONFUSIONS]]
        lines += ["", *format_table(["true", "given", "rows"], rows)]
        if len(wrong) > _SHOWN_CONFUSIONS:
            lines.append(f"and {len(wrong) - _SHOWN_CONFUSIONS} more pairs (--json has all)")
    bins = [
        [f"{one.start:.1f}-{one.stop:.1f}", f"{one.num_rows:,}", decimal(one.mean_score), decimal(one.accuracy)]
        for one in report.calibration
    ]
    lines += ["", *format_table(["best score", "rows", "mean score", "accuracy"], bins)]
    lines.append(f"expected calibration error {decimal(report.calibration_error)}")
    if wanted is not None:
        lines.append("")
        lines.append(
            f"no threshold reaches a precision of {wanted:g}"
            if found is None
            else f"threshold {found.threshold!r}: precision {percent(found.precision)} on {found.num_rows:,} rows "
            f"({percent(found.coverage)} of those whose truth is known); found on these rows, so try it on others"
        )
    return lines


def truth_to_json(report: TruthReport, found: PrecisionThreshold | None) -> dict[str, Any]:
    """The same, all of it, as values for JSON."""
    return {
        "rows": report.num_rows,
        "unknown": report.num_unknown,
        "given": report.num_given,
        "right": report.num_correct,
        "accuracy": report.accuracy,
        "precision": report.precision,
        "coverage": report.coverage,
        "labels": [
            {
                "label": one.name,
                "true": one.num_true,
                "given": one.num_given,
                "right": one.num_correct,
                "precision": one.precision,
                "recall": one.recall,
                "f1": one.f1,
            }
            for one in report.labels
        ],
        "confusions": [{"true": one.truth, "given": one.given, "rows": one.num_rows} for one in report.confusions],
        "calibration": [asdict(one) for one in report.calibration],
        "calibration_error": report.calibration_error,
        "threshold": None if found is None else asdict(found),
    }
