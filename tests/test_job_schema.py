"""The JSON Schema of job files: every job is right by it, and it is the one that lies in docs/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from batchzs.cli import batchzs
from batchzs.job import JobConfig
from batchzs.job_keys import all_keys, key_of
from batchzs.job_schema import job_json_schema

ROOT = Path(__file__).parent.parent
LEAST = {
    "input": {"path": "news.csv", "text": "text"},
    "labels": ["财经", "体育"],
    "model": {"path": "model"},
    "output": {"path": "out"},
}


def faults(job: object) -> list[str]:
    """Where a job is wrong by the schema."""
    checker = jsonschema.Draft202012Validator(job_json_schema())
    return [error.json_path for error in checker.iter_errors(job)]


def test_it_is_a_schema_and_lies_in_docs() -> None:
    """Made anew with `batchzs schema > docs/job.schema.json`."""
    jsonschema.Draft202012Validator.check_schema(job_json_schema())
    printed = CliRunner().invoke(batchzs, ["schema"]).stdout
    assert json.loads(printed) == job_json_schema()
    assert (ROOT / "docs/job.schema.json").read_text(encoding="utf-8") == printed


def test_every_key_says_what_it_means_and_takes() -> None:
    """An editor shows the description beside a key: its meaning, and what may stand there; sections have one too."""
    schema = job_json_schema()
    device = schema["$defs"]["EngineConfig"]["properties"]["device"]
    assert device["description"] == "What computes.\n\nExpected: auto, cpu, cuda, cuda:1 or all"
    assert schema["properties"]["labels"]["description"].startswith("The labels, in the order that breaks ties.\n\n")
    for path, field in all_keys(JobConfig):
        properties = schema["properties"]
        for section in path[:-1]:
            reference = properties[section]["anyOf"][0]["$ref"].rpartition("/")[2]
            properties = schema["$defs"][reference]["properties"]
        description = properties[path[-1]]["description"]
        key = key_of(field)
        assert description.startswith(key.meaning if key is not None else str(field.annotation.__doc__)), path
        assert description.endswith(field.description or ""), path


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").glob("*.yaml")), ids=lambda path: path.name)
def test_the_jobs_of_the_repository(path: Path) -> None:
    """They are right by it."""
    assert faults(yaml.safe_load(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"input": {"path": ["a.csv", "b.csv"], "text": ["title", "body"], "keep": "all", "csv": None}},
        {"labels": "labels.csv"},
        {"labels": [{"name": "财经"}, {"name": "体育", "hypothesis": "这是体育新闻"}, "科技"]},
        {"engine": None},
        {"engine": {"max_batch_tokens": "auto", "workers": 2, "device": "cuda:1"}},
        {"threshold": None, "multi_label": True},
    ],
)
def test_what_a_job_may_hold(changes: dict[str, Any]) -> None:
    """One text for a list of one, labels as a file or with sentences of their own, empty sections."""
    assert faults({**LEAST, **changes}) == []


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"lables": []}, "$"),
        ({"input": {"path": "a.csv"}}, "$.input"),
        ({"labels": []}, "$.labels"),
        ({"threshold": 1.5}, "$.threshold"),
        ({"engine": {"device": "gpu"}}, "$.engine"),
    ],
)
def test_what_it_marks(changes: dict[str, Any], place: str) -> None:
    """Unknown keys, missing ones, values out of range."""
    assert faults({**LEAST, **changes}) == [place]
