"""How fast the linear layers are by themselves: what no forward pass that is made of them can beat.

`LinearLayers.rate` runs torch's linear layers in the shapes of an encoder layer, and nothing else, with as many callers
of one thread as there are CPUs, which is how batchzs runs them. `LinearLayers.operations` counts what batchzs' forward
needs of them. The quotient is the time that they alone would take; its share of the time that batchzs took says what
all the rest costs (embeddings, attention, layer norms, activations, batches that differ in size, Python).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - its customary name

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Tokens of a product: about a batch's.
_NUM_TOKENS = 1024
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class LinearLayers:
    """The linear layers of an encoder.

    >>> LinearLayers({"hidden_size": 2, "intermediate_size": 8, "num_hidden_layers": 1}, "fp32", 1).operations(10, 1)
    240.0
    """

    sizes: Mapping[str, int]  # as in config.json
    precision: str  # fp32 or bf16
    num_cpus: int  # callers, of one thread each

    def rate(self, seconds: float) -> float:
        """Measure for about so many seconds.

        Returns:
            Operations a second over all callers; a multiplication and an addition are two.
        """
        torch.set_num_threads(1)
        with ThreadPoolExecutor(self.num_cpus) as pool:
            return sum(pool.map(lambda _: self._rate_of_one(seconds), range(self.num_cpus)))

    def operations(self, num_tokens: int, num_pairs: int) -> float:
        """Count what a packed forward needs of them.

        All layers but the last run over all tokens; the last one makes keys and values of all tokens, and everything
        else of one token a pair.
        """
        hidden, inner = self.sizes["hidden_size"], self.sizes["intermediate_size"]
        square = hidden * hidden
        whole_layer = 4 * square + 2 * hidden * inner
        products = num_tokens * ((self.sizes["num_hidden_layers"] - 1) * whole_layer + 2 * square)
        products += num_pairs * (2 * square + 2 * hidden * inner)
        return 2.0 * products

    def _rate_of_one(self, seconds: float) -> float:
        hidden, inner = self.sizes["hidden_size"], self.sizes["intermediate_size"]
        dtype = _DTYPES[self.precision]
        shapes = [(hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)]
        layers = [
            (torch.randn(_NUM_TOKENS, width).to(dtype), torch.randn(out, width).to(dtype), torch.randn(out).to(dtype))
            for width, out in shapes
        ]
        operations = sum(2 * _NUM_TOKENS * width * out for width, out in shapes)
        with torch.inference_mode():
            for layer in layers:  # the first call prepares what later ones find ready
                F.linear(*layer)
            num_done, start_s = 0, time.perf_counter()
            while time.perf_counter() - start_s < seconds:
                for layer in layers:
                    F.linear(*layer)
                num_done += 1
            return num_done * operations / (time.perf_counter() - start_s)
