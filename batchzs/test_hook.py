"""The one hook for tests and benchmarks: a stand-in model, and places where the process kills or stops itself.

The environment variable BATCHZS_TEST_HOOK holds a JSON object; absent, nothing here does anything. Its keys:

stand_in            true: no checkpoint is loaded; logits are made from the pair's token ids by arithmetic, so that
                    equal pairs give equal logits in any batch and on any machine
fail_above_tokens   with stand_in: a batch of more tokens than this (padding counted) runs out of memory
nan_every           with stand_in: about one pair in so many gives NaN, by its token ids
nan_ends            with stand_in: "never" (default), or "in_fp32": the exact forward gives those pairs numbers
delay_s             with stand_in: seconds that each batch takes
count_batches       with stand_in: a file that gets one line for every batch once it is scored, the number of its pairs,
                    so that a test sees over several attempts what was scored twice
pause               as crash, with SIGSTOP: a test decides when the process goes on, and what happens before
crash               "point" or "point:n": SIGKILL to itself the n-th time that the run reaches the point (see POINTS)
worker              with `engine.device: all`: crash, fail_above_tokens and delay_s hold in this worker alone
together            with `engine.device: all`: true: no worker gets a shard before all are ready for one

A run under the hook says so in its first line and in its state.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from batchzs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from batchzs.pairs import PackedPairs

VARIABLE = "BATCHZS_TEST_HOOK"
#: Where a run can be told to die, in the order in which it comes by.
POINTS = (
    "inputs-frozen",  # the input was read once, its list is about to be stored
    "inputs-stored",  # the list is on disk, the run's record is not
    "run-recorded",  # the run's record is on disk, nothing is scored
    "generation-frozen",  # new files were read once, and are about to be stored as a generation
    "generation-recorded",  # the generation is on disk, nothing of it is scored
    "batch-scored",  # a batch's logits are in memory
    "journal-torn",  # the head of a record of the shard's journal is written, its payload is not
    "journal-written",  # a whole record is written, and not synced
    "shard-written",  # a shard's bytes are in its temporary file
    "shard-recorded",  # the shard's record is written, its file still has its temporary name
    "shard-published",  # the shard has its name
    "run-finished",  # every shard is there, _SUCCESS is not
)


@dataclass(slots=True)
class TestHook:
    """What BATCHZS_TEST_HOOK asks for; as it stands, nothing."""

    __test__ = False  # no test class, whatever pytest makes of its name

    stand_in: bool = False
    fail_above_tokens: int | None = None
    nan_every: int | None = None
    nan_ends: Literal["never", "in_fp32"] = "never"
    delay_s: float = 0.0
    count_batches: str | None = None
    pause: str | None = None
    crash: str | None = None
    worker: int | None = None
    together: bool = False
    _reached: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> TestHook:
        """Read the hook from an environment.

        Raises:
            UsageError: the variable is set and is not what this module describes.
        """
        text = environ.get(VARIABLE, "")
        if not text:
            return TestHook()
        try:
            settings = json.loads(text)
            known = {item.name for item in fields(TestHook) if not item.name.startswith("_")}
            if unknown := set(settings) - known:
                raise UsageError(f"{VARIABLE}: unknown keys {sorted(unknown)}, expected some of {sorted(known)}")
            hook = TestHook(**settings)
        except (TypeError, ValueError) as exc:
            raise UsageError(f"{VARIABLE}: found {text!r}, expected a JSON object: {exc}") from exc
        for key, point in (("pause", hook.pause), ("crash", hook.crash)):
            if point is not None and not re.fullmatch(rf"({'|'.join(POINTS)})(:[1-9][0-9]*)?", str(point)):
                raise UsageError(
                    f"{VARIABLE}: {key} is {point!r}, expected one of {', '.join(POINTS)}, with :n for the n-th time"
                )
        return hook

    @property
    def is_active(self) -> bool:
        """Whether anything was asked for."""
        return bool(self.description)

    @property
    def description(self) -> dict[str, JsonValue]:
        """The settings that differ from doing nothing."""
        names = (item.name for item in fields(self) if not item.name.startswith("_"))
        usual = TestHook()
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(usual, name)}

    def in_worker(self, number: int) -> TestHook:
        """The hook as it holds in one of several processes."""
        if self.worker in (None, number):
            return self
        return replace(self, crash=None, fail_above_tokens=None, delay_s=0.0)

    def reach(self, point: str) -> None:
        """Come by a point: where a crash is due, the process ends here as if the power had failed."""
        self._reached[point] = self._reached.get(point, 0) + 1
        for due, number in ((self.pause, signal.SIGSTOP), (self.crash, signal.SIGKILL)):
            name, _, count = (due or "").partition(":")
            if point == name and self._reached[point] == int(count or 1):
                os.kill(os.getpid(), number)


@dataclass(frozen=True, slots=True)
class StandInModel:
    """A model that needs no torch: logits in -4..4 by arithmetic on token ids."""

    hook: TestHook
    num_classes: int = 3
    path: str = "stand-in"

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits; fails and gives NaN as the hook says."""
        batch_tokens = len(pairs.lengths) * int(pairs.lengths.max())
        if self.hook.fail_above_tokens is not None and batch_tokens > self.hook.fail_above_tokens:
            raise RuntimeError(f"DefaultCPUAllocator: can't allocate memory: {batch_tokens} tokens asked for")
        if self.hook.delay_s:
            time.sleep(self.hook.delay_s)
        sums = self._sums(pairs)
        logits = self._logits(sums)
        if self.hook.nan_every:
            logits[sums % self.hook.nan_every == 0] = np.nan
        if self.hook.count_batches is not None:
            with Path(self.hook.count_batches).open("ab", buffering=0) as file:  # a kill loses no line
                file.write(b"%d\n" % len(pairs.lengths))
        return logits

    def forward_exact(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs, classes) float32 logits, without NaN where the hook says that it ends in fp32."""
        if self.hook.nan_ends == "in_fp32":
            return self._logits(self._sums(pairs))
        return self.forward(pairs)

    def release_memory(self) -> None:
        """Nothing is cached."""

    def _sums(self, pairs: PackedPairs) -> np.ndarray:
        """(pairs,) int64: one number a pair that depends on its ids and their order and on nothing else."""
        starts = np.cumsum(pairs.lengths) - pairs.lengths
        position = np.arange(pairs.num_tokens) - np.repeat(starts, pairs.lengths)
        sums: np.ndarray = np.add.reduceat((pairs.input_ids + 1) * (position * 2 + 1), starts)
        return sums

    def _logits(self, sums: np.ndarray) -> np.ndarray:
        multipliers = np.array([7919, 6101, 4507][: self.num_classes])  # primes, so that classes do not move together
        logits: np.ndarray = ((sums[:, None] * multipliers % 8192) / 1024 - 4).astype(np.float32)
        return logits
