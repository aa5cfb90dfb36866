"""Stop a run on request, in whatever phase it is: it ends soon with 75, and the same command goes on."""

from __future__ import annotations

import json
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import Finished, Running, Workshop

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
#: What Slurm and users are promised.
STOPPING_LIMIT_S = 20


@pytest.mark.slow
def test_each_signal_ends_a_run_in_order(standard: Workshop, finished: Finished) -> None:
    """TERM, INT, USR1 and HUP: the run says so, ends with 75 and whole shards; the next one goes on (case S1)."""
    for number in SIGNALS:
        num_before = len(standard.shards())
        running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 0.3})
        running.wait_until(lambda num_before=num_before: len(standard.shards()) > num_before)  # type: ignore[misc]
        running.send(number)
        sent_s = time.monotonic()
        result = running.end()
        assert time.monotonic() - sent_s < STOPPING_LIMIT_S
        assert result.code == 75, result.stderr
        assert result.stderr.endswith(f"stopped by {number.name}: run the same command again to go on\n")
        assert result.stdout == ""
        assert num_before < len(standard.published(finished)) < standard.num_shards
        assert not (standard.output / "_SUCCESS").exists()
        assert list((standard.state / "tmp").iterdir()) == []
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)
    assert sorted(standard.attempts()) == standard.attempts()
    assert standard.record("summary.json")["num_attempts"] == 5


def test_a_second_signal_ends_it_at_once(standard: Workshop, finished: Finished) -> None:
    """A batch may take long; who asks twice does not wait for it, and nothing is torn."""
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 2 * STOPPING_LIMIT_S})
    running.wait_until(lambda: "scoring in" in running.stderr)
    time.sleep(2)  # the line comes just before the first batch begins
    running.send(signal.SIGTERM)
    time.sleep(0.5)
    assert not running.has_ended
    running.send(signal.SIGINT)
    sent_s = time.monotonic()
    assert running.end().code == 75
    assert time.monotonic() - sent_s < STOPPING_LIMIT_S / 2
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)


def test_a_signal_while_the_input_is_read(workshop: Workshop) -> None:
    """Reading a large input for the first time takes a while: a signal is heard there too, before any scoring."""
    (workshop.folder / "大.csv").write_text("id,text\n" + "1,今天的新闻很多很多很多\n" * 2_000_000, encoding="utf-8")
    running = workshop.start("run", workshop.job(input={"path": "大.csv"}))
    running.wait_until(lambda: "TEST HOOK" in running.stderr)
    time.sleep(0.3)
    running.send(signal.SIGTERM)
    sent_s = time.monotonic()
    result = running.end()
    assert time.monotonic() - sent_s < STOPPING_LIMIT_S
    assert result.code == 75, result.stderr
    assert "input: " not in result.stderr
    assert not (workshop.state / "run.json").exists()


def stop_at(workshop: Workshop, running: Running, moment: Callable[[], bool]) -> None:
    """Wait for a moment, ask a run to stop, and see that it does so in time and in order."""
    running.wait_until(moment)
    running.send(signal.SIGTERM)
    sent_s = time.monotonic()
    result = running.end()
    assert time.monotonic() - sent_s < STOPPING_LIMIT_S
    assert result.code == 75, result.stderr
    assert result.stderr.endswith("stopped by SIGTERM: run the same command again to go on\n")
    assert not (workshop.output / "_SUCCESS").exists()
    assert list((workshop.state / "tmp").iterdir()) == []


@pytest.mark.slow
def test_a_signal_while_the_model_loads(standard: Workshop) -> None:
    """Loading is one step of torch's, seconds at most: the run ends when it is over, and nothing is settled."""
    model = standard.folder / "model"
    write_large_checkpoint(standard.model, model)
    running = standard.start("run", standard.job(model={"path": str(model)}), hook=None)
    stop_at(standard, running, lambda: "input: 2 file(s)" in running.stderr)
    assert not (standard.state / "run.json").exists()


def write_large_checkpoint(small: Path, folder: Path) -> None:
    """Write a checkpoint of 400 MB: the small one with a vocabulary of millions."""
    import torch

    shutil.copytree(small, folder)
    config = json.loads((folder / "config.json").read_bytes())
    num_words = 10**8 // config["hidden_size"]
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": num_words}), encoding="utf-8")
    state = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (key,) = [key for key in state if key.endswith("word_embeddings.weight")]
    state[key] = torch.zeros([num_words, config["hidden_size"]])
    torch.save(state, folder / "pytorch_model.bin")


def test_a_signal_while_texts_are_tokenised(workshop: Workshop) -> None:
    """A shard of long texts takes long to tokenise: a signal is heard before it is done."""
    lines = [f"{row},{f'第{row}条新闻很长' * 1000}\n" for row in range(2_000)]
    (workshop.folder / "长.csv").write_text("id,text\n" + "".join(lines), encoding="utf-8")
    job = workshop.job(input={"path": "长.csv"}, output={"shard_rows": len(lines)})
    running = workshop.start("run", job)
    stop_at(workshop, running, lambda: "scoring in" in running.stderr)
    assert list((workshop.state / "journal").iterdir()) == []  # it would be there if a batch had been planned


def test_a_signal_while_a_shard_is_published(workshop: Workshop) -> None:
    """A shard whose bytes are on their way is published whole, and no other one is begun."""
    lines = [f"{row},今天的新闻\n" for row in range(400_000)]
    (workshop.folder / "短.csv").write_text("id,text\n" + "".join(lines), encoding="utf-8")
    running = workshop.start("run", workshop.job(input={"path": "短.csv"}, output={"shard_rows": len(lines) // 2}))
    temporary = workshop.state / "tmp"
    stop_at(workshop, running, lambda: any(temporary.glob("part-00000.parquet.*")))
    assert list(workshop.shards()) == ["part-00000.parquet"]
    assert workshop.table()["source_row"].to_list() == list(range(len(lines) // 2))


def test_a_signal_while_batches_are_divided(standard: Workshop, finished: Finished) -> None:
    """A run that backs off from running out of memory, again and again, hears a signal in between."""
    hook = {"stand_in": True, "fail_above_tokens": 100, "delay_s": 0.1}
    running = standard.start("run", standard.standard_job, hook=hook)
    stop_at(standard, running, lambda: "going on with at most" in running.stderr)
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)


def test_a_signal_while_texts_are_scored_alone(standard: Workshop) -> None:
    """Texts without finite logits are scored again one at a time, which takes long if there are many."""
    job = standard.job(output={"shard_rows": standard.num_rows}, engine={"max_batch_tokens": 10**6})
    scored = standard.folder / "scored"
    scored.touch()
    hook = {"stand_in": True, "nan_every": 2, "delay_s": 0.1, "count_batches": str(scored)}
    running = standard.start("run", job, hook=hook)
    stop_at(standard, running, lambda: len(scored.read_bytes().splitlines()) > 5)
    assert scored.read_bytes().endswith(b"\n3\n")  # the three labels of one text
    assert standard.shards() == {}
    assert standard.run("run", job, hook={**hook, "delay_s": 0.0}).code == 0
    assert (standard.table()["status"] == "non_finite").sum() > 50
