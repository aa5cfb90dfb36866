"""The job file: the sections put together, what follows from them, and how it is read.

The schema, here and in `job_sections`, is the one place where keys, their meaning and their defaults stand. `load_job`
reads a YAML file, puts `--set` options over it, and returns a `JobConfig` in which every path is absolute and every
label has its hypothesis; or it raises one `UsageError` that names everything that is wrong, a line for each, with what
to do.

This module neither looks at the input, the model or the output, nor at the machine: what `auto` means there is resolved
where it is known. What follows from the job alone (`resolved_...`) is resolved here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from batchzs.dates import Day
from batchzs.errors import UsageError
from batchzs.job_checks import apply_overrides, report_schema_errors, report_taken_names, resolve_paths
from batchzs.job_dates import DateRequest, fill_dates
from batchzs.job_keys import Key
from batchzs.job_sections import (
    YES_OR_NO,
    EngineConfig,
    InputConfig,
    Label,
    ModelConfig,
    OutputConfig,
    Section,
    Share,
    as_tuple,
    empty_if_none,
)
from batchzs.labels import checked_labels, template_fault
from batchzs.located import path_text
from batchzs.yaml_lines import read_yaml

#: Columns that batchzs adds, in the order in which they stand behind the carried ones.
ADDED_COLUMNS = (
    *("source_file", "source_row", "label", "score", "labels", "scores", "logits"),
    *("num_tokens", "truncated", "rescored", "status", "reason"),
)

#: Up to so many labels a row's scores and logits are all kept; above, the file would be mostly numbers nobody reads.
_FEW_LABELS = 50


def _template(template: str) -> str:
    fault = template_fault(template)
    if fault is not None:
        raise ValueError(fault)
    return template


class JobConfig(Section):
    """One job, checked and complete."""

    input: Annotated[InputConfig, BeforeValidator(empty_if_none)]
    labels: Annotated[
        tuple[Label, ...],
        BeforeValidator(as_tuple),
        Key(
            "The labels, in the order that breaks ties.",
            values="list, path",
            note="or the path of a .txt, .csv or .yaml file",
            example="[财经, 体育, 娱乐]",
        ),
    ] = Field(min_length=1, description="a list, such as [财经, 体育], or a .csv, .txt or .yaml file")
    template: Annotated[
        str,
        AfterValidator(_template),
        Key(
            "The sentence each label is put into: its hypothesis.",
            values="text with one `{}`",
            note="{} stands for the label",
        ),
    ] = Field(default="这篇文章的标题是{}", description="a sentence with one {} for the label, in quotes")
    multi_label: Annotated[
        bool,
        Key("Whether a text may have several labels, or none.", note="true: every label is decided by itself"),
    ] = Field(default=False, description=YES_OR_NO)
    threshold: Annotated[
        Share | None,
        Key(
            "The score from which a label counts, itself included.",
            values="0 to 1, null",
            note="the least score of a label; with multi_label null means 0.5",
        ),
    ] = Field(default=None, description="a number from 0 to 1, or null")
    model: Annotated[ModelConfig, BeforeValidator(empty_if_none)]
    output: Annotated[OutputConfig, BeforeValidator(empty_if_none)]
    engine: Annotated[EngineConfig, BeforeValidator(empty_if_none)] = EngineConfig()

    @property
    def resolved_shard_rows(self) -> int:
        """Rows of a shard; `auto` keeps rows times labels near four million, about a minute on a GPU."""
        if self.output.shard_rows == "auto":
            return min(100_000, max(1_000, 4_000_000 // len(self.labels)))
        return self.output.shard_rows

    @property
    def resolved_scores(self) -> Literal["all", "none"] | int:
        """Which scores a row keeps; a number is that many of the best, never more than there are labels."""
        if self.output.scores == "auto":
            return "all" if len(self.labels) <= _FEW_LABELS else 10
        if isinstance(self.output.scores, int):
            return min(self.output.scores, len(self.labels))
        return self.output.scores

    @property
    def resolved_logits(self) -> bool:
        """Whether a row keeps its logits."""
        return len(self.labels) <= _FEW_LABELS if self.output.logits == "auto" else self.output.logits

    @property
    def scored_as_multi_label(self) -> bool:
        """Whether each label is scored by itself: one alone would always get 1.0 among its rivals."""
        return self.multi_label or len(self.labels) == 1

    def rescores_close(self, precision: str) -> bool:
        """Whether rows too close to call are scored again in fp32, in a run of this precision.

        `auto` does so in bf16, which names another label for one headline in five hundred; fp16 does for one in ten
        thousand, and fp32 costs a GPU much more than a CPU with units for bf16.
        """
        if self.engine.rescore_close == "auto":
            return precision == "bf16"
        return self.engine.rescore_close and precision != "fp32"

    @property
    def resolved_threshold(self) -> float | None:
        """The score from which a label counts, or None where the best one always does."""
        return 0.5 if self.threshold is None and self.multi_label else self.threshold


def added_column_names(job: JobConfig) -> tuple[str, ...]:
    """Name the columns that batchzs adds to the carried ones.

    Args:
        job: The job; it decides which of them there are, and what stands before their names.

    Returns:
        The names in the order of the output, prefix included.
    """
    left_out = {
        *(() if job.multi_label else ("labels",)),
        *(() if job.resolved_scores != "none" else ("scores",)),
        *(() if job.resolved_logits else ("logits",)),
    }
    return tuple(job.output.prefix + name for name in ADDED_COLUMNS if name not in left_out)


def load_job(path: Path, overrides: Sequence[str] = ()) -> JobConfig:
    """Read and check a whole job file.

    Args:
        path: The YAML file; messages name it as it is given here. Relative paths in it resolve against its directory.
        overrides: Arguments of `--set`, such as `engine.device=cpu`, put over the file in their order. Relative paths
            in them resolve against the working directory.

    Returns:
        The job, with absolute paths and filled hypotheses.

    Raises:
        UsageError: Something is wrong: all of it, one line each.
    """
    return load_dated_job(path, overrides, DateRequest())[0]


def load_dated_job(path: Path, overrides: Sequence[str], request: DateRequest) -> tuple[JobConfig, Day | None]:
    """Read and check a whole job file whose paths may have dates in them.

    Args:
        path: As in `load_job`.
        overrides: As in `load_job`.
        request: What `--date` says, and where else the day may come from.

    Returns:
        The job, dates filled in, and the day; None where no path has a date.

    Raises:
        UsageError: Something is wrong: all of it, one line each.
    """
    job = read_yaml(path)
    if job.value is None:
        raise UsageError(f"{path_text(path)}: the file is empty; a job has at least input, labels, model and output")
    if not isinstance(job.value, dict):
        raise UsageError(
            f"{path}: found {job.found((), job.value)}, expected keys: {', '.join(JobConfig.model_fields)}"
        )
    apply_overrides(job, overrides)
    day = fill_dates(job, request)
    resolve_paths(job)
    for section in ("input", "model", "output"):
        job.value.setdefault(section, {})  # so that its missing keys are named one by one
    template = job.value.get("template", JobConfig.model_fields["template"].default)
    labels = checked_labels(job, template if isinstance(template, str) and template_fault(template) is None else None)
    if labels is not None:
        job.value["labels"] = [{"name": name, "hypothesis": hypothesis} for name, hypothesis in labels]
    report_taken_names(job, ADDED_COLUMNS, OutputConfig.model_fields["prefix"].default)
    try:
        config = JobConfig.model_validate(job.value)
    except ValidationError as exc:
        report_schema_errors(job, JobConfig, exc)
        job.raise_problems()
        raise  # only where a key with a problem was not reported: a fault of ours
    job.raise_problems()
    return config, day
