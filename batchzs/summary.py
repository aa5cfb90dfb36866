"""Every number of a run's end, gathered from its shards' records, and the few that are shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from batchzs.counted import counted
from batchzs.progress import format_duration
from batchzs.records import SOUND_STATUSES, Summary, count_quarantined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.job import JobConfig
    from batchzs.paths import RunPaths
    from batchzs.records import RunRecord, ShardRecord

_SHOWN_LABELS = 20


def summarise(job: JobConfig, paths: RunPaths, run: RunRecord, shards: Sequence[ShardRecord]) -> Summary:
    """Add up the shards' records.

    Args:
        job: the job.
        paths: where the output lies.
        run: the run's record.
        shards: every shard's record.
    """
    statuses: Counter[str] = Counter()
    labels: Counter[str] = Counter({label.name: 0 for label in job.labels})
    for shard in shards:
        statuses.update(shard.statuses)
        labels.update(shard.labels)
    num_rows = sum(shard.num_rows for shard in shards)
    num_quarantined = count_quarantined(statuses)
    score_s = sum(shard.score_s for shard in shards)
    num_pairs = sum(shard.num_pairs for shard in shards)
    num_tokens = sum(shard.num_tokens for shard in shards)
    return Summary(
        output=str(paths.output),
        day=run.day,
        num_rows=num_rows,
        num_shards=len(shards),
        statuses=dict(sorted(statuses.items())),
        labels=dict(labels),
        num_unlabelled=statuses["ok"] - sum(labels.values()),
        num_empty=statuses["empty"],
        num_quarantined=num_quarantined,
        quarantined_share=num_quarantined / num_rows if num_rows else 0.0,
        max_bad_share=job.input.max_bad_share,
        num_truncated=sum(shard.num_truncated for shard in shards),
        num_duplicates=sum(shard.num_duplicates for shard in shards),
        num_nul_texts=sum(shard.num_nul_texts for shard in shards),
        num_scored_alone=sum(shard.num_scored_alone for shard in shards),
        num_rescored=sum(shard.num_rescored for shard in shards),
        num_pairs=num_pairs,
        num_tokens=num_tokens,
        num_splits=sum(len(shard.splits) for shard in shards),
        read_s=sum(shard.read_s for shard in shards),
        device_s=score_s,
        exact_s=sum(shard.exact_s for shard in shards),
        write_s=sum(shard.write_s for shard in shards),
        pairs_per_s=num_pairs / score_s if score_s else 0.0,
        tokens_per_s=num_tokens / score_s if score_s else 0.0,
        devices=tuple(sorted({shard.device_name for shard in shards})),
        num_attempts=max((shard.attempt for shard in shards), default=0),
        created_at=run.created_at,
        finished_at=max((shard.finished_at for shard in shards), default=run.created_at),
        resolved=run.resolved,
        test_hook=run.test_hook,
    )


def format_summary(summary: Summary, wall_s: float | None) -> str:
    """Write the closing summary for people.

    Args:
        summary: the numbers.
        wall_s: seconds that this command took; None where it found everything done.
    """
    lines = [
        *([f"{'date':<12}{summary.day}"] if summary.day is not None else []),
        f"{'rows':<12}{summary.num_rows:,} in {counted(summary.num_shards, 'shard')}",
        f"{'labels':<12}{_label_counts(summary)}",
    ]
    if summary.num_unlabelled:
        lines.append(f"{'':<12}{summary.num_unlabelled:,} below the threshold")
    lines.append(f"{'empty':<12}{summary.num_empty:,}")
    quarantined = f"{'quarantined':<12}{summary.num_quarantined:,}"
    if summary.num_quarantined:
        words = {word: n for word, n in summary.statuses.items() if word not in SOUND_STATUSES}
        quarantined += f" ({', '.join(f'{word} {count:,}' for word, count in words.items())})"
    lines.append(quarantined)
    lines.append(f"{'truncated':<12}{summary.num_truncated:,}")
    twins = " (scored once with their twins)" if summary.num_duplicates else ""
    lines.append(f"{'duplicates':<12}{summary.num_duplicates:,}{twins}")
    for count, what in (
        (summary.num_splits, "batches made smaller after running out of memory"),
        (summary.num_rescored, f"rows too close to call in {summary.resolved.precision}, scored again in fp32"),
        (summary.num_scored_alone, "texts scored again alone, their logits not being finite at first"),
        (summary.num_nul_texts, "texts with NUL characters, which tokenising drops"),
    ):
        if count:
            lines.append(f"{'note':<12}{what}: {count:,}")
    took = f"{format_duration(summary.device_s)} of scoring"
    if wall_s is not None:
        took = f"{format_duration(wall_s)} now, {took} in all"
    speed = (
        f"{summary.pairs_per_s:,.0f} pairs/s, {summary.tokens_per_s:,.0f} tokens/s, "
        f"{summary.resolved.precision} on {', '.join(summary.devices) or 'no device'}"
    )
    lines += [
        f"{'time':<12}{took}",
        f"{'speed':<12}{speed}",
        f"{'output':<12}{summary.output}",
    ]
    return "\n".join(lines)


def _label_counts(summary: Summary) -> str:
    counts = Counter(summary.labels).most_common()
    text = "  ".join(f"{name} {count:,}" for name, count in counts[:_SHOWN_LABELS])
    return text + (f"  and {len(counts) - _SHOWN_LABELS} more" if len(counts) > _SHOWN_LABELS else "")
