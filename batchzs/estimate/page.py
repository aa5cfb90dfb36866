"""What `batchzs plan` shows: the estimate as a page of at most 80 columns, and as JSON. Computes nothing new."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from batchzs.counted import counted
from batchzs.display_width import cut, display_width, padded, wrapped
from batchzs.escape import escaped
from batchzs.estimate.suspects import KINDS
from batchzs.progress import format_duration
from batchzs.space import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from batchzs.estimate.estimate import Estimate
    from batchzs.estimate.speed_probe import Speed, TaskTime
    from batchzs.estimate.text_survey import TextSurvey

WIDTH = 80
_INDENT = 13
_BAR_COLUMNS = 30
_BLOCKS = " ▏▎▍▌▋▊▉█"
_PERCENTILES = (0.5, 0.9, 0.99)


def format_plan(estimate: Estimate, speed: Speed | None, times: Sequence[TaskTime]) -> Iterator[str]:
    """Write the page, line by line.

    Args:
        estimate: of the job.
        speed: what was measured on this device, if it was.
        times: how long so many tasks would take; empty where nothing was measured.
    """
    survey, inputs = estimate.survey, estimate.inputs
    about = "" if estimate.is_exact else "about "
    size = format_bytes(sum(file.found.size_bytes for file in inputs.files))
    yield from _entry("input", f"{counted(len(inputs.files), 'file')}, {size}, {counted(inputs.num_rows, 'row')}")
    if estimate.num_selected != inputs.num_rows:
        yield from _entry("selected", counted(estimate.num_selected, "row"))
    yield from _entry("seen", _seen(estimate))
    yield from _entry("damaged", f"{estimate.num_damaged:,}")
    yield from _entry("empty", f"{about}{survey.num_empty:,}{_of(survey.num_empty, survey.num_readable)}")
    yield from _entry("duplicates", _duplicates(estimate))
    yield ""
    yield from _entry("tokens", _lengths(survey))
    yield from (f"{'':<{_INDENT}}{line}" for line in histogram(survey.by_length.tolist()))
    yield from _entry("truncated", _truncated(estimate))
    if survey.unknown_share is not None:
        yield from _entry("unknown", f"{_percent(survey.unknown_share, 2)} of the tokens")
    yield from _entry("encoding", *_suspects(estimate))
    yield ""
    yield from _entry("hypotheses", f"{counted(len(estimate.hypotheses), 'label')}; this is what is asked:")
    width = max(min(display_width(escaped(one.label)), 20) for one in estimate.hypotheses)
    for one in estimate.hypotheses:
        label = padded(cut(escaped(one.label), 20), width)
        room = WIDTH - 4 - width - 12
        yield f"  {label}  {padded(cut(escaped(one.text), room), room)}{one.num_tokens:>4} tokens".rstrip()
    yield ""
    yield from _work_lines(estimate)
    yield from _time_lines(speed, times)
    for number, warning in enumerate(estimate.warnings):
        if not number:
            yield ""
        yield from _entry("warning", escaped(warning))


def plan_to_json(estimate: Estimate, speed: Speed | None, times: Sequence[TaskTime]) -> dict[str, object]:
    """Everything on the page, and the counts that it is made from, as JSON holds it."""
    survey, inputs = estimate.survey, estimate.inputs
    return {
        "input": {
            "files": [
                {"name": file.found.name, "size_bytes": file.found.size_bytes, "rows": file.num_rows}
                for file in inputs.files
            ],
            "rows": inputs.num_rows,
            "selected": estimate.num_selected,
        },
        "texts": {
            "read": survey.num_read,
            "reads_all": estimate.reads_all,
            "tokenised": survey.num_tokenised,
            "exact": estimate.is_exact,
            "damaged": estimate.num_damaged,
            "empty": survey.num_empty,
            "duplicates": survey.num_duplicates,
            "tokens": {f"p{round(share * 100)}": survey.percentile(share) for share in _PERCENTILES}
            | {"longest": survey.longest},
            "histogram": [
                {"from": first, "to": last, "rows": round(count)}
                for first, last, count in _bins(survey.by_length.tolist())
            ],
            "truncated": estimate.num_truncated,
            "unknown_share": survey.unknown_share,
            "suspects": [
                {
                    "kind": one.kind,
                    "rows": one.num_rows,
                    "first": [{"file": file, "row": row} for file, row in one.rows],
                }
                for one in survey.suspects
            ],
        },
        "hypotheses": [asdict(one) for one in estimate.hypotheses],
        "pairs": estimate.work.num_pairs,
        "pair_tokens": estimate.work.num_tokens,
        "batches": estimate.work.num_batches,
        "shards": list(estimate.shard_rows),
        "disk": asdict(estimate.disk),
        "memory_bytes": estimate.memory_bytes,
        "speed": None if speed is None else asdict(speed),
        "times": [asdict(one) for one in times],
        "warnings": list(estimate.warnings),
    }


def histogram(counts: Sequence[float]) -> list[str]:
    """Draw how many texts have how many tokens, in classes that double.

    Args:
        counts: texts by their number of tokens.

    >>> for line in histogram([1.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0]): print(line)
         0  ███████▌                               1   14.3 %
       1-8  ██████████████████████████████         4   57.1 %
      9-16  ███████████████                        2   28.6 %
    """
    bins = _bins(counts)
    total = sum(count for _, _, count in bins) or 1.0
    most = max((count for _, _, count in bins), default=1.0) or 1.0
    names = [str(first) if first == last else f"{first}-{last}" for first, last, _ in bins]
    width = max(map(len, [*names, "65-128"]))
    return [
        f"{name:>{width}}  {_bar(count / most):<{_BAR_COLUMNS}}{round(count):>10,}{_percent(count / total):>9}"
        for name, (_, _, count) in zip(names, bins, strict=True)
    ]


def _bins(counts: Sequence[float]) -> list[tuple[int, int, float]]:
    """0, 1 to 8, 9 to 16, and so on, each twice as wide as the one before; the longest text is in the last one."""
    bins = [(0, 0, counts[0])] if counts and counts[0] else []
    first, last = 1, 8
    while first < len(counts):
        bins.append((first, last, sum(counts[first : last + 1])))
        first, last = last + 1, last * 2
    return bins


def _bar(share: float) -> str:
    eighths = round(share * _BAR_COLUMNS * 8) or int(share > 0)
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def _entry(name: str, *texts: str) -> Iterator[str]:
    for text in texts:
        for line in wrapped(text, WIDTH - _INDENT):
            yield f"{name:<{_INDENT}}{line}".rstrip()
            name = ""


def _of(number: int, total: int) -> str:
    return f" ({_percent(number / total)})" if number and total else ""


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _seen(estimate: Estimate) -> str:
    survey = estimate.survey
    if not estimate.reads_all:
        read = f"a sample of {survey.num_read:,} rows, in short runs spread over the input"
    else:
        read = f"all {survey.num_read:,} rows"
    if survey.is_exact:
        return f"{read}, all tokenised"
    return f"{read}; token counts from a sample of {survey.num_tokenised:,} texts (--exact takes all)"


def _duplicates(estimate: Estimate) -> str:
    survey = estimate.survey
    text = f"{survey.num_duplicates:,}{_of(survey.num_duplicates, survey.num_readable)}"
    if not estimate.reads_all:
        return f"{text} within the sample"
    saved = survey.num_texts - survey.num_distinct_in_shards
    return f"{text}; {saved:,} share a shard with their twin and are scored once" if survey.num_duplicates else text


def _lengths(survey: TextSurvey) -> str:
    median, most, nearly_all = (survey.percentile(share) for share in _PERCENTILES)
    return f"median {median:,}, 90 % up to {most:,}, 99 % up to {nearly_all:,}, longest {survey.longest:,}"


def _truncated(estimate: Estimate) -> str:
    engine = estimate.job.engine
    share = _of(estimate.num_truncated, estimate.survey.num_readable)
    return f"{estimate.num_truncated:,}{share} by engine.max_length {engine.max_length}, truncate: {engine.truncate}"


def _suspects(estimate: Estimate) -> Iterator[str]:
    if not estimate.survey.suspects:
        yield "nothing suspicious"
    for one in estimate.survey.suspects:
        rows = ", ".join(f"{escaped(file)} row {row:,}" for file, row in one.rows)
        share = _of(one.num_rows, estimate.survey.num_texts)
        yield f"{one.num_rows:,}{share} texts with {KINDS[one.kind]}: {rows}"


def _work_lines(estimate: Estimate) -> Iterator[str]:
    work, disk = estimate.work, estimate.disk
    about = "" if estimate.is_exact else "about "
    yield from _entry("pairs", f"{about}{work.num_pairs:,}, of {work.num_tokens:,} tokens in all, padding not counted")
    rows = max(estimate.shard_rows)
    yield from _entry("shards", f"{len(estimate.shard_rows):,} of {rows:,} rows{' at most' * (rows > 0)}")
    if estimate.job.engine.max_batch_tokens == "auto":
        batches = f"about {work.num_batches['cpu']:,} on a CPU, {work.num_batches['cuda']:,} on a GPU"
    else:
        batches = f"about {work.num_batches['cpu']:,}, of {estimate.job.engine.max_batch_tokens:,} tokens"
    yield from _entry("batches", batches)
    lacks = "" if disk.needed_bytes < disk.free_bytes else ": NOT ENOUGH"
    yield from _entry(
        "disk",
        f"about {format_bytes(disk.needed_bytes)} needed, {format_bytes(disk.free_bytes)} free in "
        f"{escaped(str(disk.folder))}{lacks}",
    )
    yield from _entry("memory", f"about {format_bytes(estimate.memory_bytes)} on a CPU")


def _time_lines(speed: Speed | None, times: Sequence[TaskTime]) -> Iterator[str]:
    if speed is None:
        yield from _entry("time", "not measured; --probe loads the model and measures this device")
        return
    devices = f", {speed.num_devices} of them" if speed.num_devices > 1 else ""
    yield from _entry(
        "speed",
        f"{speed.tokens_per_s:,.0f} tokens/s, {speed.pairs_per_s:,.0f} pairs/s in {speed.precision} on "
        f"{escaped(speed.device)}{devices} ({speed.num_pairs:,} pairs in {speed.measured_s:.1f} s)",
    )
    for place, one in enumerate(times):
        shards = f"{one.most_shards:,} shards each" if one.most_shards > 1 else "1 shard each"
        text = f"about {format_duration(one.time_s):<12} {counted(one.num_tasks, 'task')}, at most {shards}"
        yield from _entry("" if place else "time", text)
    if speed.rescores_close:
        yield from _entry("", "rows too close to call, scored again in fp32, come on top")
