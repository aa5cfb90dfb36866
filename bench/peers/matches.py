"""One match: batchzs against every peer that loads, in one precision, on one set of texts.

A machine's speed drifts, more than contenders differ if others use it too. So nobody is measured alone: in every round
each peer scores the round's texts once, between two turns of batchzs on the same texts, and what counts is the ratio
of the peer's time to the mean of those two. The order of the peers moves on by one every round.

Every turn's scores are held against batchzs' of the turn before it: whoever leaves out a token, a text or a layer to be
faster gives other scores.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bench.peers.texts import deal
from bench.peers.workers import Turn, Worker, WorkerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.peers.contenders import Contender
    from bench.peers.linear import LinearLayers
    from bench.peers.serving import Settings

logger = logging.getLogger(__name__)

#: How far scores may lie from batchzs'. In bf16 each contender rounds at other places, and a random network answers to
#: that by up to 0.01 and more: what this cannot tell, the same contender's fp32 match does.
TOLERANCES = {"fp32": 1e-4, "bf16": 0.05}
#: Texts that show batchzs' pace, at first: of middling length, where a long one would take its time.
_PILOT_TEXTS = 3
#: The fewest texts of a turn.
_FEWEST_TEXTS = 2
#: Turns that are dealt before texts come again.
_NUM_TURNS = 64
#: Of a turn's time, how long the linear layers alone are measured, twice in every round.
_LINEAR_SHARE = 0.15


@dataclass(slots=True)
class Entry:
    """A contender in a match: its process, and what it did."""

    contender: Contender
    worker: Worker
    settings: Settings = field(default_factory=dict)
    tried: list[tuple[Settings, float]] = field(default_factory=list)  # and the seconds they took
    seconds: list[float] = field(default_factory=list)  # of every turn
    tokens_per_s: list[float] = field(default_factory=list)  # of every turn
    ratios: list[float] = field(default_factory=list)  # batchzs' speed over this one's, of every round
    largest_difference: float = 0.0  # of a score from batchzs'
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class TextSet:
    """The texts of a match."""

    name: str
    texts: list[str]
    num_tokens: np.ndarray  # (texts,) int64, real tokens of each text's pairs
    num_labels: int


class Match:
    """See the module's docstring.

    Args:
        text_set: what is scored.
        layers: the checkpoint's linear layers, in the precision of all contenders.
        batchzs: the one that all are held against.
        peers: the others.
    """

    def __init__(self, text_set: TextSet, layers: LinearLayers, batchzs: Entry, peers: Sequence[Entry]) -> None:
        self.text_set, self.batchzs, self.peers = text_set, batchzs, list(peers)
        self._layers = layers
        self._turns: list[list[int]] = []
        self._turn_s = 0.0
        self.linear_rates: list[float] = []
        self.linear_shares: list[float] = []
        self.num_rounds = 0

    @property
    def precision(self) -> str:
        """Of all contenders."""
        return self._layers.precision

    @property
    def name(self) -> str:
        """As results are filed."""
        return f"{self.text_set.name} {self.precision}"

    @property
    def num_texts(self) -> int:
        """Texts of a turn."""
        return len(self._turns[0])

    @property
    def num_pairs(self) -> int:
        """Pairs of a turn."""
        return self.num_texts * self.text_set.num_labels

    def prepare(self, turn_s: float, seed: int, known: Mapping[str, Settings]) -> None:
        """Find how many texts make a turn, and the best settings of each.

        Args:
            turn_s: about how long a turn of batchzs is to take.
            seed: of the dealing of texts.
            known: settings to take without trying others, by contenders' names.

        Raises:
            WorkerError: batchzs itself failed.
        """
        num_tokens = self.text_set.num_tokens
        middle = len(num_tokens) // 2
        pilot = np.argsort(num_tokens, kind="stable")[middle : middle + _PILOT_TEXTS].tolist()
        self.batchzs.worker.configure(self.batchzs.contender.candidates(self._layers.num_cpus)[-1])
        self.batchzs.worker.score(self._texts(pilot[:1]))
        tokens_per_s = num_tokens[pilot].sum() / self.batchzs.worker.score(self._texts(pilot)).seconds
        num_texts = max(round(turn_s * tokens_per_s / num_tokens.mean()), _FEWEST_TEXTS)
        self._turn_s = turn_s
        self._turns = deal(num_tokens.tolist(), min(num_texts, middle), _NUM_TURNS, seed)
        logger.info("%s: %d pairs a turn", self.name, self.num_pairs)
        reference = self._choose(self.batchzs, None, known)
        for peer in self.peers:
            try:
                self._choose(peer, reference, known)
            except WorkerError as exc:
                peer.failure = str(exc)

    def play(self) -> None:
        """Play a round.

        Raises:
            WorkerError: batchzs itself failed.
        """
        turn = self._turns[1 + self.num_rounds % (_NUM_TURNS - 1)]  # the first one's texts were seen while trying
        peers = [peer for peer in self.peers if peer.failure is None]
        first = self.num_rounds % max(len(peers), 1)
        self.num_rounds += 1
        for entry in (self.batchzs, *peers):
            entry.worker.configure(entry.settings)
        before = self._first_turn(turn)
        for peer in peers[first:] + peers[:first]:
            try:
                taken = self._take_turn(peer, turn)
                self._compare(peer, taken, before)
            except WorkerError as exc:
                peer.failure = str(exc)
                continue
            after = self._take_turn(self.batchzs, turn)
            peer.ratios.append(taken.seconds / (0.5 * (before.seconds + after.seconds)))
            before = after

    def _texts(self, turn: Sequence[int]) -> list[str]:
        return [self.text_set.texts[index] for index in turn]

    def _choose(self, entry: Entry, reference: Turn | None, known: Mapping[str, Settings]) -> Turn:
        """Try settings on the first turn's texts, and keep the fastest; returns its turn."""
        texts = self._texts(self._turns[0])
        candidates = entry.contender.candidates(self._layers.num_cpus)
        if entry.contender.name in known:
            candidates = [known[entry.contender.name]]
        best: Turn | None = None
        for settings in candidates:
            entry.worker.configure(settings)
            entry.worker.score(texts[:1])  # what is prepared once is prepared here
            turn = entry.worker.score(texts)
            if reference is not None:
                self._compare(entry, turn, reference)
            entry.tried.append((settings, turn.seconds))
            logger.info("%s: %s with %s took %.2f s", self.name, entry.contender.name, settings, turn.seconds)
            if best is None or turn.seconds < best.seconds:
                best, entry.settings = turn, settings
        if best is None:
            raise WorkerError("there are no settings to try")
        return best

    def _first_turn(self, turn: Sequence[int]) -> Turn:
        """A turn of batchzs between two of the linear layers alone."""
        seconds = _LINEAR_SHARE * self._turn_s
        rate_before = self._layers.rate(seconds)
        taken = self._take_turn(self.batchzs, turn)
        rate = 0.5 * (rate_before + self._layers.rate(seconds))
        num_tokens = int(self.text_set.num_tokens[turn].sum())
        self.linear_rates.append(rate)
        self.linear_shares.append(self._layers.operations(num_tokens, self.num_pairs) / rate / taken.seconds)
        return taken

    def _take_turn(self, entry: Entry, turn: Sequence[int]) -> Turn:
        taken = entry.worker.score(self._texts(turn))
        entry.seconds.append(taken.seconds)
        entry.tokens_per_s.append(int(self.text_set.num_tokens[turn].sum()) / taken.seconds)
        return taken

    def _compare(self, entry: Entry, turn: Turn, reference: Turn) -> None:
        if turn.scores.shape != reference.scores.shape:
            raise WorkerError(f"its scores' shape is {turn.scores.shape}, batchzs' {reference.scores.shape}")
        difference = float(np.abs(turn.scores - reference.scores).max())
        entry.largest_difference = max(entry.largest_difference, difference)
        if not difference <= TOLERANCES[self.precision]:  # nor may it be NaN
            raise WorkerError(f"its scores lie up to {difference:.2g} from batchzs'")
