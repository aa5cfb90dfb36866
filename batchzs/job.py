"""The job file: its schema, its defaults, and how it is read.

The schema below is the one place where keys, their meaning and their defaults stand. `load_job` reads a YAML file,
puts `--set` options over it, and returns a `JobConfig` in which every path is absolute and every label has its
hypothesis; or it raises one `UsageError` that names everything that is wrong, a line for each, with what to do.

A field's description is what messages say was expected. This module neither looks at the input, the model or the
output, nor at the machine: what `auto` means there is resolved where it is known. What follows from the job alone
(`resolved_...`) is resolved here.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from batchzs.dates import Day, checked_time_zone
from batchzs.errors import UsageError
from batchzs.job_checks import (
    apply_overrides,
    checked_encoding,
    report_schema_errors,
    report_taken_names,
    resolve_paths,
)
from batchzs.job_dates import DateRequest, fill_dates
from batchzs.labels import checked_labels, template_fault
from batchzs.located import Place, path_text, quoted
from batchzs.yaml_lines import parse_yaml, read_utf8

#: Columns that batchzs adds, in the order in which they stand behind the carried ones.
ADDED_COLUMNS = (
    *("source_file", "source_row", "label", "score", "labels", "scores", "logits"),
    *("num_tokens", "truncated", "rescored", "status", "reason"),
)

#: Up to so many labels a row's scores and logits are all kept; above, the file would be mostly numbers nobody reads.
_FEW_LABELS = 50


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _tuple_of_one(value: object) -> object:
    return (value,) if isinstance(value, str) else _tuple(value)


def _empty_if_none(value: object) -> object:
    """A section whose keys are all commented out reads as null."""
    return {} if value is None else value


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise ValueError(f"{quoted(name)} is given {times} times; once is enough")
    return names


def _template(template: str) -> str:
    fault = template_fault(template)
    if fault is not None:
        raise ValueError(fault)
    return template


_Name: TypeAlias = Annotated[str, Field(min_length=1)]
_Names: TypeAlias = Annotated[tuple[_Name, ...], AfterValidator(_distinct)]
_OneOrMore: TypeAlias = Annotated[_Names, Field(min_length=1), BeforeValidator(_tuple_of_one)]
_Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
_Count: TypeAlias = Annotated[int, Field(ge=1, le=2**31 - 1)]  # what int32 columns and CUDA indices hold
_AbsolutePath: TypeAlias = Annotated[Path, Field(strict=False)]  # not strict: YAML has texts
_YES_OR_NO = "true or false"


class _Section(BaseModel):
    """What all parts of a job share: unknown keys refused, no value coerced, nothing changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class CsvConfig(_Section):
    """How CSV is written. TSV is the same with a tab for a delimiter.

    Without a header the columns are named column_0, column_1, and so on, in `text` and `keep` too.
    """

    delimiter: str = Field(default=",", min_length=1, max_length=1, description='one character, such as ";" or "\\t"')
    quote: Annotated[str, Field(max_length=1)] | None = Field(
        default='"', description="one character, or null where nothing is quoted"
    )
    header: bool = Field(default=True, description=_YES_OR_NO)
    null_values: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = Field(
        default=(), description='a list of texts that mean no value, such as ["NULL", "\\\\N"]'
    )

    @model_validator(mode="after")
    def _tell_apart(self) -> Self:
        for key, character in (("delimiter", self.delimiter), ("quote", self.quote)):
            if character and character in "\r\n\0":
                raise ValueError(f"{key} is {quoted(character)}, which ends lines or texts; choose another character")
        if self.delimiter == self.quote:
            raise ValueError(f"delimiter and quote are both {quoted(self.delimiter)}; change one, or set quote: null")
        return self

    @property
    def quote_character(self) -> str | None:
        """The quote, or None where nothing is quoted."""
        return self.quote or None


class InputConfig(_Section):
    """Which texts to label, and what to carry along."""

    path: _OneOrMore = Field(description="a file, a directory, a glob, or a list of them")
    time_zone: Annotated[_Name, AfterValidator(checked_time_zone)] | None = Field(
        default=None, description="an IANA name, such as Asia/Shanghai, or null for the machine's time zone"
    )
    format: Literal["parquet", "csv", "tsv", "jsonl"] | None = Field(
        default=None, description="parquet, csv, tsv or jsonl, or no such key to go by the files' names"
    )
    text: _OneOrMore = Field(description="the column with the text, or a list of different columns to join")
    separator: str = Field(default="\n", description="the text between joined columns, in quotes")
    keep: Annotated[Literal["all"] | _Names, BeforeValidator(_tuple)] = Field(
        default=(), description="a list of column names, such as [id, date], or all"
    )
    partitions: Literal["drop", "keep"] = Field(default="drop", description="drop or keep")
    encoding: Annotated[str, AfterValidator(checked_encoding)] = Field(
        default="utf-8", description="an encoding, such as gb18030"
    )
    csv: Annotated[CsvConfig, BeforeValidator(_empty_if_none)] = CsvConfig()
    on_bad_rows: Literal["quarantine", "fail"] = Field(default="quarantine", description="quarantine or fail")
    max_bad_share: _Share = Field(default=0.001, description="a number from 0 to 1, such as 0.001")

    @model_validator(mode="after")
    def _tabs_in_tsv(self) -> Self:
        if self.format == "tsv" and self.csv.delimiter not in {CsvConfig().delimiter, "\t"}:
            raise ValueError(f"tsv has tabs, and csv.delimiter is {quoted(self.csv.delimiter)}; set format: csv")
        return self


class Label(_Section):
    """A candidate label and the sentence that stands for it."""

    name: str
    hypothesis: str


class ModelConfig(_Section):
    """Which checkpoint scores: a directory, or a model of the hub."""

    path: _AbsolutePath | None = Field(default=None, description="the checkpoint's directory")
    id: str | None = Field(
        default=None,
        pattern=r"^[\w-][\w.-]*/[\w-][\w.-]*$",
        description="a hub model's id, owner/name; a directory goes in path",
    )
    revision: _Name | None = Field(default=None, description="a revision of the hub model, in quotes")
    entailment_id: int | None = Field(default=None, ge=0, lt=1000, description="the class's index, from 0")
    contradiction_id: int | None = Field(default=None, ge=0, lt=1000, description="the class's index, from 0")
    cache_dir: _AbsolutePath | None = Field(default=None, description="a directory")

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if (self.path is None) == (self.id is None):
            found = "neither" if self.path is None else "both"
            raise ValueError(f"found {found} of path and id, expected one: a directory, or a hub model's id")
        if self.path is not None and self.revision is not None:
            raise ValueError("revision is for a hub model, and path names a directory; remove one of the two")
        if self.entailment_id is not None and self.entailment_id == self.contradiction_id:
            raise ValueError(f"entailment_id and contradiction_id are both {self.entailment_id}; they are two classes")
        return self


class OutputConfig(_Section):
    """Where results go, and which."""

    path: _AbsolutePath = Field(description="a directory for the results")
    shard_rows: Literal["auto"] | Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default="auto", description="auto or a whole number from 1 to 10000000"
    )
    scores: Literal["auto", "all", "none"] | _Count = Field(
        default="auto", description="auto, all, none, or how many of the best, a whole number from 1"
    )
    logits: Literal["auto"] | bool = Field(default="auto", description=f"auto, {_YES_OR_NO}")
    prefix: str = Field(default="", description='a text put before added columns, such as zs_, or ""')
    compression: Literal["zstd", "snappy", "none"] = Field(default="zstd", description="zstd, snappy or none")


class EngineConfig(_Section):
    """How to compute. Length and truncation change scores; the rest changes how long it takes."""

    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda|cuda:(0|[1-9][0-9]{0,3})|all)$",
        description="auto, cpu, cuda, cuda:1 or all",
    )
    precision: Literal["auto", "fp32", "fp16", "bf16"] = Field(default="auto", description="auto, fp32, fp16 or bf16")
    rescore_close: Literal["auto"] | bool = Field(default="auto", description=f"auto, {_YES_OR_NO}")
    max_length: int = Field(
        default=512,
        ge=16,
        le=2**31 - 1,
        description="a whole number of tokens, at least 16 and no more than the model takes",
    )
    truncate: Literal["head", "head_tail"] = Field(default="head", description="head or head_tail")
    max_batch_tokens: Literal["auto"] | _Count = Field(default="auto", description="auto or a whole number from 1")
    labels_per_chunk: Literal["auto"] | _Count = Field(default="auto", description="auto or a whole number from 1")
    checkpoint_seconds: _Count = Field(default=30, description="a whole number of seconds from 1")
    workers: Literal["auto"] | _Count = Field(default="auto", description="auto or a whole number from 1")


class JobConfig(_Section):
    """One job, checked and complete."""

    input: Annotated[InputConfig, BeforeValidator(_empty_if_none)]
    labels: Annotated[tuple[Label, ...], BeforeValidator(_tuple)] = Field(
        min_length=1, description="a list, such as [财经, 体育], or a .csv, .txt or .yaml file"
    )
    template: Annotated[str, AfterValidator(_template)] = Field(
        default="这篇文章的标题是{}", description="a sentence with one {} for the label, in quotes"
    )
    multi_label: bool = Field(default=False, description=_YES_OR_NO)
    threshold: _Share | None = Field(default=None, description="a number from 0 to 1, or null")
    model: Annotated[ModelConfig, BeforeValidator(_empty_if_none)]
    output: Annotated[OutputConfig, BeforeValidator(_empty_if_none)]
    engine: Annotated[EngineConfig, BeforeValidator(_empty_if_none)] = EngineConfig()

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
    job = parse_yaml(read_utf8(path), Place(path_text(path), path.absolute().parent, line=1))
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
