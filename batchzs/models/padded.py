"""The padded path: transformers' own network for every sequence classifier that the packed path does not run.

Pairs come sorted by length and packed; here they are padded to the longest, with a mask. transformers builds the
network and names its parameters; the weights are read as on the packed path, so that nothing in a model directory is
executed and no connection is made. Every parameter must be there: a head that transformers filled at random would
answer as confidently as a trained one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from batchzs.errors import MachineError, ModelError
from batchzs.models.memory import is_out_of_memory
from batchzs.models.packed_bert import DTYPES
from batchzs.models.padded_config import PaddedConfig, import_transformers, network_class, network_config
from batchzs.models.transfer import Fetching, queueing
from batchzs.models.weights import read_state_dict, shown_keys
from batchzs.pairs import PackedPairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchzs.models.checkpoint import Checkpoint
    from batchzs.models.device import Precision

#: Left over in many checkpoints, and no part of what their classifiers compute: buffers, heads of the pretraining, and
#: a pooler where the classifier has a head of its own. Anything else may be a layer that config.json does not know of.
_HARMLESS_ENDINGS = ("position_ids", ".version")
_HARMLESS_PREFIXES = (
    *("cls.", "lm_head.", "lm_predictions.", "mask_predictions.", "predictions.", "final_logits_bias"),
    *("discriminator_predictions.", "generator_predictions.", "generator_lm_head.", "vocab_"),
)
_POOLER = "pooler."
#: How far padding may move a logit, as a share of 1 + its size: rounding, and far less than a missing mask would.
_PADDING_TOLERANCES: Mapping[Precision, float] = {"fp32": 1e-3, "fp16": 0.05, "bf16": 0.25}
#: Lengths of the pairs that show whether padding does: few tokens, one of them short beside the longest.
_PROBE_LENGTHS = (15, 9, 4)


class PaddedNetwork:
    """A sequence classifier of transformers' in one precision on one device.

    Safe to call from several threads: a forward changes nothing in the network.

    Args:
        checkpoint: what the network is.
        state: its parameters, as `read_padded_weights` returns them.
        device: as torch names it.
        precision: of the whole network.

    Raises:
        ModelError: a parameter is missing, misshapen or left over, or padding changes the network's scores.
        MachineError: memory is short.
    """

    def __init__(
        self, checkpoint: Checkpoint, state: Mapping[str, torch.Tensor], device: str, precision: Precision
    ) -> None:
        if not isinstance(checkpoint.network, PaddedConfig):
            raise TypeError(f"{checkpoint.directory}: a {checkpoint.model_type} takes the packed path")
        self._sizes = checkpoint.network
        self._device = torch.device(device)
        self._queueing = queueing(self._device)
        self.num_classes = checkpoint.network.num_classes
        self._network = _build(checkpoint, self._sizes, state, DTYPES[precision]).to(self._device)
        _refuse_visible_padding(self, checkpoint, precision)

    def forward(self, pairs: PackedPairs) -> np.ndarray:
        """Score pairs.

        Args:
            pairs: packed pairs; they are padded to the longest of them.

        Returns:
            (pairs, classes) float32 logits, in the order of `pairs`.

        Raises:
            RuntimeError: torch ran out of memory, among other things of torch's.
        """
        padded = pairs.padded(self._sizes.pad_id)
        inputs = {"input_ids": padded.input_ids, "attention_mask": padded.mask.astype(np.int64)}
        # Without token types in its layout a pair has zeros, which is what a network takes where it is given none.
        if pairs.token_type_ids.max(initial=0) < (self._sizes.num_token_types or 0):
            inputs["token_type_ids"] = padded.token_type_ids
        logits = np.empty((len(pairs.lengths), self.num_classes), dtype=np.float32)
        for rows in self._groups(padded.input_ids, padded.mask):
            logits[rows] = self._forward({name: values[rows] for name, values in inputs.items()})
        return logits

    def _groups(self, input_ids: np.ndarray, mask: np.ndarray) -> list[np.ndarray | slice]:
        """Rows that go through the network together.

        Encoder-decoders read the answer at a pair's last end token, and take only pairs with equally many of them in a
        batch: a text that spells one out would end the run.
        """
        if self._sizes.eos_id is None:
            return [slice(None)]
        num_ends = ((input_ids == self._sizes.eos_id) & mask).sum(axis=1)
        return [np.flatnonzero(num_ends == number) for number in np.unique(num_ends)]

    def _forward(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            on_device = {name: torch.from_numpy(values).to(self._device) for name, values in inputs.items()}
            with self._queueing:
                logits = Fetching.start(self._network(**on_device).logits.float())
            return logits.wait()


def read_padded_weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Read all of a checkpoint's files of weights to the CPU, tensors by name as they are stored.

    Raises:
        ModelError: a file is damaged.
        MachineError: memory is short.
    """
    state: dict[str, torch.Tensor] = {}
    for path in checkpoint.weights_paths:
        state |= read_state_dict(path)
    return state


def _build(checkpoint: Checkpoint, sizes: PaddedConfig, state: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Any:
    """Have transformers build the network and put the parameters in their places, all of them."""
    import_transformers()
    path, config_path = checkpoint.weights_path, checkpoint.directory / "config.json"
    config = network_config(sizes.values, config_path)
    kind = network_class(config, config_path)
    try:
        # No directory is named, so none is searched for adapters, kernels or code: all there is, is in `state`.
        network, loading = kind.from_pretrained(
            None,
            config=config,
            state_dict=dict(state),
            dtype=dtype,
            # What transformers would choose by itself may depend on which packages are installed.
            attn_implementation="sdpa" if getattr(kind, "_supports_sdpa", False) else "eager",
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
            local_files_only=True,
        )
    except Exception as exc:  # whatever a config that fits nothing makes of the loading
        if is_out_of_memory(exc):
            raise MachineError(f"{path}: out of memory while loading the weights: free memory on the machine") from exc
        raise ModelError(f"{path}: transformers cannot load it as {kind.__name__} ({_one_line(exc)})") from exc
    if mismatched := sorted(loading["mismatched_keys"]):
        key, found, wanted = mismatched[0]
        raise ModelError(
            f"{path}: {key} has shape {_by(found)}, config.json asks for {_by(wanted)}: the files belong to different "
            "checkpoints, or config.json lacks the class names (id2label)"
        )
    if missing := sorted(loading["missing_keys"]):
        raise ModelError(
            f"{path}: lacks {len(missing)} parameters of a {kind.__name__}, such as {shown_keys(missing)}: expected a "
            "checkpoint with a trained classifier, for natural language inference"
        )
    unknown = [key for key in sorted(loading["unexpected_keys"]) if not _is_harmless(key)]
    if unknown:
        raise ModelError(
            f"{path}: holds {len(unknown)} parameters that the {kind.__name__} of config.json does not have, such as "
            f"{shown_keys(unknown)}: the files belong to different checkpoints"
        )
    return network.eval()


def _is_harmless(key: str) -> bool:
    return (
        key.endswith(_HARMLESS_ENDINGS)
        or key.startswith((*_HARMLESS_PREFIXES, _POOLER))
        or key.partition(".")[2].startswith(_POOLER)
    )


def _refuse_visible_padding(network: PaddedNetwork, checkpoint: Checkpoint, precision: Precision) -> None:
    """Do nothing where a pair gets the same logits alone as beside a longer one.

    Raises:
        ModelError: it does not, or the network takes no batch: what it scores would depend on the batch.
    """
    sizes = checkpoint.network
    generator = np.random.default_rng(0)
    pairs = [generator.integers(0, sizes.vocab_size, length) for length in _PROBE_LENGTHS]
    if isinstance(sizes, PaddedConfig):
        for ids in pairs:
            ids[ids == sizes.pad_id] = (sizes.pad_id + 1) % sizes.vocab_size
            if sizes.eos_id is not None:
                ids[ids == sizes.eos_id] = (sizes.eos_id + 1) % sizes.vocab_size
                ids[-1] = sizes.eos_id
    try:
        together = network.forward(_packed(pairs))
        alone = np.concatenate([network.forward(_packed([ids])) for ids in pairs])
    except Exception as exc:
        if is_out_of_memory(exc):
            raise MachineError(f"{checkpoint.directory}: out of memory with a few tokens: free memory") from exc
        raise ModelError(
            f"{checkpoint.directory / 'config.json'}: a {checkpoint.model_type} takes no batch of padded pairs "
            f"({_one_line(exc)}): batchzs does not run it"
        ) from exc
    # Numbers that are not finite are no evidence: half precision may be too coarse for random words.
    if (np.abs(together - alone) > _PADDING_TOLERANCES[precision] * (1 + np.abs(alone))).any():
        raise ModelError(
            f"{checkpoint.directory / 'config.json'}: padding changes the scores of this {checkpoint.model_type}, so "
            "that they would depend on the batch: batchzs does not run it"
        )


def _packed(pairs: list[np.ndarray]) -> PackedPairs:
    input_ids = np.concatenate(pairs)
    return PackedPairs(input_ids, np.zeros_like(input_ids), np.array([len(ids) for ids in pairs]))


def _by(shape: Any) -> str:
    return " x ".join(str(size) for size in shape)


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:200] or type(exc).__name__
