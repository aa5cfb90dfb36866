"""A job file that `init` writes says what it was meant to say, whatever stands in names and labels."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchzs.commands.init import KINDS
from batchzs.errors import UsageError
from batchzs.first_job.guess import Column
from batchzs.first_job.input_look import LookedAt
from batchzs.first_job.job_template import TEMPLATES, JobDraft, job_text, write_job
from batchzs.job import ADDED_COLUMNS, load_job
from batchzs.labels import template_fault
from tests.builders import PATIENT, odd_folder

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

VISIBLE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.lists(VISIBLE, min_size=1, max_size=5, unique=True)
LABELS = st.lists(
    VISIBLE.map(str.strip).filter(lambda name: any(unicodedata.category(one)[0] in "LN" for one in name)),
    min_size=1,
    max_size=30,
    unique_by=lambda name: unicodedata.normalize("NFC", name),
)


def draft(folder: Path, **changes: Any) -> JobDraft:
    """Make a draft for a CSV file in a folder."""
    looked = LookedAt(
        path=folder / "新闻 1.csv",
        format="csv",
        names_format=False,
        encoding="utf-8",
        delimiter=",",
        header=True,
        quoted=True,
        columns=(Column("text", ("甲",), is_text=True),),
    )
    values: dict[str, Any] = {
        "input": looked,
        "text": ("text",),
        "text_reason": "as given",
        "keep": (),
        "labels": ("财经", "体育"),
        "kind": "headline",
        "model": "owner/name",
        "output": folder / "out",
    }
    return JobDraft(**values | changes)


@given(NAMES, LABELS)
@settings(PATIENT, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_names_and_labels_survive(tmp_path: Path, names: list[str], labels: list[str]) -> None:
    """Quotes, colons, control characters, numbers, yes and no: the job's reader gets the very same texts."""
    keep = tuple(name for name in names if name not in ADDED_COLUMNS)
    made = draft(tmp_path, text=tuple(names), keep=keep, labels=tuple(labels))
    path = tmp_path / "job.yaml"
    write_job(job_text(made, tmp_path), path, force=True)
    job = load_job(path)
    assert job.input.text == tuple(names)
    assert job.input.keep == keep
    assert [label.name for label in job.labels] == labels


@pytest.mark.parametrize(
    "word", ["no", "On", "NULL", "~", "12", "1e3", "0x1f", "2024-05-01", "1:20", "- a", "#b", "a: b", "@x", "a #b", "="]
)
def test_what_yaml_takes_for_something_else_is_quoted(tmp_path: Path, word: str) -> None:
    """Each as a label and as a column."""
    made = draft(tmp_path, text=(word,), labels=(word, "财经"))
    path = tmp_path / "job.yaml"
    write_job(job_text(made, tmp_path), path, force=False)
    job = load_job(path)
    assert (job.input.text, job.labels[0].name) == ((word,), word)


def test_paths_are_relative_to_the_job_file(tmp_path: Path) -> None:
    """So that a folder with both can be moved; names like a home directory's are no such thing."""
    folder = odd_folder(tmp_path)
    (folder / "jobs").mkdir()
    made = draft(folder, output=folder / "jobs" / "~" / "out", model=folder / "$model")
    path = folder / "jobs" / "甲.yaml"
    write_job(job_text(made, path.parent), path, force=False)
    job = load_job(path)
    assert job.input.path == (str(folder / "新闻 1.csv"),)
    assert job.model.path == folder / "$model"
    assert job.output.path == folder / "jobs" / "~" / "out"
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_a_job_that_would_be_wrong_is_not_written(tmp_path: Path) -> None:
    """Nor is one that is there lost."""
    path = tmp_path / "job.yaml"
    wrong = job_text(draft(tmp_path, labels=("财经", "财经")), tmp_path)
    with pytest.raises(UsageError, match=r"job\.yaml:.*the same name"):
        write_job(wrong, path, force=False)
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="--force"):
        write_job(job_text(draft(tmp_path), tmp_path), path, force=False)
    assert path.read_text(encoding="utf-8") == "mine"


def test_every_kind_has_a_template_that_a_job_takes() -> None:
    """And the command offers each of them."""
    assert set(KINDS) == set(TEMPLATES)
    assert all(template_fault(template) is None for template in TEMPLATES.values())
