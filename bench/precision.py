"""How often another precision names another label, and what scoring close rows again costs and mends.

    python -m bench.precision [--model DIR] [--texts FILE.tsv|FILE.parquet] [--labels A,B,...] [--rows N]

Scores the same texts through the engine in fp32, and in every other precision that the device offers, without and with
rows too close to call scored again. For each it prints the share of rows whose best label differs from fp32's, the
largest difference of a score, the margin that was measured on a sample of the rows, the share of rows scored again and
the share of the time that took. Without options: the sample model on the sample texts. Writes JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch

from batchzs.engine import Engine, EngineSettings
from batchzs.margin import MarginMeasurer, num_sample_texts
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.classes import StatedIndices, resolve_classes
from batchzs.models.device import Precision, cpu_has_bf16_units, granted_cpus
from batchzs.models.loaded import LoadedModel
from batchzs.models.tokenizer import load_tokenizer
from batchzs.scoring import CloseCalls, scores_from_logits
from bench.machine import describe_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.engine import TextLogits
    from batchzs.models.checkpoint import Checkpoint
    from batchzs.models.classes import ClassIndices

SAMPLE_LABELS = "文化,体育,娱乐,财经,家居,汽车,教育,科技,军事"


def read_texts(path: Path, num_rows: int) -> list[str]:
    """The first texts of a TSV file (its first field) or of a Parquet file (its column `text`), the empty ones out."""
    if path.suffix == ".parquet":
        texts = pl.read_parquet(path)["text"].drop_nulls().to_list()
    else:
        texts = [line.split("\t")[0] for line in path.read_text(encoding="utf-8").split("\n")]
    return [text for text in texts if text.strip()][:num_rows]


class Subject:
    """One checkpoint on one device with its labels and texts."""

    def __init__(self, checkpoint: Checkpoint, device: str, hypotheses: Sequence[str], texts: Sequence[str]) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._hypotheses = hypotheses
        self._texts = texts
        self._tokenizer = load_tokenizer(checkpoint)
        num_workers = granted_cpus(os.environ) if device == "cpu" else 2
        max_batch_tokens = 4096 if device == "cpu" else 65_536
        self._settings = EngineSettings(512, "head", max_batch_tokens, 64, num_workers)

    def load(self, precision: Precision) -> LoadedModel:
        """The checkpoint in a precision."""
        return LoadedModel(self._checkpoint, self._device, precision)

    def classes(self, model: LoadedModel) -> ClassIndices:
        """Which class is which."""
        return resolve_classes(
            is_structbert=self._checkpoint.is_structbert,
            id2label=self._checkpoint.id2label,
            num_classes=model.num_classes,
            stated=StatedIndices(None, None),
        )

    def scores(self, model: LoadedModel, result: TextLogits) -> np.ndarray:
        """(texts, labels) scores."""
        return scores_from_logits(result.logits, self.classes(model), as_multi_label=len(self._hypotheses) == 1)

    def score(self, model: LoadedModel, margin: float | None = None) -> tuple[TextLogits, float]:
        """Logits of all texts, and the seconds that they took."""
        settings = self._settings
        if margin is not None:
            is_close = CloseCalls(self.classes(model), as_multi_label=False, threshold=None, margin=margin)
            settings = replace(settings, is_close=is_close)
        engine = Engine(model, self._tokenizer, self._hypotheses, settings, lambda *_: None)
        started_s = time.perf_counter()
        return engine.score(self._texts), time.perf_counter() - started_s

    def margin(self, model: LoadedModel) -> float:
        """What a run would measure on a sample of these texts, spread evenly."""
        num_texts = min(num_sample_texts(len(self._hypotheses)), len(self._texts))
        sample = [self._texts[number * len(self._texts) // num_texts] for number in range(num_texts)]
        measurer = MarginMeasurer(
            model,
            self._tokenizer,
            self._hypotheses,
            self._settings,
            self.classes(model),
            as_multi_label=False,
            on_batch=lambda *_: None,
        )
        return measurer.measure(sample)


def compare(subject: Subject, precisions: Sequence[Precision]) -> list[dict[str, Any]]:
    """Score in fp32 and in each precision; returns a row for each."""
    exact_model = subject.load("fp32")
    exact_result, exact_s = subject.score(exact_model)
    exact = subject.scores(exact_model, exact_result)
    rows: list[dict[str, Any]] = [{"precision": "fp32", "seconds": exact_s}]
    for precision in precisions:
        model = subject.load(precision)
        result, seconds = subject.score(model)
        coarse = subject.scores(model, result)
        margin = subject.margin(model)
        mended_result, mended_s = subject.score(model, margin)
        mended = subject.scores(model, mended_result)
        rows.append(
            {
                "precision": precision,
                "seconds": seconds,
                "different_labels": int((coarse.argmax(axis=1) != exact.argmax(axis=1)).sum()),
                "largest_difference": float(np.abs(coarse - exact).max()),
                "margin": margin,
                "rows_scored_again": int(mended_result.rescored.sum()),
                "different_labels_then": int((mended.argmax(axis=1) != exact.argmax(axis=1)).sum()),
                "seconds_then": mended_s,
                "seconds_in_fp32": mended_result.counts.exact_s,
            }
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, default=Path("sample_data/model"))
    parser.add_argument("--texts", type=Path, default=Path("sample_data/news.parquet"))
    parser.add_argument("--labels", default=SAMPLE_LABELS)
    parser.add_argument("--template", default="这篇文章的标题是{}")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, default=Path("precision.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    texts = read_texts(arguments.texts, arguments.rows)
    hypotheses = [arguments.template.replace("{}", label) for label in arguments.labels.split(",")]
    subject = Subject(read_checkpoint(arguments.model), arguments.device, hypotheses, texts)
    rows = compare(subject, ["bf16"] if arguments.device == "cpu" else ["fp16", "bf16"])
    for row in rows[1:]:
        in_fp32 = row["seconds_in_fp32"] / row["seconds_then"]
        print(
            f"{row['precision']}: {row['different_labels']:,} of {len(texts):,} labels differ from fp32's, the largest "
            f"difference of a score is {row['largest_difference']:.2g}; with {row['rows_scored_again']:,} rows within "
            f"{row['margin']:.2g} scored again {row['different_labels_then']:,} differ, and that took {in_fp32:.1%} of "
            "the time"
        )
    if arguments.device == "cpu" and not cpu_has_bf16_units():
        print("This processor has no units for bf16: the labels are right, the times say nothing.")
    result = {"machine": describe_machine(), "device": arguments.device, "texts": len(texts), "rows": rows}
    arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
