"""What `batchzs compare` shows, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from batchzs.progress import format_duration
from batchzs.tables import NO_LABEL, decimal, format_table, percent

if TYPE_CHECKING:
    from batchzs.compare.comparison import Comparison, Moved

_SHOWN_LABELS = 50
_SHOWN_CHANGES = 20
#: Of a text so much is shown in a table; --json has all of it.
_SHOWN_CHARACTERS = 60


def format_comparison(result: Comparison) -> list[str]:
    """Write the changes, the shares' drift and, where they were asked for, the rows that moved most."""
    lines = []
    if result.changes:
        changes = result.changes.most_common(_SHOWN_CHANGES)
        rows = [[before or NO_LABEL, after or NO_LABEL, f"{count:,}"] for (before, after), count in changes]
        lines += [*format_table(["from", "to", "rows"], rows), ""]
        if len(result.changes) > _SHOWN_CHANGES:
            lines[-1] = f"and {len(result.changes) - _SHOWN_CHANGES} more kinds (--json has all)"
            lines.append("")
    shares = label_shares(result)
    rows = [
        [
            name or NO_LABEL,
            f"{result.old_labels[name]:,}",
            f"{result.new_labels[name]:,}",
            percent(before),
            percent(after),
            f"{100 * (after - before):+.2f}",
        ]
        for name, before, after in shares[:_SHOWN_LABELS]
    ]
    lines += format_table(["label", "old", "new", "old share", "new share", "drift"], rows)
    if len(shares) > _SHOWN_LABELS:
        lines.append(f"and {len(shares) - _SHOWN_LABELS} more labels (--json has all)")
    if result.most_moved:
        lines += ["", *_moved_table(result.most_moved)]
    for name, why in result.unread.items():
        lines.append(f"texts of {name} are not shown: {why}")
    share = percent(result.num_differing / result.num_rows) if result.num_rows else "-"
    lines += ["", f"{'rows':<12}{result.num_rows:,} in both"]
    lines.append(f"{'changed':<12}{result.num_differing:,} rows have other labels ({share})")
    if result.num_differing != result.num_other_best:
        lines.append(f"{'':<12}{result.num_other_best:,} of them another best label")
    if result.num_other_status:
        lines.append(f"{'status':<12}{result.num_other_status:,} rows are scored in one and not in the other, or so")
    lines.append(
        f"{'moved':<12}{decimal(result.mean_move)} on average, {result.largest_move:.4f} at most "
        f"({'largest change of a score' if result.compares_scores else 'best scores alone'})"
    )
    lines += [
        f"{'old':<12}{result.old.paths.output}",
        f"{'new':<12}{result.new.paths.output}",
        f"{'time':<12}{format_duration(result.seconds)}",
    ]
    return lines


def comparison_to_json(result: Comparison) -> dict[str, Any]:
    """The same, all of it, as values for JSON."""
    return {
        "old": str(result.old.paths.output),
        "new": str(result.new.paths.output),
        "rows": result.num_rows,
        "changed": result.num_differing,
        "changed_best": result.num_other_best,
        "changed_status": result.num_other_status,
        "changes": [
            {"from": before, "to": after, "rows": count} for (before, after), count in result.changes.most_common()
        ],
        "labels": [
            {
                "label": name,
                "old_rows": result.old_labels[name],
                "new_rows": result.new_labels[name],
                "old_share": before,
                "new_share": after,
            }
            for name, before, after in label_shares(result)
        ],
        "moved_by": "scores" if result.compares_scores else "best_score",
        "mean_move": result.mean_move,
        "largest_move": result.largest_move,
        "most_moved": [asdict(row) for row in result.most_moved],
        "unread": result.unread,
        "seconds": round(result.seconds, 3),
    }


def label_shares(result: Comparison) -> list[tuple[str | None, float, float]]:
    """Each label with its share of the scored rows in both outputs; what drifted most comes first."""
    totals = [max(count, 1) for count in (result.num_scored_old, result.num_scored_new)]
    names = result.old_labels.keys() | result.new_labels.keys()
    shares = [(name, result.old_labels[name] / totals[0], result.new_labels[name] / totals[1]) for name in names]
    return sorted(shares, key=lambda one: (-abs(one[2] - one[1]), one[0] is None, one[0] or ""))


def _moved_table(rows: list[Moved]) -> list[str]:
    cells = [
        [
            row.source_file,
            str(row.source_row),
            f"{row.moved:.4f}",
            f"{row.old_label or NO_LABEL} {decimal(row.old_score)}",
            f"{row.new_label or NO_LABEL} {decimal(row.new_score)}",
            _short(row.text),
        ]
        for row in rows
    ]
    return format_table(["file", "row", "moved", "old", "new", "text"], cells)


def _short(text: str | None) -> str:
    """The start of a text on one line."""
    line = "(not read)" if text is None else " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + "..."
