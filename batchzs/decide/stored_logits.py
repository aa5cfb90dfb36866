"""The logits that a shard stores, as the array that they were made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from batchzs.errors import DifferenceError

if TYPE_CHECKING:
    import pyarrow as pa

    from batchzs.finished import FinishedRun
    from batchzs.plan import Shard


def stored_logits(run: FinishedRun, shard: Shard, table: pa.Table, num_ok: int) -> np.ndarray:
    """Take a shard's logits.

    Args:
        run: the output.
        shard: for messages.
        table: the shard, with its column of logits.
        num_ok: how many of its rows are scored.

    Returns:
        (scored rows, labels, classes) float32, in the checkpoint's class order.

    Raises:
        DifferenceError: rows and logits do not fit each other.
    """
    classes, num_labels = run.classes, len(run.job.labels)
    flat = table.column(run.column("logits")).combine_chunks().flatten()
    if len(flat) != num_ok * num_labels:
        raise DifferenceError(
            f"{run.paths.shard(shard.index)}: holds {len(flat)} logits, expected {num_ok} scored rows of {num_labels}: "
            "`batchzs verify` says more"
        )
    logits = np.zeros((num_ok, num_labels, run.record.model.num_classes), dtype=np.float32)
    indices = {"entailment": classes.entailment, "neutral": classes.neutral, "contradiction": classes.contradiction}
    for part, index in indices.items():
        if index is not None:
            values = pc.struct_field(flat, part).to_numpy(zero_copy_only=False)
            logits[:, :, index] = values.reshape(num_ok, num_labels)
    return logits
