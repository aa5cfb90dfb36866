"""A job's classifier in memory, for Python and notebooks: texts in, the columns of a run out.

What scores here is what scores in a run: the same engine, the same rules for device, precision and batches, the same
decisions. The input is not looked at and nothing is written. Signals are left alone, nothing is printed, and what there
is to say goes to the logger `batchzs`, which shows it to nobody until the program asks for it.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from batchzs.engine import Engine
from batchzs.errors import MachineError
from batchzs.fingerprint import fingerprint_of
from batchzs.inputs.rows import BAD_ENCODING, OK, ShardRows
from batchzs.job import load_job
from batchzs.libraries import refuse_old_libraries
from batchzs.margin import MarginMeasurer, num_sample_texts
from batchzs.models.opening import open_model
from batchzs.output import label_shard
from batchzs.pairs import check_hypotheses_fit
from batchzs.paths import RunPaths
from batchzs.plan import Selection
from batchzs.records import FORMAT_VERSION, RunRecord, read_record
from batchzs.resources import (
    STAND_IN,
    adopt,
    engine_settings,
    load_pair_model,
    place,
    precision_again,
    resolve,
    settle_batch_tokens,
)
from batchzs.test_hook import TestHook

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from batchzs.engine import PairModel, TextLogits
    from batchzs.job import JobConfig
    from batchzs.models.classes import ClassIndices
    from batchzs.models.device import Placement
    from batchzs.models.opening import OpenedModel
    from batchzs.records import ModelRecord, Resolved

logger = logging.getLogger(__name__)
logging.getLogger("batchzs").addHandler(logging.NullHandler())  # a library's way to say nothing by itself

#: Held while something is computed: torch's number of threads is the process's, so that classifiers take turns in it.
_TURN = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model in memory; classifiers made by `with_job` share it."""

    job: JobConfig  # that it was loaded for
    opened: OpenedModel
    placement: Placement
    resolved: Resolved  # for that job; with a margin where a run has measured one
    model: PairModel
    classes: ClassIndices


class Classifier:
    """Scores texts as a run of the job does.

    Where the job's output holds a run that scores and decides as this job does, on the same kind of device, what that
    run settled is taken over: precision, batch size, and how close is too close to call. Otherwise they are settled as
    a run's first attempt settles them, with one difference: a run measures the margin for scoring again in fp32 on some
    of its own rows, and here it is measured on the first texts that are scored, a few hundred, over several calls if
    need be, and only ever grows. In fp32 there is no margin.

    Several threads may use classifiers; all of a process take turns. While texts are scored, and while a model loads,
    torch is set to the number of threads that a run uses, for the whole process, and set back afterwards.

    Args:
        job: the job. Its input need not exist.
        offline: forbid any connection, even for a hub model that is not on disk.

    Raises:
        ModelError: the model is missing or unfit.
        UsageError: the job's max_length or one of its hypotheses does not fit the model.
        MachineError: the device cannot be used, or a library is too old.
    """

    _loaded: _Loaded | None  # None: closed

    def __init__(self, job: JobConfig, *, offline: bool = False) -> None:
        refuse_old_libraries()
        self._start(job, _load(job, offline=offline))

    @classmethod
    def from_job(cls, path: Path | str, overrides: Sequence[str] = (), *, offline: bool = False) -> Self:
        """Read a job file and load its model.

        Args:
            path: the YAML file.
            overrides: put over the file's values, such as `["engine.device=cpu"]`: the arguments of `--set`.
            offline: forbid any connection, even for a hub model that is not on disk.

        Raises:
            UsageError: the job is wrong, or does not fit the model.
            ModelError: the model is missing or unfit.
            MachineError: the device cannot be used, or a library is too old.
        """
        return cls(load_job(Path(path), [overrides] if isinstance(overrides, str) else overrides), offline=offline)

    def with_job(self, job: JobConfig) -> Classifier:
        """Make a classifier with another job's labels, hypotheses and decisions on the model that is loaded.

        Raises:
            ValueError: the job has another model or another engine, or this classifier is closed.
            UsageError: one of the job's hypotheses does not fit the model.
        """
        loaded = self._open
        if (job.model, job.engine) != (self.job.model, self.job.engine):
            raise ValueError("the job's model and engine are not those of this classifier: make a new one")
        tokenizer = loaded.opened.tokenizer
        check_hypotheses_fit(
            tokenizer.encode([label.hypothesis for label in job.labels]),
            [label.name for label in job.labels],
            job.engine.max_length,
            tokenizer.layout.num_special_tokens,
        )
        other = object.__new__(Classifier)
        other._start(job, loaded)
        return other

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of `scores` and `logits`."""
        return tuple(label.name for label in self.job.labels)

    @property
    def device(self) -> str:
        """The device, as torch names it."""
        return self._open.placement.device

    @property
    def precision(self) -> str:
        """What scores are computed in: fp32, fp16 or bf16."""
        return self._resolved.precision

    def score(self, texts: Iterable[str | None]) -> pl.DataFrame:
        """Score texts.

        Args:
            texts: one row each. None and texts without a token of their own are `empty`, as in a run; a text with half
                of a surrogate pair, which no file could hold, is `bad_encoding`.

        Returns:
            The columns that a run adds (docs/output.md), but for `source_file` and `source_row`, one row a text, in
            their order. All of it is in memory at once: for millions of texts, make a run.

        Raises:
            TypeError: something among the texts is neither a text nor None, or it is one text in place of several.
            ValueError: the classifier is closed.
            MachineError: not even one pair fits into memory, or the precision is of no use on this device.
        """
        rows = _rows(texts)
        loaded = self._open
        with _turn(self._resolved.threads, loaded.placement):
            self._measure_margin(loaded, rows)
            scored = self._engine(loaded).score(rows.texts)
        return self._frame(loaded, rows, scored)

    def close(self) -> None:
        """Let go of the model; its memory is free once every classifier that shares it is closed."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return
        placement = loaded.placement
        del loaded
        if placement.kind == "cuda":
            import torch

            torch.cuda.empty_cache()
        elif placement != STAND_IN:
            from batchzs.models.allocator import give_back_freed_memory

            give_back_freed_memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, job: JobConfig, loaded: _Loaded) -> None:
        self.job = job
        self._loaded = loaded
        margin = loaded.resolved.rescore_margin if _asks_alike(job, loaded.job) else None
        self._resolved = loaded.resolved.model_copy(update={"rescore_margin": margin})
        is_measured = margin is not None or not job.rescores_close(loaded.resolved.precision)
        #: Texts that the margin is still to be measured on.
        self._num_to_measure = 0 if is_measured else num_sample_texts(len(job.labels))

    @property
    def _open(self) -> _Loaded:
        if self._loaded is None:
            raise ValueError("this classifier is closed")
        return self._loaded

    def _engine(self, loaded: _Loaded) -> Engine:
        """An engine of its own for each call: what one call's texts showed of the precision is no other's matter."""
        return Engine(
            loaded.model,
            loaded.opened.tokenizer,
            [label.hypothesis for label in self.job.labels],
            engine_settings(self.job, self._resolved, loaded.classes),
            lambda *_: None,
        )

    def _measure_margin(self, loaded: _Loaded, rows: ShardRows) -> None:
        """Measure on texts of this call, spread over it, until enough have been measured on."""
        texts = [text for text in dict.fromkeys(rows.texts) if text]
        if not self._num_to_measure or not texts:
            return
        num_texts = min(self._num_to_measure, len(texts))
        measurer = MarginMeasurer(
            loaded.model,
            loaded.opened.tokenizer,
            [label.hypothesis for label in self.job.labels],
            engine_settings(self.job, self._resolved, loaded.classes),
            loaded.classes,
            as_multi_label=self.job.scored_as_multi_label,
            on_batch=lambda *_: None,
        )
        margin = measurer.measure([texts[number * len(texts) // num_texts] for number in range(num_texts)])
        margin = max(margin, self._resolved.rescore_margin or 0.0)
        logger.info("%d texts: rows that hang on %.2g or less are scored again in fp32", num_texts, margin)
        self._resolved = self._resolved.model_copy(update={"rescore_margin": margin})
        self._num_to_measure -= num_texts

    def _frame(self, loaded: _Loaded, rows: ShardRows, scored: TextLogits) -> pl.DataFrame:
        frame = pl.DataFrame(label_shard(self.job, loaded.classes, rows, scored).table)
        return frame.drop([self.job.output.prefix + name for name in ("source_file", "source_row")])


def _load(job: JobConfig, *, offline: bool) -> _Loaded:
    hook = TestHook.from_environment(os.environ)
    if hook.is_active:
        logger.warning("TEST HOOK in force: %s; these results are no real ones", hook.description)
    begun = _begun(job)
    opened = open_model(job, begun.model if begun else None, offline=offline)
    placement = place(job, hook)
    resolved = None if begun is None else _resolved_of_run(job, begun, opened, placement, hook)
    settled = resolved if resolved is not None else resolve(job, placement, hook)
    with _turn(settled.threads, placement):
        loaded = load_pair_model(opened, placement, settled, hook)
    if resolved is None:
        settled = settle_batch_tokens(job, settled, loaded)
    return _Loaded(job, opened, placement, settled, loaded.model, opened.classes(loaded.model.num_classes))


def _begun(job: JobConfig) -> RunRecord | None:
    """The run that the job's output holds, if this batchzs can read it."""
    record = read_record(RunPaths(job.output.path).run_record, RunRecord)
    return None if record is None or record.format_version != FORMAT_VERSION else record


def _resolved_of_run(
    job: JobConfig, begun: RunRecord, opened: OpenedModel, placement: Placement, hook: TestHook
) -> Resolved | None:
    """What the run in the job's output settled; None where it scores otherwise, or somewhere else."""
    if begun.resolved.device_kind != placement.kind or _digests(begun.model) != _digests(opened):
        return None
    precision = precision_again(job, begun.resolved, hook)
    now = fingerprint_of(job, opened.record(begun.model.num_classes), precision, Selection(), hook.description)
    if now.scores != begun.fingerprint.scores or now.decision != begun.fingerprint.decision:
        return None
    try:
        resolved = adopt(job, begun.resolved, placement)
    except MachineError as exc:
        logger.warning("not scoring as the run in %s does: %s", job.output.path, exc)
        return None
    logger.info("scoring as the run in %s does", job.output.path)
    return resolved


def _digests(model: ModelRecord | OpenedModel) -> dict[str, str]:
    return {file.name: file.sha256 for file in model.files}


def _asks_alike(job: JobConfig, other: JobConfig) -> bool:
    """Whether a margin measured for one job holds for the other."""
    return (job.labels, job.multi_label, job.resolved_threshold) == (
        other.labels,
        other.multi_label,
        other.resolved_threshold,
    )


def _rows(texts: Iterable[str | None]) -> ShardRows:
    """Texts as the reader of a shard hands them on."""
    if isinstance(texts, str):
        raise TypeError("found one text, expected several: put it into a list")
    given: list[str] = []
    statuses: list[str] = []
    for number, text in enumerate(texts):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"texts[{number}] is of type {type(text).__name__}, expected a str or None")
        is_text = text is None or _is_text(text)
        given.append(str(text) if text is not None and is_text else "")
        statuses.append(OK if is_text else BAD_ENCODING)
    return ShardRows(
        texts=given,
        statuses=statuses,
        reasons=[None if status == OK else "half of a surrogate pair is no character" for status in statuses],
        carried=pl.DataFrame(),
        source_files=[""] * len(given),
        source_rows=np.arange(len(given), dtype=np.int64),
    )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _turn(num_threads: int, placement: Placement) -> Iterator[None]:
    """Have torch use as many threads as a run does, since the last bits of scores depend on them, and put it back."""
    with _TURN:
        if placement == STAND_IN:
            yield
            return
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(num_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
