"""The test hook never acts in secret, and a stand-in's numbers are never taken for a model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Finished, Workshop


def test_a_run_under_the_hook_says_so(done: Workshop, finished: Finished) -> None:
    """The first line of messages and log, the run's record and the summary name the hook."""
    for text in (finished.ended.stderr, (done.state / "run.log").read_text(encoding="utf-8")):
        assert "TEST HOOK in force: {'stand_in': True}; these results are no real ones" in text.splitlines()[0]
    for name in ("run.json", "summary.json"):
        assert done.record(name)["test_hook"] == {"stand_in": True}


def test_a_run_without_it_says_nothing(finished_by_model: Finished, workshop: Workshop) -> None:
    """Without the hook there is no word of it."""
    assert "TEST HOOK" not in finished_by_model.ended.stderr
    output = finished_by_model.folder / workshop.output.name
    for name in ("run.json", "summary.json"):
        assert workshop.record(name, output)["test_hook"] == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"stand_in": true, "speed": 9}', "unknown keys ['speed'], expected some of"),
        ("stand_in", "expected a JSON object"),
        ("[1]", "BATCHZS_TEST_HOOK"),
        ('{"crash": "anywhere"}', "crash is 'anywhere', expected one of inputs-frozen, "),
    ],
)
def test_a_hook_that_makes_no_sense(standard: Workshop, value: str, message: str) -> None:
    """A mistyped hook is refused before anything is made: a benchmark without its hook would measure something else."""
    result = standard.run("run", standard.standard_job, extra={"BATCHZS_TEST_HOOK": value}, hook=None)
    assert result.code == 2, result.stderr
    assert message in result.stderr
    assert result.stdout == ""
    assert not standard.output.exists()


def test_an_empty_hook_is_none(done: Workshop) -> None:
    """An empty variable asks for nothing: the model of the job scores, which is another run than the stand-in's."""
    result = done.run("run", done.standard_job, extra={"BATCHZS_TEST_HOOK": ""}, hook=None)
    assert result.code == 6, result.stderr
    assert '  test hook: begun with {"stand_in": true}, now {}' in result.stderr


def test_numbers_that_are_none(standard: Workshop, finished: Finished) -> None:
    """Rows whose logits are NaN even in fp32 are quarantined and counted; the others have their scores (case Z9)."""
    result = standard.run("run", standard.standard_job, hook={"stand_in": True, "nan_every": 31})
    assert result.code == 0, result.stderr
    table = standard.table()
    is_bad = table["status"] == "non_finite"
    assert 0 < is_bad.sum() < 40
    assert (
        table.filter(is_bad).select(pl.col("label", "score", "scores", "logits").is_null().all()).row(0) == (True,) * 4
    )
    assert table.filter(~is_bad).equals(finished.table.filter(~is_bad))
    floats = [*table["score"].drop_nulls(), *table["scores"].explode().drop_nulls()]
    assert np.isfinite(floats).all()
    assert standard.record("summary.json")["statuses"]["non_finite"] == is_bad.sum()
    assert f"non_finite {is_bad.sum()}" in result.stdout


def test_no_number_at_all(standard: Workshop) -> None:
    """A model that gives nothing finite is no model to go on with for a night: 8, and no row published (case Z9)."""
    result = standard.run("run", standard.standard_job, hook={"stand_in": True, "nan_every": 1})
    assert result.code == 8, result.stderr
    assert "texts came back without one finite number: this precision is unusable" in result.stderr
    assert standard.shards() == {}


def test_numbers_that_fp32_mends(standard: Workshop, finished: Finished) -> None:
    """Rows whose logits are finite when scored alone in fp32 are scored, and counted as scored again."""
    hook = {"stand_in": True, "nan_every": 31, "nan_ends": "in_fp32"}
    result = standard.run("run", standard.standard_job, hook=hook)
    assert result.code == 0, result.stderr
    assert standard.table().equals(finished.table)
    assert standard.record("summary.json")["num_scored_alone"] > 0
    assert "texts scored again alone" in result.stdout
