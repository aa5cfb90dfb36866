"""A job's model as far as it is known without loading weights: its files, their digests, its tokenizer.

Digests are taken once and trusted again while a file's size and time stay, so that a finished or resumed run does not
read the weights to find that they are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchzs.errors import ModelError, UsageError
from batchzs.models.checkpoint import Checkpoint, file_digest, read_checkpoint
from batchzs.models.classes import ClassIndices, StatedIndices, refuse_unsettled_classes, resolve_classes
from batchzs.models.hub import locate_model
from batchzs.models.tokenizer import CheckpointTokenizer, load_tokenizer
from batchzs.pairs import check_hypotheses_fit
from batchzs.records import ModelFile, ModelRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from batchzs.job import JobConfig
    from batchzs.job_sections import ModelConfig


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A checkpoint whose configuration and tokenizer were read, and whose files' digests are known."""

    config: ModelConfig
    checkpoint: Checkpoint
    tokenizer: CheckpointTokenizer
    files: tuple[ModelFile, ...]

    @property
    def stated(self) -> StatedIndices:
        """What the job says of the classes."""
        return StatedIndices(self.config.entailment_id, self.config.contradiction_id)

    def classes(self, num_classes: int) -> ClassIndices:
        """Settle which class is entailment, for a head of so many classes; see `resolve_classes`."""
        return resolve_classes(
            is_structbert=self.checkpoint.is_structbert,
            id2label=self.checkpoint.id2label,
            num_classes=num_classes,
            stated=self.stated,
        )

    def text_rooms(self, job: JobConfig) -> tuple[int, ...]:
        """For each label, how many tokens of a text fit beside its hypothesis."""
        hypotheses = self.tokenizer.encode([label.hypothesis for label in job.labels])
        rooms = job.engine.max_length - self.tokenizer.layout.num_special_tokens - hypotheses.lengths
        return tuple(rooms.tolist())

    def record(self, num_classes: int) -> ModelRecord:
        """What the run's record keeps of the model."""
        classes = self.classes(num_classes)
        return ModelRecord(
            directory=str(self.checkpoint.directory),
            hub_id=self.config.id,
            revision=self.config.revision,
            files=self.files,
            num_classes=num_classes,
            entailment_id=classes.entailment,
            contradiction_id=classes.contradiction,
            neutral_id=classes.neutral,
        )


def open_model(
    job: JobConfig, known: ModelRecord | None, *, offline: bool, on_chunk: Callable[[], None] = lambda: None
) -> OpenedModel:
    """Find the job's model and read all of it but the weights, and see that the job's labels fit it.

    Args:
        job: the job.
        known: the model as an earlier attempt recorded it: where it lies, and digests that may still hold.
        offline: forbid any connection.
        on_chunk: called now and then while weights are digested; what it raises ends that.

    Raises:
        ModelError: the model is missing or unfit.
        UsageError: the job's max_length or one of its hypotheses does not fit the model.
    """
    directory = _known_directory(job.model, known) or locate_model(job.model, offline=offline)
    checkpoint, tokenizer = read_fitting(job, directory)
    # Another directory's files may have the same sizes and times: archives and container layers level times.
    trusted = known.files if known is not None and Path(known.directory) == directory else ()
    return OpenedModel(job.model, checkpoint, tokenizer, _digest_files(checkpoint, trusted, on_chunk))


def open_undigested(job: JobConfig) -> OpenedModel:
    """Open the job's model as `open_model` does, without a connection and without reading its weights.

    It has no digests, so a run cannot be recorded by it.

    Raises:
        ModelError: the model is missing or unfit.
        UsageError: the job's max_length or one of its hypotheses does not fit the model.
    """
    checkpoint, tokenizer = read_fitting(job, locate_model(job.model, offline=True))
    return OpenedModel(job.model, checkpoint, tokenizer, files=())


def opened_to_json(opened: OpenedModel) -> dict[str, Any]:
    """Where a model lies, where it is from and what it consists of, as values for JSON."""
    config = opened.config
    return {
        "directory": str(opened.checkpoint.directory.absolute()),
        "source": "hub" if config.path is None else "path",
        "hub_id": config.id,
        "revision": config.revision,
        "size_bytes": sum(file.size_bytes for file in opened.files),
        "files": [{"name": file.name, "size_bytes": file.size_bytes, "sha256": file.sha256} for file in opened.files],
    }


def read_fitting(job: JobConfig, directory: Path) -> tuple[Checkpoint, CheckpointTokenizer]:
    """Read a directory's configuration and tokenizer, and see that the job's labels fit them.

    Raises:
        ModelError: the model is missing or unfit.
        UsageError: the job's max_length or one of its hypotheses does not fit the model.
    """
    checkpoint = read_checkpoint(directory)
    refuse_unsettled_classes(
        is_structbert=checkpoint.is_structbert,
        id2label=checkpoint.id2label,
        stated=StatedIndices(job.model.entailment_id, job.model.contradiction_id),
    )
    limit = checkpoint.max_length
    if limit is not None and job.engine.max_length > limit:
        raise UsageError(
            f"engine.max_length is {job.engine.max_length}, but the model takes at most {limit} tokens",
            key="engine.max_length",
        )
    tokenizer = load_tokenizer(checkpoint)
    hypotheses = tokenizer.encode([label.hypothesis for label in job.labels])
    check_hypotheses_fit(
        hypotheses,
        [label.name for label in job.labels],
        job.engine.max_length,
        tokenizer.layout.num_special_tokens,
    )
    return checkpoint, tokenizer


def _known_directory(config: ModelConfig, known: ModelRecord | None) -> Path | None:
    """Where an earlier attempt found the same hub model, if it is still there: then the hub is not even asked."""
    if known is None or config.id is None or (known.hub_id, known.revision) != (config.id, config.revision):
        return None
    directory = Path(known.directory)
    return directory if directory.is_dir() else None


def _digest_files(
    checkpoint: Checkpoint, known: Sequence[ModelFile], on_chunk: Callable[[], None]
) -> tuple[ModelFile, ...]:
    trusted = {(file.name, file.size_bytes, file.mtime_ns): file.sha256 for file in known}
    files = []
    for path in checkpoint.files:
        try:
            status = path.stat()
        except OSError as exc:
            raise ModelError(f"{path}: cannot be read: {exc.strerror}") from exc
        digest = trusted.get((path.name, status.st_size, status.st_mtime_ns)) or file_digest(path, on_chunk)
        files.append(ModelFile(name=path.name, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, sha256=digest))
    return tuple(files)
