"""Label a file of real headlines with batchzs and with ModelScope's own pipeline, and compare every score.

    python bench/headlines.py HEADLINES.tsv MODEL_DIR --labels 财经,体育,... --oracle-python ORACLE/bin/python

HEADLINES.tsv holds a headline, a tab and the true label's index on every line. ORACLE is an environment with
ModelScope and transformers 4, as tests/golden/make_golden.py describes. Both sides run in fp32 on the same machine;
batchzs scores all headlines, the pipeline every `--every`-th (1: all). The order is pipeline, batchzs, pipeline, so
that a drift of the machine's speed falls on both. Prints a table and writes JSON.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

#: Runs in the oracle's environment, which has neither batchzs nor Polars: lines of JSON in, a line of scores out for
#: each, and last the seconds that scoring took.
ORACLE = """
import json, sys, time
from modelscope.pipelines import pipeline
zero_shot = pipeline("zero-shot-classification", model=sys.argv[1], device="cpu")
zero_shot.model.float().eval()
labels, template = json.loads(sys.argv[2]), sys.argv[3]
texts = [json.loads(line) for line in sys.stdin]
zero_shot(texts[0], candidate_labels=labels, hypothesis_template=template)
start = time.perf_counter()
for text in texts:
    result = zero_shot(text, candidate_labels=labels, hypothesis_template=template)
    score_of = dict(zip(result["labels"], result["scores"]))
    print(json.dumps([score_of[label] for label in labels]))
print(json.dumps(time.perf_counter() - start))
"""


class Task(NamedTuple):
    """What both sides are asked."""

    model: Path
    labels: list[str]
    template: str


def run_oracle(python: Path, task: Task, texts: list[str]) -> tuple[np.ndarray, float]:
    """Score texts with ModelScope's pipeline; returns (texts, labels) scores and seconds."""
    done = subprocess.run(
        [python, "-c", ORACLE, task.model, json.dumps(task.labels), task.template],
        input="".join(json.dumps(text) + "\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
    )
    *rows, seconds = [line for line in done.stdout.splitlines() if line[:1] in "[0123456789"]
    return np.array([json.loads(row) for row in rows]), float(seconds)


def run_batchzs(headlines: Path, task: Task) -> tuple[pl.DataFrame, dict[str, Any], float]:
    """Score the whole file through the command; returns the output's rows, the run's summary and wall seconds."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        settings = {
            "input": {
                "path": str(headlines.absolute()),
                "format": "tsv",
                "text": "column_0",
                "keep": ["column_1"],
                "csv": {"header": False, "quote": None},
            },
            "labels": task.labels,
            "template": task.template,
            "model": {"path": str(task.model.absolute())},
            "output": {"path": str(Path(folder) / "out")},
            "engine": {"precision": "fp32", "device": "cpu"},
        }
        job.write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "batchzs", "run", job], check=True, stdout=subprocess.DEVNULL)
        wall_s = time.perf_counter() - start
        summary = json.loads((Path(folder) / "out/state/summary.json").read_bytes())
        return pl.read_parquet(Path(folder) / "out/scores"), summary, wall_s


def main() -> None:
    """Run both sides and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("headlines", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--labels", required=True, help="label names in the order of the indices, separated by commas")
    parser.add_argument("--template", default="这篇文章的标题是{}")
    parser.add_argument("--oracle-python", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1, help="the pipeline scores every so-many-th headline")
    parser.add_argument("--json", type=Path, default=Path("headlines.json"))
    arguments = parser.parse_args()
    labels = arguments.labels.split(",")
    lines = [line.split("\t") for line in arguments.headlines.read_text(encoding="utf-8").split("\n") if line]
    truth = np.array([int(index) for _, index in lines])
    chosen = list(range(0, len(lines), arguments.every))
    halves = [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
    task = Task(arguments.model, labels, arguments.template)
    first_scores, first_s = run_oracle(arguments.oracle_python, task, [lines[row][0] for row in halves[0]])
    frame, summary, wall_s = run_batchzs(arguments.headlines, task)
    second_scores, second_s = run_oracle(arguments.oracle_python, task, [lines[row][0] for row in halves[1]])
    theirs = np.concatenate([first_scores, second_scores])
    ours = np.array(frame["scores"].to_list(), dtype=np.float64)
    our_labels = np.array([labels.index(label) for label in frame["label"]])
    our_speed = len(lines) * len(labels) / summary["device_s"]
    their_speed = len(chosen) * len(labels) / (first_s + second_s)
    result = {
        "machine": f"{platform.processor() or platform.machine()}, {summary['devices'][0]}",
        "headlines": len(lines),
        "compared": len(chosen),
        "largest_score_difference": float(np.abs(ours[chosen] - theirs).max()),
        "different_labels": int((our_labels[chosen] != theirs.argmax(axis=1)).sum()),
        "accuracy": float((our_labels == truth).mean()),
        "accuracy_compared": float((our_labels[chosen] == truth[chosen]).mean()),
        "accuracy_modelscope": float((theirs.argmax(axis=1) == truth[chosen]).mean()),
        "batchzs_pairs_per_s": our_speed,
        "batchzs_pairs_per_s_whole_command": len(lines) * len(labels) / wall_s,
        "modelscope_pairs_per_s": their_speed,
        "ratio": our_speed / their_speed,
    }
    for name, value in result.items():
        print(f"{name:<36}{value}")
    arguments.json.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
