"""Is a whole job as fast as its engine, and does everything but the model keep up with a GPU?

    python -m bench.job [--model DIR] [--seconds 60] [--num-labels 9 100] [--feed-rows 200000]

1. `batchzs run`, from a Parquet file to published shards and with its start, against the engine alone on the same
   texts in memory, in a process that has loaded the model already. Both in turn, several times; the ratio of pairs per
   second is taken turn by turn. The size is such that a run takes about `--seconds`.
2. The whole command with a stand-in model that answers at once, on one core and on two: rows per second, start
   included, with a GPU's batch size.

Prints a table and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

import polars as pl

from bench.machine import describe_machine
from sample_data.news_sentences import NewsWriter, Part
from sample_data.news_topics import TOPICS

TEMPLATE = "这篇文章的标题是{}"
GPU_BATCH_TOKENS = 65_536
#: A job of this many rows calibrates the size of the measured one.
_TRIAL_ROWS = 400


@dataclass(frozen=True, slots=True)
class Task:
    """What is scored: a Parquet file in a folder, by a model, with labels."""

    folder: Path
    model: Path
    labels: list[str]

    @property
    def input(self) -> Path:
        """The texts."""
        return self.folder / "news.parquet"

    def write_input(self, num_rows: int) -> None:
        """Write headlines, no two alike."""
        writer = NewsWriter(7, Part.TRAIN)
        texts = [f"{writer.headline(writer.rng.choice(TOPICS))}{number}" for number in range(num_rows)]
        pl.DataFrame({"id": range(num_rows), "text": texts}).write_parquet(self.input)

    def run(self, *options: str, hook: str | None = None, cpus: set[int] | None = None) -> float:
        """Run the whole command; returns its wall seconds."""
        output = self.folder / "out"
        shutil.rmtree(output, ignore_errors=True)
        job = self.folder / "job.yaml"
        settings = {
            "input": {"path": str(self.input), "text": "text", "keep": ["id"]},
            "labels": self.labels,
            "template": TEMPLATE,
            "model": {"path": str(self.model)},
            "output": {"path": str(output)},
            "engine": {"device": "cpu"},
        }
        job.write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
        environment = {**os.environ, **({"BATCHZS_TEST_HOOK": hook} if hook else {})}
        command = [sys.executable, "-m", "batchzs", "run", str(job), *options]
        if cpus is not None:
            command = ["taskset", "-c", ",".join(map(str, sorted(cpus))), *command]
        started_s = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return time.perf_counter() - started_s


#: Runs in a process of its own: a line of JSON with the task, then for every line read a measurement written.
ENGINE = """
import json, os, sys, time
import polars as pl
from pathlib import Path
from batchzs.engine import Engine, EngineSettings
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.device import choose_precision, granted_cpus
from batchzs.models.allocator import keep_freed_memory
from batchzs.models.loaded import LoadedModel
from batchzs.models.tokenizer import load_tokenizer
import torch
task = json.loads(sys.stdin.readline())
torch.set_num_threads(1)
keep_freed_memory()
checkpoint = read_checkpoint(Path(task["model"]))
precision = choose_precision("auto", "cpu")[0]
model = LoadedModel(checkpoint, "cpu", precision)
settings = EngineSettings(512, "head", 4096, 64, granted_cpus(os.environ))
hypotheses = [task["template"].replace("{}", label) for label in task["labels"]]
engine = Engine(model, load_tokenizer(checkpoint), hypotheses, settings, lambda *_: None)
texts = pl.read_parquet(task["input"])["text"].to_list()
engine.score(texts[:50])
print(json.dumps({"precision": precision, "workers": settings.num_workers}), flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    num_pairs = engine.score(texts).counts.num_pairs
    print(json.dumps({"seconds": time.perf_counter() - start, "num_pairs": num_pairs}), flush=True)
"""


class EngineProcess:
    """The engine alone, loaded and warm, in a process of its own; scores all texts when asked."""

    def __init__(self, task: Task) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENGINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stdin, self._stdout = _both(self._process.stdin, self._process.stdout)
        self._ask(
            json.dumps(
                {"model": str(task.model), "labels": task.labels, "template": TEMPLATE, "input": str(task.input)}
            )
        )
        self.settings = self._answer()

    def score(self) -> tuple[float, int]:
        """Seconds and pairs of scoring all texts."""
        self._ask("go")
        answer = self._answer()
        return answer["seconds"], answer["num_pairs"]

    def close(self) -> None:
        """End the process."""
        self._stdin.close()
        self._process.wait()

    def _ask(self, line: str) -> None:
        self._stdin.write(line + "\n")
        self._stdin.flush()

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._stdout.readline())
        return answer


def _both(stdin: IO[str] | None, stdout: IO[str] | None) -> tuple[IO[str], IO[str]]:
    if stdin is None or stdout is None:
        raise RuntimeError("the process was started without pipes")
    return stdin, stdout


def compare_with_engine(task: Task, seconds: float, turns: int) -> dict[str, Any]:
    """Measure the whole job and the engine alone, in turn."""
    task.write_input(_TRIAL_ROWS)
    trial = EngineProcess(task)
    rows = max(_TRIAL_ROWS, round(_TRIAL_ROWS * seconds / trial.score()[0]))
    trial.close()
    task.write_input(rows)
    engine = EngineProcess(task)
    measured = []
    for _ in range(turns):
        engine_s, num_pairs = engine.score()
        job_s = task.run("--set", "engine.max_batch_tokens=4096")
        measured.append({"engine_s": engine_s, "job_s": job_s, "ratio": engine_s / job_s, "num_pairs": num_pairs})
    engine.close()
    return {
        "num_labels": len(task.labels),
        "rows": rows,
        **engine.settings,
        "turns": measured,
        "median_ratio": median(one["ratio"] for one in measured),
        "pairs_per_s": median(one["num_pairs"] / one["job_s"] for one in measured),
    }


def feed(task: Task, num_rows: int, turns: int) -> dict[str, Any]:
    """Measure rows per second of everything but the model, on one core and on all."""
    task.write_input(num_rows)
    cores = sorted(os.sched_getaffinity(0))
    options = ("--set", f"engine.max_batch_tokens={GPU_BATCH_TOKENS}")
    hook = '{"stand_in": true}'
    found: dict[int, list[float]] = {1: [], len(cores): []}
    for _ in range(turns):
        for count, speeds in found.items():
            speeds.append(num_rows / task.run(*options, hook=hook, cpus=set(cores[:count])))
    return {"rows": num_rows, "rows_per_s": {str(count): median(speeds) for count, speeds in found.items()}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, default=Path("sample_data/model"))
    parser.add_argument("--seconds", type=float, default=60, help="about so long for a run of the first part")
    parser.add_argument("--num-labels", type=int, nargs="*", default=[9, 100])
    parser.add_argument("--feed-rows", type=int, default=200_000, help="rows of the second part; 0 leaves it out")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("job.json"))
    arguments = parser.parse_args()
    words = [topic.name for topic in TOPICS]
    result: dict[str, Any] = {"machine": describe_machine(), "against_engine": [], "feed": None}
    with tempfile.TemporaryDirectory() as name:
        for count in arguments.num_labels:
            labels = (words + [f"{one}{two}" for one in words for two in range(12)])[:count]
            task = Task(Path(name), arguments.model.absolute(), labels)
            one = compare_with_engine(task, arguments.seconds, arguments.turns)
            result["against_engine"].append(one)
            print(
                f"{count} labels, {one['rows']:,} rows, {one['precision']}: the whole job has "
                f"{one['median_ratio']:.1%} of the engine's speed (median of {arguments.turns}), "
                f"{one['pairs_per_s']:,.0f} pairs/s"
            )
        if arguments.feed_rows:
            task = Task(Path(name), arguments.model.absolute(), words)
            result["feed"] = feed(task, arguments.feed_rows, arguments.turns)
            for count, speed in result["feed"]["rows_per_s"].items():
                print(f"everything but the model, 9 labels, {count} core(s): {speed:,.0f} rows/s")
    arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
