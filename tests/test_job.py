"""The job file: its defaults, what it takes, what `auto` becomes, and that only a job or a refusal comes out."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchzs.errors import UsageError
from batchzs.job import ADDED_COLUMNS, JobConfig, added_column_names, load_job
from batchzs.job_sections import CsvConfig, EngineConfig, InputConfig, Label, ModelConfig, OutputConfig

REPOSITORY = Path(__file__).parent.parent

GOOD = """\
input:
  path: news.parquet
  text: text
labels: [文化, 体育, 财经]
model:
  path: model
output:
  path: out
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the kind of name that people have."""
    folder = tmp_path / "新闻 [1] {a} jobs"
    folder.mkdir()
    return folder


def load(folder: Path, text: str | bytes, *overrides: str) -> JobConfig:
    """Write a job file and load it."""
    path = folder / "news.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_job(path, overrides)


def test_defaults_are_the_pinned_ones(folder: Path) -> None:
    """A job of ten lines means what the interface says it means."""
    job = load(folder, GOOD)
    assert job.model_dump(mode="json") == {
        "input": {
            "path": [str(folder / "news.parquet")],
            "time_zone": None,
            "format": None,
            "text": ["text"],
            "separator": "\n",
            "keep": [],
            "partitions": "drop",
            "encoding": "utf-8",
            "csv": {"delimiter": ",", "quote": '"', "header": True, "null_values": []},
            "on_bad_rows": "quarantine",
            "max_bad_share": 0.001,
        },
        "labels": [{"name": name, "hypothesis": f"这篇文章的标题是{name}"} for name in ("文化", "体育", "财经")],
        "template": "这篇文章的标题是{}",
        "multi_label": False,
        "threshold": None,
        "model": {
            "path": str(folder / "model"),
            "id": None,
            "revision": None,
            "entailment_id": None,
            "contradiction_id": None,
            "cache_dir": None,
        },
        "output": {
            "path": str(folder / "out"),
            "shard_rows": "auto",
            "scores": "auto",
            "logits": "auto",
            "prefix": "",
            "compression": "zstd",
        },
        "engine": {
            "device": "auto",
            "precision": "auto",
            "rescore_close": "auto",
            "max_length": 512,
            "truncate": "head",
            "max_batch_tokens": "auto",
            "labels_per_chunk": "auto",
            "checkpoint_seconds": 30,
            "workers": "auto",
        },
    }


def test_every_key_can_be_written(folder: Path) -> None:
    """Each key of the interface is taken, and nothing of it is lost."""
    job = load(
        folder,
        """\
input:
  path: [a.csv, "b *.csv"]
  format: csv
  text: [title, body]
  separator: " | "
  keep: all
  partitions: keep
  encoding: GB18030
  csv: {delimiter: "\\t", quote: null, header: false, null_values: ["NULL", ""]}
  on_bad_rows: fail
  max_bad_share: 0
labels: [{name: 财经, hypothesis: 这是一条财经新闻}, {name: 体育}, 其他]
template: 主题：{}。
multi_label: true
threshold: 1
model: {id: damo/some-model_1.5, revision: "v1.0", entailment_id: 0, contradiction_id: 2, cache_dir: ../hub}
output: {path: /abs/out, shard_rows: 1_000, scores: 2, logits: false, prefix: zs_, compression: none}
engine: {device: "cuda:1", precision: fp16, rescore_close: false, max_length: 16, truncate: head_tail,
  max_batch_tokens: 4096, labels_per_chunk: 8, workers: 1}
""",
    )
    assert job.input.path == (str(folder / "a.csv"), str(folder / "b *.csv"))
    assert (job.input.text, job.input.keep, job.input.encoding) == (("title", "body"), "all", "gb18030")
    assert (job.input.csv.delimiter, job.input.csv.quote, job.input.csv.header) == ("\t", None, False)
    assert [label.hypothesis for label in job.labels] == ["这是一条财经新闻", "主题：体育。", "主题：其他。"]
    assert job.model.cache_dir == folder.parent / "hub"
    assert job.output.path == Path("/abs/out")
    assert (job.output.shard_rows, job.resolved_scores, job.resolved_logits) == (1000, 2, False)
    assert (job.engine.device, job.engine.max_length, job.engine.workers) == ("cuda:1", 16, 1)


def test_a_job_survives_the_state_file(folder: Path) -> None:
    """A run stores the job as JSON and later compares it: the round trip is exact, and the bytes do not vary."""
    job = load(folder, GOOD)
    stored = json.dumps(job.model_dump(mode="json"), sort_keys=True)
    assert JobConfig.model_validate_json(stored) == job
    assert json.dumps(load(folder, GOOD).model_dump(mode="json"), sort_keys=True) == stored


@pytest.mark.parametrize("name", ["news", "news-structbert"])
def test_example_jobs_load(name: str) -> None:
    """The examples in jobs/ are right, and their paths lie in the repository."""
    job = load_job(REPOSITORY / "jobs" / f"{name}.yaml")
    assert job.input.path == (str(REPOSITORY / "sample_data" / "news.parquet"),)
    assert job.output.path == REPOSITORY / "out" / name
    assert [label.name[0] for label in job.labels] == list("文体娱财家汽教科军")
    assert (job.model.id is None) == (name == "news")


@pytest.mark.parametrize("text", [b"\xef\xbb\xbf" + GOOD.encode(), GOOD.replace("\n", "\r\n").encode()])
def test_bom_and_windows_line_ends_change_nothing(folder: Path, text: bytes) -> None:
    """A job from a Windows editor is the same job."""
    assert load(folder, text) == load(folder, GOOD)


def test_json_is_yaml_too(folder: Path) -> None:
    """A job that a program wrote as JSON loads, escaped emoji included."""
    raw = yaml.safe_load(GOOD)
    raw["labels"] = ["😀", "财经"]
    assert [label.name for label in load(folder, json.dumps(raw)).labels] == ["😀", "财经"]


def test_empty_sections_have_their_defaults(folder: Path) -> None:
    """A section whose keys are all commented out is an absent one."""
    assert load(folder, GOOD + "engine:\n  # device: cpu\n").engine == load(folder, GOOD).engine
    assert load(folder, GOOD.replace("  text: text", "  text: text\n  csv:")).input.csv.delimiter == ","


def test_aliases_are_followed(folder: Path) -> None:
    """Simple anchors and aliases work."""
    job = load(folder, GOOD.replace("path: model", "path: &where model").replace("path: out", "path: *where"))
    assert job.output.path == job.model.path


def test_yaml_numbers_and_yes_are_read_as_people_mean_them(folder: Path) -> None:
    """1e-3 is a number, though YAML 1.1 takes it for a text; yes is true."""
    job = load(folder, GOOD + "multi_label: yes\nthreshold: 1e-3\n")
    assert (job.multi_label, job.threshold) == (True, 0.001)


def test_locale_and_home_do_not_matter(folder: Path) -> None:
    """Cron's empty environment reads the same job (S6, S7)."""
    path = folder / "新闻.yaml"
    path.write_bytes(GOOD.replace("[文化, 体育, 财经]", "标签.txt").encode())
    (folder / "标签.txt").write_bytes("文化\n体育\n".encode())
    code = "import sys, pathlib; from batchzs.job import load_job; print(ascii(load_job(pathlib.Path(sys.argv[1]))))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, path], env=env, cwd=REPOSITORY, capture_output=True, check=True
        ).stdout
        for env in (
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
        )
    }
    assert outputs == {(ascii(load_job(path)) + "\n").encode()}


def test_importing_job_loads_nothing_heavy() -> None:
    """A job is checked before, and without, torch and its like."""
    code = (
        "import batchzs.job, sys; print([m for m in ('torch', 'transformers', 'modelscope', 'polars', 'numpy') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "normalised"),
    [
        ("UTF8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("GBK", "gbk"),
        ("gb2312", "gb2312"),
        ("Big5", "big5"),
        ("utf_16_le", "utf-16-le"),
        ("latin-1", "iso8859-1"),
        ("ascii", "ascii"),
    ],
)
def test_encodings_are_normalised(folder: Path, name: str, normalised: str) -> None:
    """Two spellings of one encoding are one job."""
    assert load(folder, GOOD, f"input.encoding={name}").input.encoding == normalised


def many_labels(count: int) -> str:
    """The good job with so many labels."""
    return GOOD.replace("[文化, 体育, 财经]", f"[{', '.join(f'标签{index}' for index in range(count))}]")


@pytest.mark.parametrize(
    ("num_labels", "shard_rows", "scores", "logits"),
    [
        (1, 100_000, "all", True),
        (40, 100_000, "all", True),
        (50, 80_000, "all", True),
        (51, 78_431, 10, False),
        (4000, 1_000, 10, False),
        (5000, 1_000, 10, False),
    ],
)
def test_auto_follows_the_number_of_labels(
    folder: Path, num_labels: int, shard_rows: int, scores: str | int, *, logits: bool
) -> None:
    """4 million pairs a shard, within 1,000 and 100,000 rows: 4,000,000 // 51 = 78,431."""
    job = load(folder, many_labels(num_labels))
    assert (job.resolved_shard_rows, job.resolved_scores, job.resolved_logits) == (shard_rows, scores, logits)


def test_stated_values_are_kept(folder: Path) -> None:
    """No `auto`, no resolving; only a top N of more than there is becomes all there is."""
    job = load(folder, GOOD, "output={path: o, shard_rows: 7, scores: 100, logits: false}")
    assert (job.resolved_shard_rows, job.resolved_scores, job.resolved_logits) == (7, 3, False)
    assert load(folder, many_labels(60), "output.scores=all", "output.logits=true").resolved_scores == "all"


@pytest.mark.parametrize(
    ("num_labels", "overrides", "as_multi_label", "threshold"),
    [
        (1, [], True, None),
        (3, [], False, None),
        (3, ["multi_label=true"], True, 0.5),
        (3, ["multi_label=true", "threshold=0"], True, 0.0),
        (3, ["threshold=0.9"], False, 0.9),
    ],
)
def test_decision_settings(
    folder: Path, num_labels: int, overrides: list[str], threshold: float | None, *, as_multi_label: bool
) -> None:
    """One label is scored by itself (Z5); only multi_label has a threshold of its own."""
    job = load(folder, many_labels(num_labels), *overrides)
    assert (job.scored_as_multi_label, job.resolved_threshold) == (as_multi_label, threshold)


@pytest.mark.parametrize(
    ("overrides", "missing"),
    [
        ([], {"labels"}),
        (["multi_label=true"], set()),
        (["output.scores=none"], {"labels", "scores"}),
        (["output.logits=false"], {"labels", "logits"}),
    ],
)
def test_added_columns_stand_in_the_pinned_order(folder: Path, overrides: list[str], missing: set[str]) -> None:
    """The output's columns are known from the job alone."""
    expected = [name for name in ADDED_COLUMNS if name not in missing]
    assert list(added_column_names(load(folder, GOOD, *overrides))) == expected
    prefixed = added_column_names(load(folder, GOOD, *overrides, "output.prefix=zs_"))
    assert list(prefixed) == [f"zs_{name}" for name in expected]


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.dates(),
    st.binary(max_size=4),
    st.text(max_size=8),
    st.sampled_from(["auto", "all", "{}", "a{}", "a.txt", "a.csv", "~/x", "none", "utf-8", ",", "id", "score"]),
)
SECTIONS = (JobConfig, InputConfig, CsvConfig, Label, ModelConfig, OutputConfig, EngineConfig)
KEYS = st.one_of(
    st.sampled_from(sorted({key for section in SECTIONS for key in section.model_fields})),
    st.text(max_size=4),
    st.integers(),
    st.none(),
)
RUBBISH: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


@pytest.fixture(scope="module")
def rubbish_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of the properties."""
    return tmp_path_factory.mktemp("rubbish 垃圾")


def good_or_refused(folder: Path, text: bytes, *overrides: str) -> None:
    """Load a job: it can be stored, or a UsageError refuses it; anything else fails the test."""
    with suppress(UsageError):
        json.dumps(load(folder, text, *overrides).model_dump(mode="json"), ensure_ascii=False).encode()


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(raw=RUBBISH, good_sections=st.sets(st.sampled_from(["input", "labels", "model", "output"])))
def test_any_yaml_is_a_job_or_is_refused(rubbish_folder: Path, raw: Any, good_sections: set[str]) -> None:
    """Whatever is in the file: a job, or a UsageError."""
    if isinstance(raw, dict):
        raw |= {key: value for key, value in yaml.safe_load(GOOD).items() if key in good_sections}
    good_or_refused(rubbish_folder, yaml.safe_dump(raw, allow_unicode=True, sort_keys=False).encode("utf-8", "replace"))


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!%@`|>?#'\",\\\n\t 0x1e.~é：", max_size=60))
def test_any_bytes_are_a_job_or_are_refused(rubbish_folder: Path, raw: bytes | str) -> None:
    """Not even what is no YAML raises anything else, in the file or behind --set."""
    good_or_refused(rubbish_folder, raw.encode() if isinstance(raw, str) else raw)
    if isinstance(raw, str):
        good_or_refused(rubbish_folder, GOOD.encode(), f"labels={raw}")
        good_or_refused(rubbish_folder, GOOD.encode(), raw)
