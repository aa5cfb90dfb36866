"""The benchmark's side of a worker: start it, give orders, stop it; see `bench.peers.serving`."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from bench.peers.serving import Question, Settings

ROOT = Path(__file__).parents[2]
#: Settings from outside that would give one contender fewer threads than another.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
_STOP_S = 10.0


class WorkerError(Exception):
    """A contender cannot be started, or failed."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One slice of texts, scored."""

    seconds: float
    scores: np.ndarray  # (texts, labels)


class Worker:
    """A contender's process.

    Args:
        python: of the contender's environment.
        module: in bench.peers.
        question: what it is asked.
        log: a file for what it prints.

    Raises:
        WorkerError: it does not start.
    """

    def __init__(self, python: Path, module: str, question: Question, log: Path) -> None:
        self._log = log
        environ = {name: value for name, value in os.environ.items() if name not in _THREAD_VARIABLES}
        # Everything is on disk, and nobody may go looking for more.
        environ |= {"HF_HUB_OFFLINE": "1"}
        started_s = time.monotonic()
        with log.open("w", encoding="utf-8") as errors:
            try:
                self._process = subprocess.Popen(
                    [python, "-m", f"bench.peers.{module}", json.dumps(asdict(question), ensure_ascii=False)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=ROOT,
                    env=environ,
                    encoding="utf-8",
                )
            except OSError as exc:
                raise WorkerError(f"{python}: {exc.strerror}") from exc
        try:
            self.versions: dict[str, str] = self._read()["versions"]
        except WorkerError:
            self.stop()
            raise
        self.load_s = time.monotonic() - started_s

    def configure(self, settings: Settings) -> None:
        """Have it take settings."""
        self._ask({"configure": settings})

    def score(self, texts: Sequence[str]) -> Turn:
        """Have it score texts; its own clock says how long that took."""
        reply = self._ask({"score": list(texts)})
        return Turn(reply["seconds"], np.array(reply["scores"]))

    def stop(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _ask(self, order: dict[str, object]) -> dict[str, Any]:
        if self._process.stdin is None:
            raise WorkerError("the worker has no standard input")
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as exc:
            raise WorkerError(f"it has ended; {self._log} says more") from exc
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
            raise WorkerError(next((text for text in reversed(lines) if text.strip()), "it ended without a word"))
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply
