"""Errors found with the input or the model at hand say where the job has the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from batchzs.job_places import placed
from tests.builders import odd_folder

if TYPE_CHECKING:
    from pathlib import Path

JOB = """input:
  path: a.csv
  text:
    - 标题
labels: [甲, 乙]
model: {path: m}
"""


@pytest.mark.parametrize(
    ("key", "overrides", "line"),
    [
        ("input.text", (), ":3: "),
        ("input.path", ("input.text=b",), ":2: "),
        ("input.keep", (), ":1: "),  # not written: its section
        ("model.entailment_id", (), ":6: "),
        ("engine.max_length", (), ": "),  # nor is that
    ],
)
def test_the_line_of_a_key(tmp_path: Path, key: str, overrides: tuple[str, ...], line: str) -> None:
    """As it is written in the file; a key that is not written has its section's line."""
    path = odd_folder(tmp_path) / "任务.yaml"
    path.write_text(JOB, encoding="utf-8")
    assert placed(f"no such thing ({key})", key, path, overrides) == f"{path}{line}no such thing ({key})"
    assert placed("no such thing", key, path, overrides) == f"{path}{line}{key}: no such thing"


def test_a_key_from_the_command_line(tmp_path: Path) -> None:
    """It stands in no line of the file."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    assert placed("input.text: none", "input.text", path, ["input.text=b"]) == "--set input.text: input.text: none"


def test_a_file_that_is_gone_costs_the_place_alone(tmp_path: Path) -> None:
    """The message that matters is the first one."""
    assert placed("none", "input.text", tmp_path / "job.yaml", []) == "input.text: none"
