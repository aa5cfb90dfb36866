"""The classifier in a program of somebody's own: a run's numbers, and nothing else done to the program."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sample_data.make_news
from batchzs import Classifier
from batchzs.test_hook import VARIABLE
from tests.integration.conftest import STAND_IN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.integration.conftest import Workshop

SAMPLES = Path(sample_data.make_news.__file__).parent

#: Scores texts and says what else has changed in the process.
PROGRAM = """
import json, signal, sys
import polars as pl
from batchzs import Classifier

job, texts, out, *overrides = sys.argv[1:]
signals = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
before = [signal.getsignal(number) for number in signals]
import torch
threads = torch.get_num_threads()
with Classifier.from_job(job, overrides, offline=True) as classifier:
    classifier.score(pl.read_parquet(texts, glob=False)["text"]).write_parquet(out)
assert before == [signal.getsignal(number) for number in signals]
assert torch.get_num_threads() == threads
"""


def score(workshop: Workshop, job: Path, texts: Sequence[str | None], *overrides: str) -> pl.DataFrame:
    """Score texts in a program of its own, which is to print nothing."""
    paths = [workshop.folder.parent / name for name in ("texts.parquet", "scored.parquet")]
    pl.DataFrame({"text": texts}, schema={"text": pl.String}).write_parquet(paths[0])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(job), *map(str, paths), *overrides],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=workshop.environment(None, {"PYTHONPATH": str(Path(__file__).parents[2])}),
        timeout=240,
        cwd=workshop.folder,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stderr
    return pl.read_parquet(paths[1], glob=False)


@pytest.mark.slow
def test_scores_are_a_runs_bit_for_bit(workshop: Workshop) -> None:
    """In fp32, without a run there, with the same texts in one call: every column is the run's; nothing is written."""
    news = pl.read_parquet(SAMPLES / "news.parquet").head(120)
    news.write_parquet(workshop.folder / "新闻.parquet")
    job = workshop.job(
        input={"path": "新闻.parquet", "keep": []},
        labels=["文化", "体育", "娱乐", "财经", "家居", "汽车", "教育", "科技", "军事"],
        model={"path": str(SAMPLES / "model")},
        output={"shard_rows": "auto"},
        engine={"max_batch_tokens": "auto"},
    )
    before = score(workshop, job, news["text"].to_list())
    assert not workshop.output.exists()
    assert workshop.run("run", job, hook=None).code == 0
    assert_frame_equal(before, workshop.table().drop("source_file", "source_row"), check_exact=True)


@pytest.mark.slow
def test_in_low_precision_a_runs_margin_is_taken_over(workshop: Workshop) -> None:
    """Where the job's output has a run, the same rows are scored again in fp32, however few texts are scored."""
    texts = [text for text in workshop.texts if text is not None and len(text) < 60][:40]
    pl.DataFrame({"text": texts}).write_parquet(workshop.folder / "新闻.parquet")
    job = workshop.job(
        input={"path": "新闻.parquet", "keep": []},
        output={"shard_rows": "auto"},
        engine={"precision": "bf16", "max_batch_tokens": "auto"},
    )
    assert workshop.run("run", job, hook=None).code == 0
    run = workshop.table().drop("source_file", "source_row")
    assert 0 < run["rescored"].sum() < len(texts)
    assert_frame_equal(score(workshop, job, texts), run, check_exact=True)
    few = score(workshop, job, texts[:8])
    assert few["label"].to_list() == run["label"].to_list()[:8]
    assert few["rescored"].to_list() == run["rescored"].to_list()[:8]


def test_without_a_run_the_margin_is_measured_on_the_texts(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """On those of the first calls until there were enough; it only grows."""
    monkeypatch.setenv(VARIABLE, json.dumps(STAND_IN))
    with Classifier.from_job(workshop.job()) as classifier:
        classifier._resolved = classifier._resolved.model_copy(update={"precision": "bf16"})
        classifier._num_to_measure = 5
        classifier.score(["甲", "乙", None, "甲"])
        assert classifier._num_to_measure == 3
        assert classifier._resolved.rescore_margin == 0.0  # the stand-in is exact
        classifier._resolved = classifier._resolved.model_copy(update={"rescore_margin": 0.25})
        classifier.score(f"第{number}条" for number in range(10))
        assert classifier._num_to_measure == 0
        assert classifier._resolved.rescore_margin == 0.25


def test_odd_texts_are_treated_as_in_a_run(done: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty, blank, invisible, repeated and overlong texts; those that no file can hold are quarantined alone."""
    monkeypatch.setenv(VARIABLE, json.dumps(STAND_IN))
    run = done.table().drop("id", "source_file", "source_row")
    readable = [row for row in range(done.num_rows) if row not in done.bad_rows]
    classifier = Classifier.from_job(done.standard_job)
    scored = classifier.score([done.texts[row] for row in readable])
    assert_frame_equal(scored, run[readable], check_exact=True)
    odd = classifier.score(["体育", "半\ud800个", "体育"])
    assert odd["status"].to_list() == ["ok", "bad_encoding", "ok"]
    assert odd["scores"][0].to_list() == odd["scores"][2].to_list()
    assert classifier.score([]).schema == scored.schema
    assert classifier.score([]).height == 0


def test_one_model_serves_other_labels(done: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """`with_job` shares the model; another engine is refused, and so is a closed classifier."""
    monkeypatch.setenv(VARIABLE, json.dumps(STAND_IN))
    first = Classifier.from_job(done.standard_job)
    job = first.job.model_copy(update={"labels": first.job.labels[:2]})
    other = first.with_job(job)
    assert other.labels == ("文化", "体育,球赛")
    assert other.score(["一"])["scores"].list.len().to_list() == [2]
    assert other._loaded is first._loaded
    with pytest.raises(ValueError, match="make a new one"):
        first.with_job(job.model_copy(update={"engine": job.engine.model_copy(update={"max_length": 64})}))
    first.close()
    with pytest.raises(ValueError, match="closed"):
        first.score(["一"])
    assert other.score(["一"]).height == 1


def test_threads_take_turns(done: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets its own texts' scores, those that one thread alone gets."""
    monkeypatch.setenv(VARIABLE, json.dumps(STAND_IN))
    with Classifier.from_job(done.standard_job) as classifier, ThreadPoolExecutor(4) as pool:
        parts = [[f"第{part}组第{number}条" for number in range(20)] for part in range(8)]
        for part, scored in zip(parts, pool.map(classifier.score, parts), strict=True):
            assert_frame_equal(scored, classifier.score(part), check_exact=True)


@pytest.mark.parametrize(
    ("texts", "message"), [("一条", "put it into a list"), (["一", 2.5], r"texts\[1\] is of type float")]
)
def test_what_is_no_texts_is_refused(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, texts: list[str], message: str
) -> None:
    """One text for several would be scored character by character, and NaN is how pandas writes a null."""
    monkeypatch.setenv(VARIABLE, json.dumps(STAND_IN))
    with Classifier.from_job(workshop.job()) as classifier, pytest.raises(TypeError, match=message):
        classifier.score(texts)
