"""A run on all devices: as many processes, one run's promises.

On a CPU `engine.workers` processes go through the same code as one a GPU would.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Finished, Running, Workshop

ALL = {"device": "all", "precision": "fp32", "max_batch_tokens": 600, "workers": 2}
STOPPING_LIMIT_S = 20
#: On a busy machine one worker may start so much later than another that nothing is left for it.
TOGETHER = {"stand_in": True, "together": True}


def children_of(running: Running) -> list[int]:
    """The ids of a run's worker processes."""
    return [
        int(one) for one in Path(f"/proc/{running.process_id}/task/{running.process_id}/children").read_text().split()
    ]


def is_alive(process_id: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process_id}/status").read_text()
    except FileNotFoundError:
        return False


def wait_until_gone(process_ids: list[int], limit_s: float) -> None:
    """See that processes end by themselves, and soon."""
    deadline_s = time.monotonic() + limit_s
    while any(is_alive(one) for one in process_ids):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def num_pairs_scored(path: Path) -> int:
    """What the stand-in counted."""
    return sum(int(line) for line in path.read_text().splitlines())


def num_pairs_recorded(workshop: Workshop) -> int:
    """What the shards' records say."""
    return sum(json.loads(path.read_bytes())["num_pairs"] for path in (workshop.state / "shards").iterdir())


def test_two_processes_give_an_undisturbed_runs_bytes(standard: Workshop, finished: Finished) -> None:
    """Every shard once, by one of two workers, in one run with one log, one summary and one attempt."""
    counted = standard.folder / "counted"
    hook = {**TOGETHER, "count_batches": str(counted), "delay_s": 0.02}
    result = standard.run("run", standard.job(engine=ALL), hook=hook)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    assert standard.attempts() == [1] * standard.num_shards
    assert num_pairs_scored(counted) == num_pairs_recorded(standard)
    log = (standard.state / "run.log").read_text(encoding="utf-8")
    for text in (result.stderr, log):
        for index in range(standard.num_shards):
            assert text.count(f"on stand-in: part-{index:05d}.parquet: ") == 1
        assert "worker 1 on stand-in: part-" in text
        assert "worker 2 on stand-in: part-" in text
        assert text.count("attempt 1: scoring in fp32 on stand-in model in 2 processes, workers: 2,") == 1
        assert text.count("finished: 150 rows in") == 1
        assert " left, " not in text
    assert result.stdout.count("rows ") == 1


@pytest.mark.slow
def test_a_checkpoint_in_two_processes(standard: Workshop, finished_by_model: Finished) -> None:
    """A real network gives the bits that it gives in one process; going on in another number of processes too."""
    job = standard.job(engine=ALL)
    result = standard.run("run", job, "--limit", "80", hook={"crash": "shard-recorded:2", "together": True})
    assert result.code == 8, result.stderr
    assert len(standard.published(finished_by_model)) == 2  # one each
    assert "worker 2 on cpu died: SIGKILL ended it" in result.stderr
    result = standard.run("run", job, "--limit", "80", "--set", "engine.workers=1", hook=None)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished_by_model)
    assert standard.record("shards/part-00000.json")["device"] == "cpu"


@pytest.mark.parametrize("crash", ["batch-scored:3", "journal-torn", "shard-written", "shard-published"])
def test_a_worker_that_is_killed(standard: Workshop, finished: Finished, crash: str) -> None:
    """The other one does the rest: all done, with a warning; nothing half written stays, no shard is scored again."""
    counted = standard.folder / "counted"
    hook = {**TOGETHER, "delay_s": 0.02, "count_batches": str(counted), "crash": crash, "worker": 2}
    result = standard.run("run", standard.job(engine={**ALL, "checkpoint_seconds": 1}), hook=hook)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    assert "warning: worker 2 on stand-in died: SIGKILL ended it (was memory short?): 1 worker left, " in result.stderr
    assert list((standard.state / "tmp").iterdir()) == []
    assert list((standard.state / "journal").iterdir()) == []
    if crash == "shard-published":
        # What it was scoring by then is all that may have been scored twice.
        assert num_pairs_scored(counted) - num_pairs_recorded(standard) <= len(standard.labels) * standard.shard_rows


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_reaches_every_worker(standard: Workshop, finished: Finished, number: signal.Signals) -> None:
    """One signal to the run, or Ctrl-C, which a terminal sends to all of its processes: 75 in time, and nobody left."""
    job = standard.job(engine=ALL)
    running = standard.start("run", job, hook={**TOGETHER, "delay_s": 0.1}, script='exec setsid "$@"')
    running.wait_until(lambda: len(standard.shards()) > 1)
    workers = children_of(running)
    assert len(workers) == 2
    if number == signal.SIGINT:
        os.killpg(running.process_id, number)
    else:
        running.send(number)
    sent_s = time.monotonic()
    result = running.end()
    assert time.monotonic() - sent_s < STOPPING_LIMIT_S
    assert result.code == 75, result.stderr
    assert result.stderr.endswith(f"stopped by {number.name}: run the same command again to go on\n")
    assert "KeyboardInterrupt" not in result.stderr
    assert not any(map(is_alive, workers))
    assert 1 < len(standard.published(finished)) < standard.num_shards
    assert list((standard.state / "tmp").iterdir()) == []
    assert standard.run("run", job).code == 0
    assert standard.is_like(finished)
    assert sorted(set(standard.attempts())) == [1, 2]


def test_a_run_that_is_killed_takes_its_workers_along(standard: Workshop, finished: Finished) -> None:
    """Kill -9 to the run alone, its workers in the middle of long batches: they end at once, and so their lock."""
    job = standard.job(engine=ALL)
    running = standard.start("run", job, hook={**TOGETHER, "delay_s": 0.1})
    running.wait_until(lambda: len(standard.shards()) > 1)
    workers = children_of(running)
    running.send(signal.SIGKILL)
    assert running.end().code == -signal.SIGKILL
    wait_until_gone(workers, 5)
    published = standard.published(finished)
    assert 1 < len(published) < standard.num_shards
    result = standard.run("run", job)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    assert [attempt == 1 for attempt in standard.attempts()] == [
        index in published for index in range(standard.num_shards)
    ]


def test_a_second_signal_ends_all_at_once(standard: Workshop) -> None:
    """Who asks twice does not wait for batches, which are long here, and the next run finds the lock free."""
    job = standard.job(engine=ALL)
    running = standard.start("run", job, hook={**TOGETHER, "delay_s": 2 * STOPPING_LIMIT_S})
    running.wait_until(lambda: any(standard.state.glob("journal/*")))
    workers = children_of(running)
    running.send(signal.SIGTERM)
    time.sleep(0.5)
    assert not running.has_ended
    running.send(signal.SIGTERM)
    sent_s = time.monotonic()
    assert running.end().code == 75
    wait_until_gone(workers, 5)
    assert time.monotonic() - sent_s < STOPPING_LIMIT_S / 2
    assert standard.run("run", job).code == 0


@pytest.mark.parametrize("worker", [2, None])
def test_a_device_that_cannot(standard: Workshop, finished: Finished, worker: int | None) -> None:
    """Memory at the floor on one device ends its worker and not the run; on all of them it is the run's error."""
    hook: dict[str, Any] = {**TOGETHER, "fail_above_tokens": 1, "delay_s": 0.02}
    result = standard.run("run", standard.job(engine=ALL), hook=hook if worker is None else {**hook, "worker": worker})
    said = "on stand-in: out of memory with a single pair of"
    if worker is None:
        assert result.code == 8, result.stderr
        assert f" {said}" in result.stderr.splitlines()[-1]
        assert standard.shards() == {}
    else:
        assert result.code == 0, result.stderr
        assert f"warning: worker {worker} {said}" in result.stderr
        assert standard.is_like(finished)


@pytest.mark.slow
def test_an_error_that_meets_everyone(standard: Workshop, finished: Finished) -> None:
    """A file that changes under the run: it ends with that error's code, said once, its workers gone."""
    job = standard.job(engine=ALL)
    running = standard.start("run", job, hook={**TOGETHER, "delay_s": 0.1})
    running.wait_until(lambda: len(standard.shards()) > 0)
    workers = children_of(running)
    os.utime(standard.input / "part-10.csv", (0, 0))
    result = running.end()
    assert result.code == 3, result.stderr
    assert not any(map(is_alive, workers))
    errors = [line for line in result.stderr.splitlines() if " error: " in line]
    assert len(errors) == 1
    assert "part-10.csv: has changed while the run went on" in errors[0]
    assert standard.run("run", job).code == 0  # its content is the same
    assert standard.is_like(finished)


@pytest.mark.slow
def test_a_disk_that_takes_no_more(standard: Workshop) -> None:
    """Whoever writes the shard that finds no room ends the run with 8 and one message; the same command goes on."""
    job = standard.job(engine=ALL, output={"shard_rows": 50})
    # Python would leave torn bytecode behind as well.
    result = standard.run("run", job, script='ulimit -f 12; exec "$@"', extra={"PYTHONDONTWRITEBYTECODE": "1"})
    assert result.code == 8, result.stderr
    errors = [line for line in result.stderr.splitlines() if " error: " in line]
    assert len(errors) == 1, result.stderr
    assert "cannot be written: File too large" in errors[0]
    assert list((standard.state / "tmp").iterdir()) == []
    assert standard.run("run", job).code == 0
    assert len(standard.shards()) == 3


@pytest.mark.slow
def test_a_task_on_all_devices(standard: Workshop, finished: Finished) -> None:
    """A part's shards are shared out in the same way, and finished by a run on one device."""
    result = standard.run("run", standard.job(engine=ALL), "--task", "2/2")
    assert result.code == 0, result.stderr
    assert standard.published(finished) == {1, 3, 5, 7}
    log = (standard.state / "tasks/task-2-of-2.log").read_text(encoding="utf-8")
    assert "on stand-in: part-00007.parquet: 10 rows published" in log
    assert standard.run("run", standard.job()).code == 0
    assert standard.is_like(finished)


def test_nothing_is_left_to_do(done: Workshop, finished: Finished) -> None:
    """A finished run starts no process, and more processes than shards are not started either."""
    job = done.job(engine={**ALL, "workers": 30})
    result = done.run("run", job, extra={"GUARD_PROCESSES": "1"})
    assert result.code == 0, result.stderr
    (done.output / "scores/part-00003.parquet").unlink()
    result = done.run("run", job)
    assert result.code == 0, result.stderr
    assert "worker 1 on stand-in: part-00003.parquet: 20 rows published" in result.stderr
    assert "worker 2" not in result.stderr
    assert done.is_like(finished)
    shutil.rmtree(done.output)
