"""Stop a run on request: it ends soon with 75, and the same command goes on."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.conftest import Finished, Workshop

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
#: What Slurm and users are promised.
STOPPING_LIMIT_S = 20


def test_each_signal_ends_a_run_in_order(standard: Workshop, finished: Finished) -> None:
    """TERM, INT, USR1 and HUP: the run says so, ends with 75 and whole shards; the next one goes on (case S1)."""
    for number in SIGNALS:
        num_before = len(standard.shards())
        running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 0.06})
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
