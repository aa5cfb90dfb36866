"""What a job will take, found before it runs: from its input and its tokenizer, without its model's weights.

Reads every file once, as a run's first pass does, and then the texts: all of them where they are few enough, otherwise
a sample. Writes nothing and takes no lock. What a device would need for it is measured elsewhere (`speed_probe`).
"""

from __future__ import annotations

import logging
import math
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchzs.display_width import cut
from batchzs.errors import UsageError
from batchzs.estimate.memory import Workload, memory_bytes
from batchzs.estimate.row_sample import sample_runs
from batchzs.estimate.suspects import has_chinese
from batchzs.estimate.text_survey import TextSurveyor
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import InputSet
from batchzs.models.checkpoint import EncoderConfig
from batchzs.models.opening import OpenedModel, open_undigested
from batchzs.paths import RunPaths
from batchzs.plan import plan_shards
from batchzs.prepare import (
    read_spec,
    refuse_meaningless_settings,
    refuse_output_over_input,
    refuse_taken_names,
)
from batchzs.records import MAX_SHARDS
from batchzs.resources import max_batch_tokens, num_workers
from batchzs.space import carried_bytes, estimated_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from batchzs.estimate.text_survey import TextSurvey
    from batchzs.inputs.rows import ShardRows
    from batchzs.inputs.spec import ReadSpec
    from batchzs.job import JobConfig
    from batchzs.models.device import DeviceKind
    from batchzs.plan import Selection, Shard

logger = logging.getLogger(__name__)

#: Up to so many rows and bytes of input every text is read; above, a sample of so many rows.
MAX_READ_ROWS = 2_000_000
MAX_READ_BYTES = 10**9
SAMPLE_ROWS = 200_000
#: Neighbouring rows of a sample, and rows of it that are held at once.
_RUN_ROWS = 64
_CHUNK_ROWS = 20_000
#: Texts and characters that are tokenised: some ten seconds of one core.
MAX_TOKENISED_TEXTS = 150_000
MAX_TOKENISED_CHARACTERS = 8_000_000
#: Of a pair's tokens, what a hypothesis may take before it is worth a word.
_LONG_HYPOTHESIS_TOKENS = 40
#: Of a label in a warning: enough to know it by.
_LABEL_COLUMNS = 24
_MUCH_TRUNCATED = 0.05
_USUAL_MAX_LENGTH = 512
_MUCH_UNKNOWN = 0.02
#: What a base-size network holds of each token, where config.json says it in other words.
_USUAL_NUMBERS_PER_TOKEN = 4 * 768 + 3072


@dataclass(frozen=True, slots=True)
class AskedHypothesis:
    """What is asked for one label."""

    label: str
    text: str
    num_tokens: int
    num_unknown: int


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be computed, identical texts of one shard once; padding is not counted."""

    num_pairs: int
    num_tokens: int
    num_batches: dict[DeviceKind, int]  # by the budget of each kind of device


@dataclass(frozen=True, slots=True)
class Disk:
    """What the output takes, and what is free where it goes."""

    needed_bytes: int
    free_bytes: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Estimate:
    """Everything that `batchzs plan` shows, but the time."""

    job: JobConfig
    inputs: InputSet
    shard_rows: tuple[int, ...]  # rows of each shard
    survey: TextSurvey
    hypotheses: tuple[AskedHypothesis, ...]
    num_truncated: int  # of the rows read
    work: Work
    disk: Disk
    memory_bytes: int
    warnings: tuple[str, ...]

    @property
    def num_selected(self) -> int:
        """Rows that the run would score."""
        return sum(self.shard_rows)

    @property
    def num_damaged(self) -> int:
        """Damaged rows: all where the whole input is selected, as its first pass counts them; else of the rows read."""
        if self.num_selected == self.inputs.num_rows:
            return sum(file.num_bad_rows for file in self.inputs.files)
        return self.survey.num_bad

    @property
    def reads_all(self) -> bool:
        """Whether every selected row was read."""
        return self.survey.num_read == self.num_selected

    @property
    def is_exact(self) -> bool:
        """Whether the numbers of tokens are counted and not estimated."""
        return self.reads_all and self.survey.is_exact


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job with its input and its tokenizer open, for the estimate and for a probe."""

    job: JobConfig
    spec: ReadSpec
    inputs: InputSet
    shards: list[Shard]
    opened: OpenedModel


def open_job(job: JobConfig, selection: Selection) -> PlannedJob:
    """Refuse what a run would refuse, read the input once, and cut it into shards.

    Raises:
        InputError: the input is missing or unreadable.
        ModelError: the model is missing or unfit.
        UsageError: the job does not fit the model or the input.
    """
    paths = RunPaths(job.output.path)
    refuse_output_over_input(job, paths)
    spec = read_spec(job)
    found = find_files(spec, exclude=[paths.output])
    refuse_meaningless_settings(job, found)
    opened = open_undigested(job)
    inputs = freeze_inputs(spec, found)
    refuse_taken_names(job, inputs)
    shards = plan_shards([file.num_rows for file in inputs.files], job.resolved_shard_rows, selection)
    if len(shards) > MAX_SHARDS:
        raise UsageError(f"output.shard_rows: makes {len(shards):,} shards, expected at most {MAX_SHARDS:,}; raise it")
    return PlannedJob(job, spec, inputs, shards, opened)


def estimate_job(planned: PlannedJob, *, exact: bool = False) -> Estimate:
    """Survey the texts and reckon what a run will take.

    Args:
        planned: the job.
        exact: read and tokenise every text, however long that takes.
    """
    job, tokenizer = planned.job, planned.opened.tokenizer
    unknown_id = tokenizer.unknown_id
    hypotheses = _hypotheses(job, planned.opened, unknown_id)
    expects_chinese = all(has_chinese(one.text) for one in hypotheses)
    survey = _survey(planned, unknown_id, expects_chinese=expects_chinese, exact=exact)
    num_selected = sum(shard.num_rows for shard in planned.shards)
    special = tokenizer.layout.num_special_tokens
    num_truncated = survey.num_longer(min(planned.opened.text_rooms(job)))
    scale = num_selected / max(survey.num_read, 1)
    work = _work(job, survey.scored_by_length * scale, [one.num_tokens for one in hypotheses], special)
    return Estimate(
        job=job,
        inputs=planned.inputs,
        shard_rows=tuple(shard.num_rows for shard in planned.shards),
        survey=survey,
        hypotheses=hypotheses,
        num_truncated=num_truncated,
        work=work,
        disk=_disk(planned, num_selected),
        memory_bytes=_memory_bytes(planned, survey, work),
        warnings=(*_warnings_of_labels(job, hypotheses), *_warnings_of_texts(job, survey, num_truncated)),
    )


def _hypotheses(job: JobConfig, opened: OpenedModel, unknown_id: int | None) -> tuple[AskedHypothesis, ...]:
    tokens = opened.tokenizer.encode([label.hypothesis for label in job.labels])
    bounds = tokens.offsets.tolist()
    return tuple(
        AskedHypothesis(
            label.name,
            label.hypothesis,
            bounds[place + 1] - bounds[place],
            int((tokens.ids[bounds[place] : bounds[place + 1]] == unknown_id).sum()) if unknown_id is not None else 0,
        )
        for place, label in enumerate(job.labels)
    )


def _survey(planned: PlannedJob, unknown_id: int | None, *, expects_chinese: bool, exact: bool) -> TextSurvey:
    surveyor = TextSurveyor(planned.opened.tokenizer, unknown_id, expects_chinese=expects_chinese)
    num_selected = sum(shard.num_rows for shard in planned.shards)
    share = num_selected / max(planned.inputs.num_rows, 1)
    num_bytes = share * sum(file.found.size_bytes for file in planned.inputs.files)
    reads_all = exact or (num_selected <= MAX_READ_ROWS and num_bytes <= MAX_READ_BYTES) or num_selected <= _RUN_ROWS
    num_read = num_selected if reads_all else min(SAMPLE_ROWS, num_selected // 2)
    for chunk in _chunks(planned, None if reads_all else num_read):
        part = chunk.num_rows / max(num_read, 1)
        limits = (MAX_TOKENISED_TEXTS, MAX_TOKENISED_CHARACTERS)
        texts, characters = (chunk.num_rows, 2**62) if exact else (math.ceil(part * limit) for limit in limits)
        surveyor.add(chunk, texts, characters)
    return surveyor.result()


def _chunks(planned: PlannedJob, num_sampled: int | None) -> Iterator[ShardRows]:
    """Read shard by shard, or a sample some runs at a time; carried columns are left out."""
    spec, inputs = planned.spec, InputSet(planned.inputs.files, ())
    if num_sampled is None:
        for shard in planned.shards:
            yield read_rows(spec, inputs, shard.spans)
        return
    spans = sample_runs(planned.shards, num_sampled, _RUN_ROWS)
    step = _CHUNK_ROWS // _RUN_ROWS
    for start in range(0, len(spans), step):
        yield read_rows(spec, inputs, spans[start : start + step])


def _work(job: JobConfig, by_length: np.ndarray, hypothesis_tokens: Sequence[int], num_special: int) -> Work:
    """Count pairs, tokens and batches from how many texts of each length are scored."""
    num_labels = len(hypothesis_tokens)
    counts = by_length.copy()
    counts[0] = 0.0  # a text without tokens gets no pair
    lengths = np.arange(len(counts))
    # Labels with hypotheses of one length ask the same of every text.
    sizes, times = np.unique(np.array(hypothesis_tokens, dtype=np.int64), return_counts=True)
    num_tokens = 0.0
    kinds: tuple[DeviceKind, ...] = ("cpu", "cuda")
    num_batches: dict[DeviceKind, float] = dict.fromkeys(kinds, 0.0)
    for size, num_alike in zip(sizes.tolist(), times.tolist(), strict=True):
        pair_lengths = np.minimum(lengths, job.engine.max_length - num_special - size) + size + num_special
        num_tokens += num_alike * float((counts * pair_lengths).sum())
        for kind in kinds:
            in_batch = np.maximum(1, max_batch_tokens(job, kind) // pair_lengths)
            num_batches[kind] += num_alike * float((counts / in_batch).sum())
    return Work(
        num_pairs=round(float(counts.sum())) * num_labels,
        num_tokens=round(num_tokens),
        num_batches={kind: math.ceil(number) for kind, number in num_batches.items()},
    )


def _disk(planned: PlannedJob, num_selected: int) -> Disk:
    folder = planned.job.output.path
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    share = num_selected / max(planned.inputs.num_rows, 1)
    carried = round(share * carried_bytes(planned.job, planned.inputs.files))
    return Disk(estimated_bytes(planned.job, num_selected, carried), shutil.disk_usage(folder).free, folder)


def _memory_bytes(planned: PlannedJob, survey: TextSurvey, work: Work) -> int:
    """Reckon a run's memory on a CPU."""
    job, network = planned.job, planned.opened.checkpoint.network
    numbers_per_token = _USUAL_NUMBERS_PER_TOKEN
    if isinstance(network, EncoderConfig):
        numbers_per_token = 4 * network.hidden_size + network.intermediate_size
    workers, processes = num_workers(job, "cpu"), 1
    if job.engine.device == "all":
        workers, processes = 1, max(1, min(workers, len(planned.shards)))
    return memory_bytes(
        Workload(
            weights_bytes=sum(
                path.stat().st_size for path in planned.opened.checkpoint.weights_paths if path.is_file()
            ),
            numbers_per_token=numbers_per_token,
            batch_tokens=max_batch_tokens(job, "cpu"),
            num_batches=work.num_batches["cpu"],
            num_workers=workers,
            num_processes=processes,
            shard_rows=max(shard.num_rows for shard in planned.shards),
            num_shards=len(planned.shards),
            text_bytes=survey.mean_text_bytes,
            num_labels=len(job.labels),
        )
    )


def _warnings_of_labels(job: JobConfig, hypotheses: Sequence[AskedHypothesis]) -> Iterator[str]:
    if len(hypotheses) == 1:
        marks = any(mark in hypotheses[0].label for mark in "，、,;；|/")
        hint = "; for several, write plain commas between them" if marks else ""
        yield f"labels: there is one label, which is scored against its own contradiction{hint}"
    if job.template == "{}" and any(one.text == one.label for one in hypotheses):
        yield "template: the bare label is asked; a sentence around it, such as 这篇文章的标题是{}, usually does better"
    for one in hypotheses:
        name = cut(one.label, _LABEL_COLUMNS)
        if one.num_unknown:
            yield f"label {name}: {one.num_unknown} of its hypothesis's tokens are unknown to the model"
        if one.num_tokens > _LONG_HYPOTHESIS_TOKENS:
            yield f"label {name}: its hypothesis has {one.num_tokens} tokens, which every text pays for"


def _warnings_of_texts(job: JobConfig, survey: TextSurvey, num_truncated: int) -> Iterator[str]:
    truncated_share = num_truncated / max(survey.num_readable, 1)
    if truncated_share > _MUCH_TRUNCATED:
        instead = "engine.truncate: head_tail keeps their ends too" if job.engine.truncate == "head" else ""
        longer = "a larger engine.max_length cuts fewer" if job.engine.max_length < _USUAL_MAX_LENGTH else ""
        advice = " and ".join(one for one in (instead, longer) if one)
        yield f"{truncated_share:.0%} of the texts are truncated{'; ' + advice if advice else ''}"
    if (survey.unknown_share or 0.0) > _MUCH_UNKNOWN:
        yield f"{survey.unknown_share:.1%} of the texts' tokens are unknown to the model: is it made for this language?"
    bad_share = survey.num_bad / max(survey.num_read, 1)
    if bad_share > job.input.max_bad_share:
        yield f"{bad_share:.2%} of the rows are damaged, more than input.max_bad_share: the run would end with code 5"
    if survey.num_empty > survey.num_readable / 2:
        yield "more than half of the texts are empty: is input.text the right column?"
    if RunPaths(job.output.path).run_record.exists():
        yield "output.path: a run was begun there already; this is the plan of the whole job (see batchzs status)"
