"""Where the job's model lies on disk, and how it gets there from ModelScope's hub.

A directory is used as it is. A hub id is first looked for in the cache, without a connection; only one that is not
there is fetched, and not even that when the user said --offline. The hub's client is imported only here and only for
a hub id.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from batchzs.errors import ModelError

if TYPE_CHECKING:
    from batchzs.job import ModelConfig

#: What a checkpoint consists of; other files of a repository (images, other frameworks' weights) are not fetched.
WANTED_FILES = ["*.json", "vocab.txt", "pytorch_model.bin", "model.safetensors"]


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
    cache_dir = None if model.cache_dir is None else str(model.cache_dir)
    try:
        return Path(
            download(
                model.id,
                revision=model.revision,
                cache_dir=cache_dir,
                local_files_only=True,
                allow_patterns=WANTED_FILES,
            )
        )
    except Exception as exc:  # the client's error for "not in the cache" has changed between releases
        if offline:
            where = "ModelScope's cache" if cache_dir is None else cache_dir
            raise ModelError(
                f"{model.id} is not in {where}, and --offline forbids fetching it: run `batchzs fetch JOB` where there "
                "is a network, with the same model.cache_dir"
            ) from exc
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
            "network, or put the model's directory into model.path"
        ) from exc


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:300] or type(exc).__name__
