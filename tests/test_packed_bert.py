"""The packed forward gives the logits of transformers' BertForSequenceClassification, in any batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchzs.models.attention import Sequences, VarlenAttention
from batchzs.models.checkpoint import EncoderConfig
from batchzs.models.packed_bert import DeviceBatch, PackedBert
from tests.builders import PATIENT_AND_BRIEF, network_config, packed, products_keep_rows, reference_network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchzs.models.device import Precision
    from batchzs.pairs import PackedPairs

#: Of logits around 1 of the small random networks here; bf16 has 8 bits of mantissa, fp16 has 11.
TOLERANCE = {"bf16": 0.05, "fp16": 0.01}
VOCAB_SIZE = 50
TOKENS = st.lists(st.integers(4, VOCAB_SIZE - 1), max_size=20)
ARCHITECTURES = st.fixed_dictionaries(
    {
        "num_hidden_layers": st.integers(1, 3),
        "num_attention_heads": st.sampled_from([1, 2, 4]),
        "hidden_act": st.sampled_from(["gelu", "gelu_new", "relu"]),
    }
)
PAIRS = st.lists(st.tuples(TOKENS, TOKENS.filter(bool)), min_size=1, max_size=8)


@dataclass(frozen=True)
class Networks:
    """One set of random weights in transformers' network and in ours."""

    reference: Any
    weights: dict[str, torch.Tensor]
    sizes: EncoderConfig

    @staticmethod
    def build(num_classes: int = 3, seed: int = 0, **changes: Any) -> Networks:
        """Build both."""
        config = network_config(vocab_size=VOCAB_SIZE, **changes)
        reference = reference_network(config, num_classes, seed)
        weights = {key.removeprefix("bert."): tensor for key, tensor in reference.state_dict().items()}
        return Networks(reference, weights, EncoderConfig(**{k: v for k, v in config.items() if k != "model_type"}))

    def packed(self, pairs: PackedPairs, precision: Precision = "fp32") -> np.ndarray:
        """Our logits."""
        return PackedBert(self.weights, self.sizes, "cpu", precision).forward(pairs)

    def expected(self, pairs: PackedPairs) -> np.ndarray:
        """The logits of transformers, pair by pair, so that no padding has a part in them."""
        edges = np.cumsum(pairs.lengths)[:-1]
        logits = []
        with torch.inference_mode():
            for ids, types in zip(np.split(pairs.input_ids, edges), np.split(pairs.token_type_ids, edges), strict=True):
                output = self.reference(
                    input_ids=torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None]
                )
                logits.append(output.logits[0].numpy())
        return np.array(logits)


def pack(pairs: list[tuple[list[int], list[int]]]) -> PackedPairs:
    """Pack texts and hypotheses."""
    return packed([text for text, _ in pairs], [hypothesis for _, hypothesis in pairs])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small lose more to threads that wait for each other than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def networks() -> Networks:
    """Two layers, two heads, GELU."""
    return Networks.build()


def test_a_network_of_one_unit_worked_by_hand() -> None:
    """One layer, width 1: layer norm over one number gives its bias, whatever the number, so all follows from biases.

    The encoder's last layer norm has bias 2, so [CLS] leaves it as 2. Pooler: weight 0.5, bias -0.25:
    tanh(2 x 0.5 - 0.25) = tanh(0.75). Classifier: weights 1, -2, 3 and biases 0, 0.5, -1.
    """
    shapes = {
        name: parameter.shape
        for name, parameter in reference_network(
            network_config(
                vocab_size=VOCAB_SIZE, hidden_size=1, num_hidden_layers=1, num_attention_heads=1, intermediate_size=1
            )
        )
        .state_dict()
        .items()
    }
    weights = {name.removeprefix("bert."): torch.ones(shape) for name, shape in shapes.items()}
    weights["encoder.layer.0.output.LayerNorm.bias"] = torch.tensor([2.0])
    weights["pooler.dense.weight"], weights["pooler.dense.bias"] = torch.tensor([[0.5]]), torch.tensor([-0.25])
    weights["classifier.weight"] = torch.tensor([[1.0], [-2.0], [3.0]])
    weights["classifier.bias"] = torch.tensor([0.0, 0.5, -1.0])
    sizes = EncoderConfig(VOCAB_SIZE, 1, 1, 1, 1, 64, 2, 1e-12, "gelu")
    logits = PackedBert(weights, sizes, "cpu", "fp32").forward(pack([([5, 6], [7])]))
    pooled = math.tanh(0.75)
    np.testing.assert_allclose(logits, [[pooled, -2 * pooled + 0.5, 3 * pooled - 1]], rtol=1e-6)


@PATIENT_AND_BRIEF
@given(pairs=PAIRS, architecture=ARCHITECTURES, num_classes=st.sampled_from([2, 3]), seed=st.integers(0, 1000))
def test_equals_transformers(
    pairs: list[tuple[list[int], list[int]]], architecture: dict[str, Any], num_classes: int, seed: int
) -> None:
    """Any small architecture, any ragged pairs in any order: the same logits within 1e-5, as float32."""
    networks = Networks.build(num_classes, seed, **architecture)
    batch = pack(pairs)
    logits = networks.packed(batch)
    assert logits.dtype == np.float32
    assert logits.shape == (len(pairs), num_classes)
    np.testing.assert_allclose(logits, networks.expected(batch), atol=1e-5)


@pytest.mark.parametrize("eps", [1e-12, 1e-5])
def test_three_heads_and_another_epsilon(eps: float) -> None:
    """A width that is no power of two, and a layer norm as the config has it."""
    networks = Networks.build(hidden_size=24, num_attention_heads=3, layer_norm_eps=eps)
    batch = pack([([5, 6, 7], [8]), ([9], [10, 11])])
    np.testing.assert_allclose(networks.packed(batch), networks.expected(batch), atol=1e-5)


@PATIENT_AND_BRIEF
@given(pairs=PAIRS, data=st.data())
def test_a_pairs_logits_do_not_depend_on_its_batch(
    networks: Networks, pairs: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    """Case Z10: alone, in another order, cut into two batches: the same bits where torch's products allow it."""
    order = data.draw(st.permutations(range(len(pairs))))
    cut = data.draw(st.integers(1, len(pairs)))
    whole = networks.packed(pack(pairs))
    parts = [part for part in (order[:cut], order[cut:]) if part]
    logits = np.concatenate([networks.packed(pack([pairs[index] for index in part])) for part in parts])
    np.testing.assert_allclose(logits, whole[order], atol=0 if products_keep_rows() else 1e-5, rtol=0)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_stays_close_and_gives_float32(networks: Networks, precision: Precision) -> None:
    """Logits of half-precision runs lie within the stated tolerance of fp32's."""
    generator = np.random.default_rng(3)
    pairs = [
        (generator.integers(4, VOCAB_SIZE, size).tolist(), generator.integers(4, VOCAB_SIZE, 5).tolist())
        for size in (40, 40, 17, 3, 3, 1)
    ]
    batch = pack(pairs)
    logits = networks.packed(batch, precision)
    assert logits.dtype == np.float32
    assert np.abs(logits - networks.expected(batch)).max() <= TOLERANCE[precision]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_pooler_and_classifier_run_in_fp32(networks: Networks, precision: Precision) -> None:
    """In half precision their rounding made ties between labels that were none: logits have more bits than that."""
    logits = networks.packed(pack([([5, 6, 7, number], [8, 9]) for number in range(4, 50)]), precision)
    for coarse in (torch.float16, torch.bfloat16):
        rounded = torch.from_numpy(logits).to(coarse).float().numpy()
        assert (rounded != logits).mean() > 0.9


def test_the_same_batch_gives_the_same_bits(networks: Networks) -> None:
    """A resumed run's shard equals the undisturbed one's because its batches do."""
    batch = pack([([5, 6, 7], [8]), ([9, 10, 11], [12]), ([13], [14, 15])])
    for precision in ("fp32", "bf16"):
        first = networks.packed(batch, precision)
        assert networks.packed(batch, precision).tobytes() == first.tobytes()


def test_positions_begin_anew_with_every_pair_and_types_tell_the_parts_apart(networks: Networks) -> None:
    """Swapping text and hypothesis, or two tokens, is another question with other logits."""
    logits = networks.packed(pack([([5, 6], [7, 8]), ([7, 8], [5, 6]), ([6, 5], [7, 8]), ([5, 6], [7, 8])]))
    np.testing.assert_allclose(logits[0], logits[3], atol=1e-6)
    assert np.abs(logits[0] - logits[1]).max() > 1e-3
    assert np.abs(logits[0] - logits[2]).max() > 1e-3


def test_pairs_as_long_as_the_positions_reach(networks: Networks) -> None:
    """The last position is used and is the right one."""
    batch = packed([[5] * 100, [6] * 100], [[7, 8], [9]], max_length=64)
    assert batch.lengths.tolist() == [64, 64]
    np.testing.assert_allclose(networks.packed(batch), networks.expected(batch), atol=1e-5)


def test_the_gpus_way_fits_together_as_far_as_shapes_go() -> None:
    """No GPU is here, but torch follows shapes and types without one: one kernel for all pairs, in half precision."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    networks = Networks.build(hidden_size=64)
    network = PackedBert(networks.weights, networks.sizes, "meta", "fp16")
    network._attention = VarlenAttention(varlen.varlen_attn)
    bounds, *ids = (torch.empty(size, dtype=torch.int32, device="meta") for size in (4, 23, 23, 23))
    sequences = Sequences(np.array([0, 9, 18]), longest=9, runs=[], bounds=bounds)
    with torch.inference_mode():
        logits = network.logits(DeviceBatch(sequences, *ids))
    assert (logits.shape, logits.dtype) == ((3, 3), torch.float32)
