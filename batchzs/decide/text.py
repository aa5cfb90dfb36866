"""What `batchzs decide` shows of its numbers, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchzs.progress import format_duration
from batchzs.tables import NO_LABEL, format_table, percent

if TYPE_CHECKING:
    from batchzs.decide.decider import Decided, Decider

_SHOWN_LABELS = 50


def format_decided(decider: Decider, result: Decided, *, writes: bool) -> list[str]:
    """Write a table of the labels, before and after, and what else was counted."""
    decided, source = decider.decided, decider.source
    names = sorted(
        result.labels_before.keys() | result.labels.keys(),
        key=lambda name: (name is None, -result.labels[name], -result.labels_before[name], name or ""),
    )
    rows = [
        [
            name or NO_LABEL,
            f"{result.labels_before[name]:,}",
            f"{result.labels[name]:,}",
            percent(result.labels[name] / result.num_ok),
        ]
        for name in names[:_SHOWN_LABELS]
    ]
    lines = format_table(["label", "before", "now", "share"], rows)
    if len(names) > _SHOWN_LABELS:
        lines.append(f"and {len(names) - _SHOWN_LABELS} more labels (--json has all)")
    lines.append(f"{'rows':<12}{result.num_rows:,}, {result.num_ok:,} of them scored")
    lines.append(f"{'changed':<12}{result.num_changed:,} have another label than in {source.paths.output}")
    if decided.margin is not None:
        precision = source.record.resolved.precision
        where = f", marked in the column {decider.run.column(decided.close_column or '')}" if writes else ""
        lines.append(
            f"{'close':<12}{result.num_close:,} hang on no more than {precision}'s error "
            f"(scores within {decided.margin:.2g}){where}"
        )
    if decided.priors is not None:
        means = "  ".join(f"{name} {value:.4f}" for name, value in decided.priors.values.items())
        lines.append(f"{'priors':<12}{means} ({decided.priors.kind}, {decided.priors.num_rows:,} rows)")
    lines.append(f"{'time':<12}{format_duration(result.seconds)}")
    lines.append(f"{'output':<12}{decider.run.paths.output if writes else 'nothing is written without --to FOLDER'}")
    return lines


def decided_to_json(decider: Decider, result: Decided, *, writes: bool) -> dict[str, Any]:
    """What was decided and counted, as values for JSON."""
    decided = decider.decided
    return {
        "source": str(decider.source.paths.output),
        "output": str(decider.run.paths.output) if writes else None,
        "rows": result.num_rows,
        "scored": result.num_ok,
        "changed": result.num_changed,
        "close": None if decided.margin is None else result.num_close,
        "margin": decided.margin,
        "labels_before": _counts(result.labels_before),
        "labels": _counts(result.labels),
        "priors": None if decided.priors is None else decided.priors.model_dump(mode="json"),
        "seconds": round(result.seconds, 3),
    }


def _counts(labels: dict[str | None, int]) -> list[dict[str, Any]]:
    """A list, and no mapping: a label may be absent."""
    ranked = sorted(labels.items(), key=lambda entry: (-entry[1], entry[0] is None, entry[0] or ""))
    return [{"label": name, "rows": count} for name, count in ranked]
