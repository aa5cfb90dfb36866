"""The worker's side: a process that loads one contender once and scores texts whenever it is told to.

It runs in the contender's own environment, so this module needs Python and NumPy alone. Orders come as lines of JSON
on standard input, replies go as lines of JSON to what was standard output; what libraries print goes to standard error.

    {"configure": {"batch_size": 32}}   ->  {}
    {"score": ["text", ...]}            ->  {"seconds": 1.5, "scores": [[0.1, ...], ...]}

The first reply, before any order, is {"versions": {...}}. A failure is replied as {"error": "..."} and ends the worker.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol, TextIO

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Settings = dict[str, int]


@dataclass(frozen=True)
class Question:
    """What every contender is asked."""

    folder: str  # of the checkpoint, with structbert/ and bert/ in it; exported networks go beside them
    labels: list[str]
    template: str
    precision: str  # fp32 or bf16
    num_cpus: int  # that may be kept busy

    @property
    def hypotheses(self) -> list[str]:
        """The labels put into the template."""
        return [self.template.replace("{}", label) for label in self.labels]


class Scorer(Protocol):
    """A loaded contender."""

    def configure(self, settings: Settings) -> None:
        """Take other settings from here on."""

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, labels) scores, a row's sum being 1."""


def softmax_over_labels(entailment: np.ndarray) -> np.ndarray:
    """(texts, labels) entailment logits to scores, for contenders that give logits."""
    shifted = np.exp(entailment.astype(np.float64) - entailment.max(axis=1, keepdims=True))
    scores: np.ndarray = shifted / shifted.sum(axis=1, keepdims=True)
    return scores


def serve(load: Callable[[Question], Scorer], packages: Sequence[str]) -> None:
    """Load the contender that the command line's question describes, and obey until standard input ends.

    Args:
        load: makes the scorer.
        packages: distributions whose versions are of interest.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        scorer = load(Question(**json.loads(sys.argv[1])))
        versions = {"python": platform.python_version()} | {package: version(package) for package in packages}
        _reply(replies, {"versions": versions})
        for line in sys.stdin:
            order = json.loads(line)
            if "configure" in order:
                scorer.configure(order["configure"])
                _reply(replies, {})
            else:
                start_s = time.perf_counter()
                scores = scorer.score(order["score"])
                seconds = time.perf_counter() - start_s
                _reply(replies, {"seconds": seconds, "scores": np.asarray(scores, dtype=np.float64).tolist()})
    except Exception as exc:  # noqa: BLE001 - libraries raise what they like, and the benchmark goes on without
        traceback.print_exc()
        _reply(replies, {"error": f"{type(exc).__name__}: {exc}"})
        sys.exit(1)


def _reply(stream: TextIO, content: dict[str, object]) -> None:
    stream.write(json.dumps(content) + "\n")
    stream.flush()
