"""Whole runs of the command on the padded path: the job file is the same, and so is everything that a run promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.architectures import MAX_LENGTH, write_architecture
from tests.integration.conftest import write_standard_input

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Workshop

#: The guard hides transformers, which the packed path does without, and transformers looks whether others are there.
SHOWN = {"GUARD_SHOWS": "transformers pandas duckdb hypothesis pytest", "GUARD_NETWORK": "1"}
TEMPLATE = "This text is about {}."
LABELS = ["文化", "体育", "finance"]
TOLERANCE = 1e-5
NUM_ROWS = 50


def write_job(workshop: Workshop, model_type: str) -> Path:
    """Write a job on the standard input, with a checkpoint of another architecture."""
    write_standard_input(workshop.input)
    workshop.model = write_architecture(workshop.folder.parent / "模型 [小]", model_type)
    return workshop.job(labels=LABELS, template=TEMPLATE, engine={"max_length": MAX_LENGTH, "workers": 2})


def pipeline_scores(folder: Path, texts: list[str]) -> np.ndarray:
    """(texts, labels) scores of transformers' own pipeline."""
    import torch
    from transformers import pipeline

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    zero_shot = pipeline("zero-shot-classification", model=str(folder), device="cpu", dtype=torch.float32)
    results = zero_shot(texts, candidate_labels=LABELS, hypothesis_template=TEMPLATE)
    torch.set_num_threads(before)
    return np.array([[dict(zip(r["labels"], r["scores"], strict=True))[label] for label in LABELS] for r in results])


@pytest.mark.parametrize("model_type", [pytest.param("xlm-roberta", marks=pytest.mark.slow), "deberta-v2"])
def test_a_run_scores_as_the_pipeline_does(workshop: Workshop, model_type: str) -> None:
    """No connection, one row for each input row, and the pipeline's scores."""
    job = write_job(workshop, model_type)
    result = workshop.run("run", job, "--limit", str(NUM_ROWS), hook=None, extra=SHOWN)
    assert result.code == 0, result.stderr
    table = workshop.table()
    assert len(table) == NUM_ROWS
    ok = table.filter(table["status"] == "ok")
    texts = [workshop.texts[row] or "" for row in ok["source_row"].to_list()]
    assert len(ok) > NUM_ROWS - 10
    scores = np.array(ok["scores"].to_list())
    np.testing.assert_allclose(scores, pipeline_scores(workshop.model, texts), atol=TOLERANCE, rtol=0)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_stands_up_to_scoring_again(workshop: Workshop) -> None:
    """The bytes are an undisturbed run's, and transformers' network, one pair at a time, gives the same scores."""
    job = write_job(workshop, "roberta")
    arguments = ["run", str(job), "--limit", "40"]
    killed = workshop.run(*arguments, hook={"crash": "batch-scored:5"}, extra=SHOWN)
    assert killed.code == -9
    result = workshop.run(*arguments, hook=None, extra=SHOWN)
    assert result.code == 0, result.stderr
    resumed = workshop.shards()
    rescored = workshop.run("verify", workshop.output, "--rescore", "20", hook=None, extra=SHOWN)
    assert rescored.code == 0, rescored.stderr
    result = workshop.run(*arguments, "--restart", hook=None, extra=SHOWN)
    assert result.code == 0, result.stderr
    assert workshop.shards() == resumed


@pytest.mark.slow
def test_an_unfit_checkpoint_ends_with_code_4(workshop: Workshop) -> None:
    """One line that says what to do, before anything is scored."""
    job = write_job(workshop, "electra")
    (workshop.model / "tokenizer.json").unlink()
    result = workshop.run("run", job, hook=None, extra=SHOWN)
    assert result.code == 4
    assert "has no tokenizer.json" in result.stderr
    assert not workshop.shards()
