"""Damaged job files: a job, or one error that says what is wrong. Nothing else, whatever the bytes."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from batchzs.errors import UsageError
from batchzs.job import JobConfig, load_job
from tests.fuzz.mutations import mutate, seeds

if TYPE_CHECKING:
    from pathlib import Path

_JOBS = (
    """\
input:
  path: [news.parquet, "more/*.parquet"]
  format: parquet
  text: [title, body]
  separator: "\\n"
  keep: all
  partitions: keep
  max_bad_share: 0.001
labels: [文化, {name: 体育, hypothesis: 这是体育}, 娱乐]
template: 这篇文章的标题是{}
multi_label: true
threshold: 0.5
model: {id: damo/nlp_structbert_zero-shot-classification_chinese-base, revision: v1.0.1, cache_dir: models}
output: {path: out, shard_rows: 1000, scores: 3, logits: false, prefix: zs_, compression: snappy}
engine: {device: "cuda:1", precision: fp16, max_length: 256, truncate: head_tail, checkpoint_seconds: 10}
""",
    """\
# a comment
input: &in
  path: 新闻.csv
  text: text
  encoding: gb18030
  csv: {delimiter: ";", quote: null, header: false, null_values: ["NULL", "\\\\N"]}
  on_bad_rows: fail
labels: labels.txt
model:
  path: model
  entailment_id: 0
  contradiction_id: 2
output:
  path: out
""",
)
_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 10**30, float("inf"), "", " ", "{}", "{}{}", "a" * 5000, "auto", "\0", "é", "2024-01-01"),
    *([], {}, [[]], [None], [1, "a"], {"a": {"b": {"c": 1}}}, {1: 2}, ["a", "a"], "cuda:99999", "../..", "/", "%s"),
)


def change_a_value(draw: random.Random, text: str) -> bytes:
    """Put an odd value in the place of some value of a job, or add an odd key."""
    job = yaml.safe_load(text)
    at = job
    while True:
        key = draw.choice(list(at))
        if isinstance(at[key], dict) and at[key] and draw.random() < 0.7:
            at = at[key]
            continue
        if draw.random() < 0.1:
            at[draw.choice(("x", "", "paths", 1, None))] = draw.choice(_VALUES)
        elif draw.random() < 0.1:
            del at[key]
        else:
            at[key] = draw.choice(_VALUES)
        return yaml.safe_dump(job, allow_unicode=True).encode()


@pytest.mark.slow
def test_any_job_file_is_read_or_refused(tmp_path: Path) -> None:
    """No bytes make another error than UsageError, and none takes long."""
    (tmp_path / "labels.txt").write_text("文化\n体育\n", encoding="utf-8")
    path = tmp_path / "作业 [1].yaml"
    num_files = num_read = 0
    for seed in seeds():
        draw = random.Random(seed)
        text = draw.choice(_JOBS)
        content = change_a_value(draw, text) if draw.random() < 0.5 else mutate(draw, text.encode())
        path.write_bytes(content)
        started_s = time.monotonic()
        refusal = None
        try:
            job = load_job(path)
        except UsageError as exc:
            refusal = str(exc)
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {content!r}") from exc
        else:
            assert isinstance(job, JobConfig), f"seed {seed}"
            num_read += 1
        assert refusal is None or refusal.strip(), f"seed {seed}"
        assert time.monotonic() - started_s < 20, f"seed {seed}"
        num_files += 1
    print(f"\njob files: {num_files} read or refused, {num_read} of them read")  # noqa: T201 - a figure for docs
    assert num_read > 0
