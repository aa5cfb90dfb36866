"""OpenVINO on the CPU in throughput mode: an asynchronous queue of requests, batches of nearly equal lengths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import openvino
import torch

from bench.peers.padded import INPUT_NAMES, Batch, PaddedScoring, example_inputs, load_network
from bench.peers.serving import Question, Settings, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Compiled networks that are kept: the best one of each text set, which take turns.
_NUM_KEPT = 2


class OpenVinoScorer:
    """Compiled networks; `streams` batches run at once (0: as OpenVINO decides), `batch_tokens` tokens a batch."""

    def __init__(self, question: Question) -> None:
        self._padded = PaddedScoring(question)
        self._core = openvino.Core()
        self._network = self._core.read_model(_convert(question))
        self._hints: dict[str, object] = {
            "PERFORMANCE_HINT": "THROUGHPUT",
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[question.precision],
            "INFERENCE_NUM_THREADS": question.num_cpus,
        }
        self._queues: dict[int, openvino.AsyncInferQueue] = {}  # by streams, the latest last
        self._settings: Settings = {}

    def configure(self, settings: Settings) -> None:
        """Take other settings; the networks compiled last stay for the next time that they are asked for."""
        self._settings = settings
        streams = settings["streams"]
        queue = self._queues.pop(streams, None)
        if queue is None:
            hints = self._hints | ({"NUM_STREAMS": streams} if streams else {})
            compiled = self._core.compile_model(self._network, "CPU", hints)
            precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
            if precision != self._hints["INFERENCE_PRECISION_HINT"]:
                raise RuntimeError(f"OpenVINO computes in {precision} on this processor, whatever it is asked for")
            queue = openvino.AsyncInferQueue(compiled)
        self._queues[streams] = queue
        if len(self._queues) > _NUM_KEPT:
            del self._queues[next(iter(self._queues))]

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, labels) scores."""
        queue = self._queues[self._settings["streams"]]

        def run(batches: list[Batch]) -> list[np.ndarray]:
            logits: list[np.ndarray] = [np.empty(0)] * len(batches)

            def keep(request: openvino.InferRequest, index: int) -> None:
                logits[index] = request.get_output_tensor(0).data.copy()

            queue.set_callback(keep)
            for index, batch in enumerate(batches):
                queue.start_async(batch, index)
            queue.wait_all()
            return logits

        return self._padded.score(texts, self._settings["batch_tokens"], run)


def _convert(question: Question) -> Path:
    """Convert the network, unless that was done before."""
    path = Path(question.folder, "openvino", "network.xml")
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        inputs = dict(zip(INPUT_NAMES, example_inputs(), strict=True))
        # sdpa: OpenVINO has a kernel for attention as a whole, and finds it by torch's operator.
        with torch.no_grad():
            network = openvino.convert_model(load_network(question, attention="sdpa"), example_input=inputs)
        unfinished = path.with_name("unfinished.xml")
        openvino.save_model(network, unfinished, compress_to_fp16=False)
        # The weights first: the network's file is the one that is looked for.
        unfinished.with_suffix(".bin").rename(path.with_suffix(".bin"))
        unfinished.rename(path)
    return path


if __name__ == "__main__":
    serve(OpenVinoScorer, ["openvino", "torch", "transformers"])
