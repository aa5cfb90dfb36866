"""A real Slurm's time limit: the run ends before it, has its job requeued, and the next attempt scores the rest."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.conftest import Finished, Workshop
    from tests.slurm.lab import SlurmLab

pytestmark = pytest.mark.slurm

#: A controller looks every few seconds, a requeued job waits for some more, and the machine may be busy.
TIMEOUT_S = 300
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


class Jobs:
    """Submits the standard job to a cluster as a script of its own, and waits for it."""

    def __init__(self, lab: SlurmLab, shop: Workshop) -> None:
        self.shop = shop
        self.scored = shop.folder / "scored"
        self.scored.touch()
        self.hook: dict[str, Any] = {"stand_in": True, "delay_s": 1.0, "count_batches": str(self.scored)}
        self._conf = lab.environment
        self._submitted: list[str] = []

    def client(self, *command: str) -> str:
        """Run one of Slurm's clients, in the run's own environment."""
        environ = self.shop.environment(self.hook, self._conf)
        done = subprocess.run(command, env=environ, capture_output=True, check=False, encoding="utf-8", timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *options: str) -> str:
        """Submit the job; one worker, so that it lasts most of a minute."""
        job = self.shop.job(engine={"workers": 1})
        script = self.shop.folder / "提交 [1].sh"
        command = f"exec {shlex.join([sys.executable, '-m', 'batchzs', 'run', str(job)])}"
        lines = ("#!/bin/sh", "#SBATCH --requeue --open-mode=append", "export BATCHZS_REQUEUE=1", command)
        script.write_text("\n".join(lines) + "\n", encoding="utf-8")
        output = ("--output", str(self.shop.folder / "slurm.log"))
        self._submitted.append(self.client("sbatch", "--parsable", *output, *options, str(script)).strip())
        return self._submitted[-1]

    def log(self) -> str:
        """What all attempts have printed."""
        path = self.shop.folder / "slurm.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def detail(self, job_id: str, key: str) -> str:
        """One value of `scontrol show job`."""
        words = self.client("scontrol", "show", "--oneliner", "job", job_id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)[key]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the job brings about."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, self.log()
            time.sleep(0.2)

    def wait_for_end(self, job_id: str) -> str:
        """Wait until the job has ended for good, and return how."""
        self.wait_until(lambda: self.detail(job_id, "JobState") in ENDED)
        return self.detail(job_id, "JobState")

    def cancel(self) -> None:
        """Leave nothing behind."""
        for job_id in self._submitted:
            if self.detail(job_id, "JobState") not in ENDED:
                self.client("scancel", job_id)
                self.wait_for_end(job_id)


@pytest.fixture
def jobs(lab: SlurmLab, standard: Workshop) -> Iterator[Jobs]:
    """The standard job's folder, and a cluster."""
    made = Jobs(lab, standard)
    yield made
    made.cancel()


def undisturbed_batches(jobs: Jobs) -> int:
    """How many batches a run has that nothing disturbs."""
    jobs.scored.unlink()
    hook = {**jobs.hook, "delay_s": 0.0}
    ended = jobs.shop.run("run", jobs.shop.standard_job, "--set", f"output.path={jobs.shop.folder / 'once'}", hook=hook)
    assert ended.code == 0, ended.stderr
    return len(jobs.scored.read_bytes().splitlines())


def test_a_job_of_one_minute_is_requeued_until_it_is_done(jobs: Jobs, finished: Finished) -> None:
    """Slurm is asked for the limit; no attempt meets it, none scores a batch that another one has."""
    job_id = jobs.submit("--time=1")
    assert jobs.wait_for_end(job_id) == "COMPLETED"
    log = jobs.log()
    assert "(the Slurm job's), in " in log
    num_stops = log.count("stopped before the time limit, ")
    assert num_stops > 0
    assert log.count(f"asking Slurm to requeue job {job_id}\n") == num_stops
    assert "DUE TO TIME LIMIT" not in log
    assert int(jobs.detail(job_id, "Restarts")) == num_stops
    assert jobs.shop.is_like(finished)
    assert len(jobs.scored.read_bytes().splitlines()) == undisturbed_batches(jobs)


def test_a_warning_before_the_limit_requeues(jobs: Jobs, finished: Finished) -> None:
    """SIGUSR1 to the batch script, as `--signal=B:USR1@120` sends it, inside a shard: that job comes back and ends."""
    job_id = jobs.submit("--time=10")
    jobs.wait_until(lambda: len(jobs.scored.read_bytes()) > 20)
    jobs.client("scancel", "--batch", "--signal=USR1", job_id)
    assert jobs.wait_for_end(job_id) == "COMPLETED"
    log = jobs.log()
    assert "stopped by SIGUSR1: " in log
    assert f"asking Slurm to requeue job {job_id}\n" in log
    assert jobs.detail(job_id, "Restarts") == "1"
    assert jobs.shop.is_like(finished)


def test_a_task_of_an_array_is_requeued_alone(jobs: Jobs, finished: Finished) -> None:
    """The task whose number is the array's as well, the last one, too: the other one's work is not begun again."""
    job_id = jobs.submit("--time=10", "--array=0-1")
    first, last = f"{job_id}_0", f"{job_id}_1"
    jobs.wait_until(lambda: jobs.log().count("scoring in") == 2)
    jobs.client("scancel", "--batch", "--signal=USR1", last)
    assert jobs.wait_for_end(first) == jobs.wait_for_end(last) == "COMPLETED"
    assert f"asking Slurm to requeue job {last}\n" in jobs.log()
    assert (jobs.detail(first, "Restarts"), jobs.detail(last, "Restarts")) == ("0", "1")
    assert jobs.shop.is_like(finished)


def test_a_cancelled_job_stays_cancelled(jobs: Jobs) -> None:
    """It gets SIGTERM: what is scored is kept, and nothing comes back."""
    job_id = jobs.submit("--time=10")
    jobs.wait_until(lambda: len(jobs.scored.read_bytes()) > 0)
    jobs.client("scancel", "--full", job_id)
    assert jobs.wait_for_end(job_id) == "CANCELLED"
    assert "stopped by SIGTERM: " in jobs.log()
    assert "requeue" not in jobs.log()
