"""The sections of a job file: their keys, with types, defaults and meanings.

A field's description is what messages say was expected, and its `Key` is what the reference and editors say. What is
checked here needs no more than a section's own keys; `job` puts the sections together.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from batchzs.dates import checked_time_zone
from batchzs.job_keys import Key
from batchzs.located import quoted
from batchzs.text_encodings import checked_encoding


def as_tuple(value: object) -> object:
    """Take YAML's list for the tuple that a job keeps; the schema refuses what is neither."""
    return tuple(value) if isinstance(value, list) else value


def _tuple_of_one(value: object) -> object:
    return (value,) if isinstance(value, str) else as_tuple(value)


def empty_if_none(value: object) -> object:
    """A section whose keys are all commented out reads as null."""
    return {} if value is None else value


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise ValueError(f"{quoted(name)} is given {times} times; once is enough")
    return names


Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
_Name: TypeAlias = Annotated[str, Field(min_length=1)]
_Names: TypeAlias = Annotated[tuple[_Name, ...], AfterValidator(_distinct)]
_OneOrMore: TypeAlias = Annotated[_Names, Field(min_length=1), BeforeValidator(_tuple_of_one)]
_Count: TypeAlias = Annotated[int, Field(ge=1, le=2**31 - 1)]  # what int32 columns and CUDA indices hold
_ClassId: TypeAlias = Annotated[int, Field(ge=0, lt=1000)]
_AbsolutePath: TypeAlias = Annotated[Path, Field(strict=False)]  # not strict: YAML has texts
YES_OR_NO = "true or false"


class Section(BaseModel):
    """What all parts of a job share: unknown keys refused, no value coerced, nothing changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class CsvConfig(Section):
    """How CSV is written. TSV is the same with a tab for a delimiter.

    Without a header the columns are named column_0, column_1, and so on, in `text` and `keep` too.
    """

    delimiter: Annotated[
        str, Key("What divides fields; in tsv a tab.", values="one character", note="tsv always has tabs")
    ] = Field(default=",", min_length=1, max_length=1, description='one character, such as ";" or "\\t"')
    quote: Annotated[
        Annotated[str, Field(max_length=1)] | None,
        Key(
            "What encloses fields; doubled inside them.",
            values="one character, null",
            note="null: quotes are ordinary characters",
        ),
    ] = Field(default='"', description="one character, or null where nothing is quoted")
    header: Annotated[
        bool, Key("Whether the first record holds the names.", note="false: columns are column_0, column_1, ...")
    ] = Field(default=True, description=YES_OR_NO)
    null_values: Annotated[
        tuple[str, ...],
        BeforeValidator(as_tuple),
        Key(
            "Whole fields that mean no value, compared exactly.",
            values="list",
            note='fields that mean no value, such as ["NULL", "\\\\N"]',
        ),
    ] = Field(default=(), description='a list of texts that mean no value, such as ["NULL", "\\\\N"]')

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


class InputConfig(Section):
    """Which texts to label, and what to carry along."""

    path: Annotated[
        _OneOrMore,
        Key(
            "What to read; all of it has one format.",
            values="path, glob, list",
            note="a file, a directory, a glob, or a list of them; {date} for a day",
            example="../data/news.parquet",
        ),
    ] = Field(description="a file, a directory, a glob, or a list of them")
    time_zone: Annotated[
        Annotated[_Name, AfterValidator(checked_time_zone)] | None,
        Key(
            "Where a day of `{date}` begins and ends; null is the machine's zone.",
            values="IANA name",
            note="of {date}, such as Asia/Shanghai; null: the machine's",
        ),
    ] = Field(default=None, description="an IANA name, such as Asia/Shanghai, or null for the machine's time zone")
    format: Annotated[
        Literal["parquet", "csv", "tsv", "jsonl"] | None,
        Key("Null goes by the files' endings.", note="parquet, csv, tsv, jsonl; null: by the files' endings"),
    ] = Field(default=None, description="parquet, csv, tsv or jsonl, or no such key to go by the files' names")
    text: Annotated[
        _OneOrMore,
        Key(
            "The text; nulls among joined columns are left out.",
            values="column, list",
            note="a column, or a list of columns to join",
            example="text",
        ),
    ] = Field(description="the column with the text, or a list of different columns to join")
    separator: Annotated[
        str, Key("What stands between joined columns.", values="text", note="between joined columns")
    ] = Field(default="\n", description="the text between joined columns, in quotes")
    keep: Annotated[
        Literal["all"] | _Names,
        BeforeValidator(as_tuple),
        Key(
            "Columns that the output repeats; `all` is every one.",
            values="list, all",
            note="columns to carry into the output, or all",
        ),
    ] = Field(default=(), description="a list of column names, such as [id, date], or all")
    partitions: Annotated[
        Literal["drop", "keep"],
        Key(
            "Whether `key=value` folders become columns, as strings.",
            note="keep: key=value folder names become columns",
        ),
    ] = Field(default="drop", description="drop or keep")
    encoding: Annotated[
        str,
        AfterValidator(checked_encoding),
        Key("How csv, tsv and jsonl are encoded.", values="Python's codec names", note="of csv, tsv and jsonl"),
    ] = Field(default="utf-8", description="an encoding, such as gb18030")
    csv: Annotated[CsvConfig, BeforeValidator(empty_if_none), Key("How csv and tsv are written.", values="section")] = (
        CsvConfig()
    )
    on_bad_rows: Annotated[
        Literal["quarantine", "fail"], Key("What a damaged record does.", note="fail: refuse the input instead")
    ] = Field(default="quarantine", description="quarantine or fail")
    max_bad_share: Annotated[
        Share,
        Key(
            "The quarantined share that is still a success.",
            values="0 to 1",
            note="more quarantined rows than this: exit code 5",
        ),
    ] = Field(default=0.001, description="a number from 0 to 1, such as 0.001")

    @model_validator(mode="after")
    def _tabs_in_tsv(self) -> Self:
        if self.format == "tsv" and self.csv.delimiter not in {CsvConfig().delimiter, "\t"}:
            raise ValueError(f"tsv has tabs, and csv.delimiter is {quoted(self.csv.delimiter)}; set format: csv")
        return self


class Label(Section):
    """A candidate label and the sentence that stands for it."""

    name: str
    hypothesis: str


class ModelConfig(Section):
    """Which checkpoint scores: a directory, or a model of the hub."""

    path: Annotated[
        _AbsolutePath | None,
        Key(
            "A checkpoint's directory.",
            values="path",
            note="a directory; or a hub model by id, not both",
            example="../models/structbert",
        ),
    ] = Field(default=None, description="the checkpoint's directory")
    id: Annotated[
        str | None,
        Key("A model of ModelScope's hub, fetched if it is not on disk.", values="owner/name", note="owner/name"),
    ] = Field(
        default=None,
        pattern=r"^[\w-][\w.-]*/[\w-][\w.-]*$",
        description="a hub model's id, owner/name; a directory goes in path",
    )
    revision: Annotated[
        _Name | None,
        Key("Which revision of the hub model; not with `model.path`.", values="text", note="of the hub model"),
    ] = Field(default=None, description="a revision of the hub model, in quotes")
    entailment_id: Annotated[
        _ClassId | None,
        Key(
            'The index of the class for "follows".',
            values="0 to 999, null",
            note="only where the checkpoint does not say",
        ),
    ] = Field(default=None, description="the class's index, from 0")
    contradiction_id: Annotated[
        _ClassId | None, Key('The index of the class for "contradicts".', values="0 to 999, null")
    ] = Field(default=None, description="the class's index, from 0")
    cache_dir: Annotated[
        _AbsolutePath | None,
        Key(
            "Where hub models are kept; null is ModelScope's own place.",
            values="path",
            note="where hub models are kept; null: ModelScope's own place",
        ),
    ] = Field(default=None, description="a directory")

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


class OutputConfig(Section):
    """Where results go, and which."""

    path: Annotated[_AbsolutePath, Key("The directory of the results.", values="path", example="../out/news")] = Field(
        description="a directory for the results"
    )
    shard_rows: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=1, le=10_000_000)],
        Key("Rows of each file in `scores/`.", values="auto, 1 to 10000000", note="rows of an output file"),
    ] = Field(default="auto", description="auto or a whole number from 1 to 10000000")
    scores: Annotated[
        Literal["auto", "all", "none"] | _Count,
        Key(
            "Which scores a row keeps; a number is the best so many.",
            values="auto, all, none, number",
            note="all, none, or how many of the best",
        ),
    ] = Field(default="auto", description="auto, all, none, or how many of the best, a whole number from 1")
    logits: Annotated[Literal["auto"] | bool, Key("Whether a row keeps its raw logits.", note="true, false")] = Field(
        default="auto", description=f"auto, {YES_OR_NO}"
    )
    prefix: Annotated[
        str,
        Key(
            "Put before the names of added columns, such as `zs_`.",
            values="text",
            note="before the names of added columns",
        ),
    ] = Field(default="", description='a text put before added columns, such as zs_, or ""')
    compression: Annotated[
        Literal["zstd", "snappy", "none"], Key("How the Parquet files are compressed.", note="snappy, none")
    ] = Field(default="zstd", description="zstd, snappy or none")


class EngineConfig(Section):
    """How to compute. Length and truncation change scores; the rest changes how long it takes."""

    device: Annotated[
        str, Key("What computes.", values="auto, cpu, cuda, cuda:N, all", note="cpu, cuda, cuda:1, all")
    ] = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda|cuda:(0|[1-9][0-9]{0,3})|all)$",
        description="auto, cpu, cuda, cuda:1 or all",
    )
    precision: Annotated[Literal["auto", "fp32", "fp16", "bf16"], Key("In which numbers.", note="fp32, fp16, bf16")] = (
        Field(default="auto", description="auto, fp32, fp16 or bf16")
    )
    rescore_close: Annotated[
        Literal["auto"] | bool,
        Key("Rows too close to call in bf16 or fp16 are scored again in fp32.", note="false"),
    ] = Field(default="auto", description=f"auto, {YES_OR_NO}")
    max_length: Annotated[
        int,
        Field(ge=16, le=2**31 - 1),
        Key(
            "Tokens of text and hypothesis, at most what the model has positions for.",
            values="16 and more",
            note="tokens of text and hypothesis together",
        ),
    ] = Field(default=512, description="a whole number of tokens, at least 16 and no more than the model takes")
    truncate: Annotated[
        Literal["head", "head_tail"],
        Key(
            "Keep a long text's beginning, or half from each end.",
            note="head_tail: keep both ends of a long text",
        ),
    ] = Field(default="head", description="head or head_tail")
    max_batch_tokens: Annotated[
        Literal["auto"] | _Count, Key("Tokens of a batch; less needs less memory.", values="auto, number")
    ] = Field(default="auto", description="auto or a whole number from 1")
    labels_per_chunk: Annotated[
        Literal["auto"] | _Count, Key("How many labels are scored at a time.", values="auto, number")
    ] = Field(default="auto", description="auto or a whole number from 1")
    checkpoint_seconds: Annotated[_Count, Key("How often progress inside a shard is saved.", values="number")] = Field(
        default=30, description="a whole number of seconds from 1"
    )
    workers: Annotated[Literal["auto"] | _Count, Key("How many batches are scored at once.", values="auto, number")] = (
        Field(default="auto", description="auto or a whole number from 1")
    )
