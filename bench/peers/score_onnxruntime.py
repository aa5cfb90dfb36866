"""ONNX Runtime on its CPU provider, with the graph that its own optimizer for BERT makes of the exported network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import onnxruntime
import torch
from onnxruntime.transformers.optimizer import optimize_model

from bench.peers.padded import INPUT_NAMES, Batch, PaddedScoring, example_inputs, load_network
from bench.peers.serving import Question, Settings, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class OnnxRuntimeScorer:
    """Sessions; `callers` batches run at once with `threads` threads each, `batch_tokens` tokens a batch."""

    def __init__(self, question: Question) -> None:
        self._padded = PaddedScoring(question)
        self._path = _export(question)
        self._sessions: dict[int, onnxruntime.InferenceSession] = {}
        self._settings: Settings = {}

    def configure(self, settings: Settings) -> None:
        """Take other settings; a session stays for the next time that its number of threads is asked for."""
        self._settings = settings
        threads = settings["threads"]
        if threads not in self._sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
            self._sessions[threads] = onnxruntime.InferenceSession(
                self._path, options, providers=["CPUExecutionProvider"]
            )

    def score(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, labels) scores."""
        session = self._sessions[self._settings["threads"]]

        def run_one(batch: Batch) -> np.ndarray:
            logits: np.ndarray = session.run(None, batch)[0]
            return logits

        def run(batches: list[Batch]) -> list[np.ndarray]:
            with ThreadPoolExecutor(self._settings["callers"]) as pool:
                return list(pool.map(run_one, batches))

        return self._padded.score(texts, self._settings["batch_tokens"], run)


def _export(question: Question) -> Path:
    """Export and optimise the network, unless that was done before."""
    path = Path(question.folder, "onnx", "optimised.onnx")
    if path.exists():
        return path
    path.parent.mkdir(exist_ok=True)
    # The optimizer knows the graphs of eager attention and of the older exporter best.
    network = load_network(question, attention="eager")
    plain = path.with_name("plain.onnx")
    axes = {0: "pairs", 1: "tokens"}
    torch.onnx.export(
        network,
        example_inputs(),
        plain,
        input_names=list(INPUT_NAMES),
        output_names=["logits"],
        dynamic_axes=dict.fromkeys(INPUT_NAMES, axes) | {"logits": {0: "pairs"}},
        dynamo=False,
    )
    heads, width = network.config.num_attention_heads, network.config.hidden_size
    optimised = optimize_model(str(plain), model_type="bert", num_heads=heads, hidden_size=width, opt_level=1)
    unfinished = path.with_suffix(".unfinished")
    print("fused:", optimised.get_fused_operator_statistics())
    optimised.save_model_to_file(str(unfinished))
    unfinished.rename(path)
    return path


if __name__ == "__main__":
    serve(OnnxRuntimeScorer, ["onnxruntime", "onnx", "torch", "transformers"])
