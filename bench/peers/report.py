"""What was measured, as JSON and as a table, with the machine and the versions that it is true of."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchzs.models.device import find_device, granted_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers.matches import Entry, Match

#: Processor features that decide how fast fp32 and bf16 products are.
_FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")


def describe_machine() -> dict[str, Any]:
    """The machine, and how busy it is just now."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n")
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return {
        "cpu": find_device("cpu").name,
        "cpus": granted_cpus(os.environ),
        "features": [name for name in _FEATURES if name in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": [round(value, 2) for value in os.getloadavg()],
    }


def quartiles(values: Sequence[float]) -> list[float]:
    """The first quartile, the median and the third.

    >>> quartiles([4.0, 1.0, 2.0, 3.0, 5.0])
    [2.0, 3.0, 4.0]
    """
    return [float(value) for value in np.percentile(values, [25, 50, 75])]


def match_result(match: Match) -> dict[str, Any]:
    """A match's results, to be written as JSON."""
    lengths = match.text_set.num_tokens / match.text_set.num_labels
    return {
        "texts": match.text_set.name,
        "precision": match.precision,
        "labels": match.text_set.num_labels,
        "mean_tokens_a_pair": float(lengths.mean()),
        "tokens_a_pair_at_50_90_99_percent": [float(value) for value in np.percentile(lengths, [50, 90, 99])],
        "texts_a_turn": match.num_texts,
        "pairs_a_turn": match.num_pairs,
        "rounds": match.num_rounds,
        "linear_layers_alone": {
            "gflops": float(np.median(match.linear_rates)) / 1e9,
            "share_of_it_reached": quartiles(match.linear_shares),
        },
        "contenders": {entry.contender.name: _entry_result(match, entry) for entry in (match.batchzs, *match.peers)},
    }


def _entry_result(match: Match, entry: Entry) -> dict[str, Any]:
    result: dict[str, Any] = {
        "versions": entry.worker.versions,
        "load_s": entry.worker.load_s,
        "settings": entry.settings,
        "tried": [{"settings": settings, "seconds": seconds} for settings, seconds in entry.tried],
    }
    if entry.failure is not None:
        result["failure"] = entry.failure
    if entry.seconds:
        result |= {
            "seconds": entry.seconds,
            "pairs_per_s": quartiles([match.num_pairs / seconds for seconds in entry.seconds]),
            "tokens_per_s": quartiles(entry.tokens_per_s),
        }
    if entry.ratios:
        result |= {"ratios": entry.ratios, "batchzs_is_faster_by": quartiles(entry.ratios)}
    if entry is not match.batchzs:
        result["largest_score_difference"] = entry.largest_difference
    return result


def table(result: dict[str, Any]) -> str:
    """A match's results as text, from what `match_result` gave."""
    half, most, longest = result["tokens_a_pair_at_50_90_99_percent"]
    mean, linear = result["mean_tokens_a_pair"], result["linear_layers_alone"]
    share = linear["share_of_it_reached"]
    lines = [
        "",
        f"{result['texts']}, {result['precision']}, {result['labels']} labels",
        f"tokens a pair: {mean:.0f}; half to {half:.0f}, 90 % to {most:.0f}, 99 % to {longest:.0f}",
        f"{result['rounds']} rounds of {result['texts_a_turn']} texts, {result['pairs_a_turn']} pairs",
        f"{'':<24}{'pairs/s':>9}{'tokens/s':>10}   {'batchzs is faster by':<22}{'scores differ':>13}   settings",
    ]
    for name, row in result["contenders"].items():
        lines.append(f"{name:<24}{_row(row)}")
    lines.append(
        f"batchzs reaches {share[1]:.0%} ({share[0]:.0%} to {share[2]:.0%}) of its linear layers' own rate, "
        f"{linear['gflops']:.0f} GFLOP/s"
    )
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    if "failure" in row:
        return f"  not measured: {row['failure']}"
    ratio, difference = "", ""
    if "batchzs_is_faster_by" in row:
        first, median, third = row["batchzs_is_faster_by"]
        ratio = f"{median:.2f} ({first:.2f} to {third:.2f})"
        difference = f"{row['largest_score_difference']:.1e}"
    settings = " ".join(f"{name}={value}" for name, value in row["settings"].items())
    return f"{row['pairs_per_s'][1]:>9.1f}{row['tokens_per_s'][1]:>10.0f}   {ratio:<22}{difference:>13}   {settings}"
