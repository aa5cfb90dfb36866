"""`state/metrics.prom` over whole runs: a strict reader takes it, and each end leaves its code."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.exposition import parse_exposition

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Workshop

SLOW = {"stand_in": True, "delay_s": 3}


def read(path: Path, labels: dict[str, str]) -> dict[str, float]:
    """What a file says, by metric without prefix; each sample has these labels."""
    samples = parse_exposition(path.read_bytes())
    assert {found for _, found in samples} == {tuple(labels.items())}
    return {name.removeprefix("batchzs_"): value for (name, _), value in samples.items()}


@pytest.mark.slow
def test_from_a_stop_to_the_end_and_beyond(standard: Workshop) -> None:
    """75, 0, then a job that is refused: the success stays, and a run that is turned away leaves the file alone."""
    path, labels = standard.state / "metrics.prom", {"output": str(standard.output)}
    began_s = time.time()
    running = standard.start("run", standard.standard_job, hook=SLOW)
    running.wait_until(lambda: bool(standard.shards()))
    at_work = read(path, labels)
    assert at_work["rows"] == 150
    assert not {"last_exit_code", "last_success_time_seconds"} & at_work.keys()
    assert standard.run("run", standard.standard_job).code == 7
    beside = read(path, labels)
    assert beside["start_time_seconds"] == at_work["start_time_seconds"]
    assert "last_exit_code" not in beside
    running.send(signal.SIGTERM)
    assert running.end().code == 75
    stopped = read(path, labels)
    assert stopped["last_exit_code"] == 75
    assert 0 < stopped["rows_done"] < 150
    assert stopped["tokens_per_second"] > 0
    assert "last_success_time_seconds" not in stopped
    ended: dict[str, float] = {}
    for num_attempts in (2, 2):  # once to finish, once more with nothing to do
        assert standard.run("run", standard.standard_job).code == 0
        summary, ended = standard.record("summary.json"), read(path, labels)
        assert summary["num_attempts"] == num_attempts
        assert ended["last_exit_code"] == 0
        assert (ended["rows"], ended["rows_done"], ended["rows_quarantined"]) == (150, 150, 2)
        assert (ended["pairs"], ended["tokens"]) == (summary["num_pairs"], summary["num_tokens"])
        assert began_s < ended["start_time_seconds"] <= ended["last_success_time_seconds"] <= time.time()
        assert ended["last_success_time_seconds"] <= ended["last_update_time_seconds"]
    assert standard.run("run", standard.standard_job, "--limit", "5").code == 6
    refused = read(path, labels)
    assert refused["last_exit_code"] == 6
    assert refused["last_success_time_seconds"] == ended["last_success_time_seconds"]
    assert standard.run("run", standard.job(input={"max_bad_share": 0.001})).code == 5
    assert read(path, labels)["last_exit_code"] == 5
    assert list((standard.state / "tmp").iterdir()) == []


def test_a_file_a_task(standard: Workshop) -> None:
    """Two tasks never write one file; each counts its own part."""
    for task in ("1/2", "2/2"):
        assert standard.run("run", standard.standard_job, "--task", task).code == 0
    found = [
        read(standard.state / f"tasks/task-{n}-of-2.prom", {"output": str(standard.output), "task": f"{n}/2"})
        for n in (1, 2)
    ]
    assert [one["rows"] for one in found] == [80, 70]
    assert [one["rows_done"] for one in found] == [80, 70]
    assert sum(one["pairs"] for one in found) == standard.record("summary.json")["num_pairs"]
    assert {one["last_exit_code"] for one in found} == {0}
    assert not (standard.state / "metrics.prom").exists()
