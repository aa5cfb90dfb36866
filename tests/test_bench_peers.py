"""The benchmark against peers runs, and what it computes is what it says; no speed is asserted."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.peers.linear import LinearLayers
from bench.peers.matches import Entry, Match, TextSet
from bench.peers.report import match_result, quartiles, table
from bench.peers.serving import Settings, softmax_over_labels
from bench.peers.texts import TEXT_SETS, deal, make_labels, make_texts
from bench.peers.workers import ROOT, Turn, Worker, WorkerError


class TimedWorker:
    """In place of a process: scores that are always the same, and a clock that goes on as it is told."""

    load_s = 0.0

    def __init__(self, seconds_a_text: float, score: float = 0.5) -> None:
        self.versions: dict[str, str] = {}
        self._seconds_a_text, self._score = seconds_a_text, score
        self.configured: list[Settings] = []

    def configure(self, settings: Settings) -> None:
        """Note them."""
        self.configured.append(settings)

    def score(self, texts: list[str]) -> Turn:
        """Every text takes the same time; an odd batch size takes twice as long."""
        slow = 1 + self.configured[-1].get("batch_size", 0) % 2
        return Turn(slow * self._seconds_a_text * len(texts), np.full((len(texts), 2), self._score))


def play(peer: TimedWorker, num_rounds: int = 3) -> Match:
    """Play a match of batchzs, at a second a text, against one peer."""
    from bench.peers.contenders import BATCHZS, PEERS

    text_set = TextSet("headlines", [f"text {index}" for index in range(100)], np.arange(100) + 20, num_labels=2)
    layers = LinearLayers({"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}, "fp32", num_cpus=1)
    entries = [
        Entry(contender, worker)  # type: ignore[arg-type]
        for contender, worker in ((BATCHZS, TimedWorker(0.001)), (PEERS["transformers"], peer))
    ]
    match = Match(text_set, layers, entries[0], entries[1:])
    match.prepare(turn_s=0.01, seed=1, known={})
    for _ in range(num_rounds):
        match.play()
    return match


def test_ratios_are_of_times_on_the_same_texts() -> None:
    """A peer that takes three times as long is three times slower, at its best settings, in every round."""
    match = play(TimedWorker(0.003))
    (peer,) = match.peers
    assert match.num_texts == 10
    assert peer.settings["batch_size"] % 2 == 0
    assert peer.ratios == pytest.approx([3.0] * 3)
    result = json.loads(json.dumps(match_result(match)))
    assert result["contenders"]["transformers pipeline"]["pairs_per_s"] == pytest.approx([2 / 0.003] * 3)
    assert "3.00 (3.00 to 3.00)" in table(result)


@pytest.mark.parametrize("score", [0.5 + 2e-4, math.nan])
def test_other_scores_are_a_failure(score: float) -> None:
    """A peer that did less work, whatever its speed, is not measured."""
    match = play(TimedWorker(0.003, score))
    (peer,) = match.peers
    assert peer.failure is not None
    assert not peer.ratios
    assert "not measured: its scores lie" in table(match_result(match))


def test_quartiles_of_one_value_are_that_value() -> None:
    """So that a single round can be reported."""
    assert quartiles([2.0]) == [2.0, 2.0, 2.0]


def test_softmax_runs_over_labels() -> None:
    """Scores of e^1 and e^0, large logits without overflow."""
    expected = math.e / (math.e + 1)
    assert softmax_over_labels(np.array([[1001.0, 1000.0]])).tolist() == [pytest.approx([expected, 1 - expected])]


def test_operations_by_hand() -> None:
    """One pair of 10 tokens, hidden 2, inner 8: a layer 4*4 + 2*16; the last one keys and values 2*4, rest 2*4 + 32."""
    layers = LinearLayers({"hidden_size": 2, "intermediate_size": 8, "num_hidden_layers": 2}, "fp32", 1)
    assert layers.operations(num_tokens=10, num_pairs=1) == 2 * (10 * (48 + 8) + 40)


@pytest.mark.parametrize("name", TEXT_SETS)
def test_texts_are_different_and_the_same_every_time(name: str) -> None:
    """Equal texts would be scored once by batchzs and twice by its peers; another run must score the same ones."""
    texts = make_texts(name, 200, seed=1)
    assert len(set(texts)) == 200
    assert texts == make_texts(name, 200, seed=1)
    assert texts != make_texts(name, 200, seed=2)


def test_labels_begin_with_the_nine_and_are_different() -> None:
    """A hundred labels are nine and ninety-one more."""
    assert len(set(make_labels(100))) == 100
    assert make_labels(100)[:9] == make_labels(9)
    with pytest.raises(ValueError, match="labels asked for"):
        make_labels(100_000)


def test_turns_are_alike() -> None:
    """Every turn has one text of each part of the lengths, and no text comes twice before all have come."""
    lengths = [7 * index % 100 for index in range(100)]
    turns = deal(lengths, num_texts=10, num_turns=10, seed=0)
    assert sorted(index for turn in turns for index in turn) == list(range(100))
    for turn in turns:
        assert sorted(lengths[index] // 10 for index in turn) == list(range(10))


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The note in the table names the package that an environment lacks."""
    from bench.peers.serving import Question

    question = Question(str(tmp_path), ["a", "b"], "{}", "fp32", 1)
    with pytest.raises(WorkerError, match="No module named"):
        Worker(Path(sys.executable), "score_nobody", question, tmp_path / "log")


@pytest.mark.slow
def test_a_dry_run(tmp_path: Path) -> None:
    """Both batchzs and transformers' pipeline load, agree on every score, and end in a table and in JSON."""
    result_path = tmp_path / "结果 1.json"
    options = "--size tiny --texts bodies --peers transformers,openvino --precisions fp32 --num-labels 3 --minutes 0"
    command = [sys.executable, "-m", "bench.peers", *options.split(), "--turn-s", "0.001"]
    done = subprocess.run(
        [*command, "--work", tmp_path, "--json", result_path],
        capture_output=True,
        check=False,
        cwd=ROOT,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "OpenVINO in fp32 was left out: --peer-python was not given" in done.stdout
    match = json.loads(result_path.read_bytes())["matches"]["bodies fp32"]
    peer = match["contenders"]["transformers pipeline"]
    assert (match["rounds"], match["pairs_a_turn"], len(peer["ratios"])) == (1, 6, 1)
    assert peer["largest_score_difference"] < 1e-4
    assert {tried["settings"]["batch_size"] for tried in peer["tried"]} == {1, 8, 32, 64}
