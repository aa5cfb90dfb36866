"""Check and measure the packed path on an NVIDIA GPU, in at most eight minutes.

    python3 -m bench.gpu [--dry-run] [--only SECTION,...]     (from the repository's root)

or `sh bench/gpu.sh`, which has a time limit around it. Needs torch (2.10 or later, built for CUDA), NumPy and
tokenizers, and nothing else of batchzs's own requirements; transformers and sentence-transformers are compared with
where they are installed. Makes no connection. Sections run in order of importance, each with a time of its own, and are
printed as they finish; after each one everything so far is in `gpu.json` in the folder that the environment variable
OUT names (otherwise `out`). The exit code is 1 where a check failed or a section broke; a speed is never a failure.

`--dry-run` goes through all of it on the CPU with a tiny model in less than a minute; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bench.gpu_alternatives import alternatives
from bench.gpu_breakdown import beside_preparing, breakdown
from bench.gpu_checks import machine, matrix_rate, memory, parity
from bench.gpu_peers import peers
from bench.gpu_setup import DRY, FULL, Deadline, Subject, make_subject
from bench.gpu_speed import compiled, throughput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[[Subject, Deadline], dict[str, Any]]

#: Of the eight minutes; the rest is Python's start and end.
TOTAL_S = 450.0
#: A section that has not come to its end by itself so long after its time is broken off.
GRACE_S = 15.0
#: With less than this left no section is begun.
MIN_SECTION_S = 5.0
_MAX_CELL = 56


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report: its name, its seconds, and what makes it."""

    name: str
    seconds: float
    run: Run


class SectionTimeoutError(Exception):
    """A section went on beyond its time."""


class Report:
    """All sections so far, printed and on disk."""

    def __init__(self, path: Path, *, is_dry_run: bool) -> None:
        self._path = path
        self.sections: dict[str, dict[str, Any]] = {}
        self._head = {"dry_run": is_dry_run}
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, values: dict[str, Any]) -> None:
        """Print a section and write everything so far."""
        self.sections[name] = values
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._head | self.sections, indent=1, ensure_ascii=False), encoding="utf-8")
        temporary.replace(self._path)
        print(f"== {name}", *_lines(values, "   "), sep="\n", flush=True)


def _lines(values: dict[str, Any], indent: str) -> Iterator[str]:
    """A section for people: a line a value, a table's rows on a line each."""
    for name, value in values.items():
        if isinstance(value, dict) and any(isinstance(part, dict | list) for part in value.values()):
            yield f"{indent}{name}"
            yield from _lines(value, indent + "   ")
        elif isinstance(value, dict):
            yield f"{indent}{name}  " + "  ".join(f"{key} {_shown(part)}" for key, part in value.items())
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{indent}{name}"
            yield from _table(value, indent + "   ")
        else:
            yield f"{indent}{name}  {_shown(value)}"


def _table(rows: list[dict[str, Any]], indent: str) -> Iterator[str]:
    """Rows under their columns' names; what is itself a list is in the file alone, and long names are cut."""
    columns = [name for name, value in rows[0].items() if not isinstance(value, list)]
    cells = [columns, *([_shown(row[name])[:_MAX_CELL] for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def _broken_off_after(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise SectionTimeoutError(f"broken off {GRACE_S:g} s after its time")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_section(section: Section, subject: Subject, whole: Deadline) -> dict[str, Any]:
    """Run a section within its time and the whole's; whatever it raises is its result."""
    if whole.left_s < MIN_SECTION_S:
        return {"skipped": "no time left"}
    started_s = time.monotonic()
    seconds = min(section.seconds, whole.left_s)
    try:
        with _broken_off_after(seconds + GRACE_S):
            values = section.run(subject, Deadline(seconds))
    except Exception as exc:  # noqa: BLE001 - one section must not take the others along
        values = {"error": f"{type(exc).__name__}: {exc}"[:500], "traceback": traceback.format_exc()[-3000:]}
    return values | {"section_s": round(time.monotonic() - started_s, 1)}


def sections(report: Report) -> list[Section]:
    """All sections, the most important ones first."""

    def throughput_by_rate(subject: Subject, deadline: Deadline) -> dict[str, Any]:
        return throughput(subject, deadline, report.sections.get("matrix_rate", {}).get("best_tflops"))

    return [
        Section("machine", 20, machine),
        Section("parity", 45, parity),
        Section("memory", 45, memory),
        Section("matrix_rate", 15, matrix_rate),
        Section("throughput", 140, throughput_by_rate),
        Section("breakdown", 30, breakdown),
        Section("beside_preparing", 15, beside_preparing),
        Section("peers", 75, peers),
        Section("alternatives", 15, alternatives),
        Section("compiled", 45, compiled),
    ]


def main() -> int:
    """Run the sections and say what failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="a tiny model on the CPU, to try the script")
    parser.add_argument("--only", default="", help="sections to run, separated by commas (default: all)")
    arguments = parser.parse_args()
    whole = Deadline(TOTAL_S)
    if not arguments.dry_run and not torch.cuda.is_available():
        print("torch sees no GPU here; --dry-run tries the script on the CPU", file=sys.stderr)
        return 2
    if arguments.dry_run:
        torch.set_num_threads(1)
    report = Report(Path(os.environ.get("OUT") or "out") / "gpu.json", is_dry_run=arguments.dry_run)
    wanted = arguments.only.split(",") if arguments.only else None
    with tempfile.TemporaryDirectory() as folder:
        subject = make_subject(
            Path(folder) / "model",
            DRY if arguments.dry_run else FULL,
            "cpu" if arguments.dry_run else "cuda:0",
            "fp32" if arguments.dry_run else "fp16",
        )
        for section in sections(report):
            if wanted is not None and section.name not in wanted:
                continue
            report.add(section.name, run_section(section, subject, whole))
    failed = [name for name, values in report.sections.items() if values.get("ok") is False or "error" in values]
    print(f"FAILED: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
