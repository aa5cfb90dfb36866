"""Where the job's model lies on disk, and how it gets there from ModelScope's hub.

A directory is used as it is. A hub id is first looked for in the cache, without a connection; only one that is not
there is fetched, and not even that when the user said --offline. The hub's client is imported only here and only for
a hub id.
"""

from __future__ import annotations

import logging
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from batchzs.errors import ModelError
from batchzs.models.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from batchzs.job_sections import ModelConfig

#: What a checkpoint consists of; other files of a repository (images, other frameworks' weights) are not fetched.
WANTED_FILES = [
    *("*.json", "vocab.txt", "pytorch_model.bin", "model.safetensors"),
    *("pytorch_model-*.bin", "model-*.safetensors"),  # weights in several files, as transformers names them
]


class SnapshotDownload(Protocol):
    """The part of `modelscope.snapshot_download` that is used here."""

    def __call__(
        self,
        model_id: str,
        *,
        revision: str | None,
        cache_dir: str | None,
        local_files_only: bool,
        allow_patterns: list[str],
    ) -> str:
        """Return the snapshot's directory, having fetched it unless `local_files_only`."""


def locate_model(model: ModelConfig, *, offline: bool, download: SnapshotDownload | None = None) -> Path:
    """Return the model's directory, fetching it from the hub if need be and allowed.

    Args:
        model: the job's model section.
        offline: forbid any connection.
        download: stands in for `modelscope.snapshot_download` in tests.

    Raises:
        ModelError: a hub model is not on disk and may not be, or cannot be, fetched.
    """
    if model.path is not None:
        return Path(model.path)
    if model.id is None:
        raise ModelError("the job names neither model.path nor model.id")
    if download is None:
        from modelscope import snapshot_download

        download = snapshot_download
    # The client's own warnings about retries would stand between our lines; what failed is said at the end.
    logging.getLogger("modelscope_hub").setLevel(logging.ERROR)
    cache_dir = None if model.cache_dir is None else str(model.cache_dir)
    cached = _cached(model, cache_dir, download)
    if cached is not None:
        return cached
    if offline:
        where = "ModelScope's cache" if cache_dir is None else cache_dir
        revision = "" if model.revision is None else f" in revision {model.revision}"
        raise ModelError(
            f"{model.id}{revision} is not in {where}, or not whole, and it may not be fetched now: "
            "run `batchzs fetch JOB` where there is a network, with the same model.cache_dir",
            key="model.id",
        )
    try:
        return Path(
            download(
                model.id,
                revision=model.revision,
                cache_dir=cache_dir,
                local_files_only=False,
                allow_patterns=WANTED_FILES,
            )
        )
    except Exception as exc:
        raise ModelError(
            f"{model.id} could not be fetched from the hub ({_one_line(exc)}): check the id, the revision and the "
            "network, or put the model's directory into model.path",
            key="model.id",
        ) from exc


def _cached(model: ModelConfig, cache_dir: str | None, download: SnapshotDownload) -> Path | None:
    """The model's directory in the cache, if it is there, whole, and of the revision that the job names.

    An interrupted fetch leaves part of a snapshot, and caches of older clients hold a directory whose revision nobody
    knows; taking either for the model would be wrong for ever.
    """
    try:
        directory = Path(
            download(
                str(model.id),
                revision=model.revision,
                cache_dir=cache_dir,
                local_files_only=True,
                allow_patterns=WANTED_FILES,
            )
        )
        read_checkpoint(directory)
    except Exception:  # noqa: BLE001 - the client's error for "not in the cache" has changed between releases
        return None
    if model.revision is not None and directory.name != model.revision:
        return None
    return directory


def _one_line(exc: Exception) -> str:
    return textwrap.shorten(str(exc), 300, placeholder=" ...") or type(exc).__name__
