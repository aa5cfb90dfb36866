"""Jobs on a real Slurm: whatever becomes of their tasks, the output is a single run's, byte for byte."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Finished
    from tests.slurm.conftest import Cluster

#: Long enough for a test to interfere: the standard job has about fifty batches.
SLOW = {"delay_s": 0.25}
#: A node for each task, so that a test knows where it is.
ALONE = ("--sbatch", "--exclusive")


def test_an_array_of_four_makes_a_single_runs_output(cluster: Cluster, finished: Finished) -> None:
    """The closing step says the summary; submitted again, there is nothing left and nothing in the queue."""
    job = cluster.submit("--tasks", "4")
    cluster.wait_for_end(job)
    assert cluster.shop.is_like(finished)
    assert cluster.lab.tasks(job.array) == dict.fromkeys(range(1, 5), "COMPLETED")
    assert cluster.exit_code(job.closing) == 0
    assert "rows        150 in 8 shards" in cluster.log("finish")
    assert "this is part 3/4" in cluster.log("task-3-of-4")
    again = cluster.shop.run(
        "slurm", cluster.shop.standard_job, "--tasks", "4", "--submit", extra=cluster.lab.environment
    )
    assert (again.code, again.stdout) == (0, "nothing to submit: the job is finished\n")
    assert cluster.lab.command("squeue", "-h") == ""


def test_a_cancelled_task_and_one_that_never_ran_are_sent_again(cluster: Cluster, finished: Finished) -> None:
    """The closing step runs all the same, refuses, and names both; the next submission holds these two alone."""
    job = cluster.submit("--tasks", "4", "--max-running", "3", hook=SLOW)
    cluster.wait_for_scoring("task-2-of-4")
    cluster.lab.command("scancel", f"{job.array}_4")
    cluster.lab.command("scancel", f"{job.array}_2")
    cluster.wait_for_end(job)
    assert cluster.exit_code(job.closing) == 9
    assert "of parts 2, 4 of 4" in cluster.log("finish")
    assert "part 2/4 ended: " in cluster.log("finish")
    assert "stopped by SIGTERM" in cluster.log("task-2-of-4")
    assert "part 4/4 has not begun" in cluster.log("finish")
    assert not (cluster.shop.output / "_SUCCESS").exists()
    job = cluster.submit("--tasks", "4")
    assert set(cluster.lab.tasks(job.array)) == {2, 4}
    cluster.wait_for_end(job)
    assert cluster.exit_code(job.closing) == 0
    assert cluster.shop.is_like(finished)


def test_a_requeued_task_goes_on(cluster: Cluster, finished: Finished) -> None:
    """Its log is appended to, and what was scored stays scored."""
    job = cluster.submit("--tasks", "2", hook=SLOW)
    cluster.wait_for_scoring("task-1-of-2")
    cluster.lab.command("scontrol", "requeue", f"{job.array}_1")
    cluster.wait_for_end(job)
    assert cluster.lab.detail(f"{job.array}_1", "Restarts") == "1"
    assert cluster.lab.detail(f"{job.array}_2", "Restarts") == "0"
    assert cluster.log("task-1-of-2").count("this is part 1/2") == 2
    assert cluster.exit_code(job.closing) == 0
    assert cluster.shop.is_like(finished)


def test_a_higher_partition_takes_the_nodes_for_a_while(cluster: Cluster, finished: Finished) -> None:
    """Preempted tasks come back by themselves; the closing step waits for them."""
    job = cluster.submit("--tasks", "2", *ALONE, hook=SLOW)
    cluster.wait_for_scoring("task-1-of-2", "task-2-of-2")
    urgent = ["--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
    cluster.lab.command("sbatch", "--wait", *urgent)
    cluster.wait_for_end(job)
    assert [cluster.lab.detail(f"{job.array}_{number}", "Restarts") for number in (1, 2)] == ["1", "1"]
    assert cluster.exit_code(job.closing) == 0
    assert cluster.shop.is_like(finished)


def test_a_node_that_dies_costs_nothing(cluster: Cluster, finished: Finished) -> None:
    """Its task is sent to another node, where it takes over what the dead one left half done."""
    job = cluster.submit("--tasks", "2", *ALONE, hook=SLOW)
    cluster.wait_for_scoring("task-1-of-2", "task-2-of-2")
    nodes = {number: cluster.lab.detail(f"{job.array}_{number}", "NodeList") for number in (1, 2)}
    assert sorted(nodes.values()) == ["n1", "n2"]
    cluster.lab.crash_node("n2")
    try:
        cluster.wait_for_end(job)
    finally:
        cluster.lab.start_node("n2")
    (number,) = (number for number, node in nodes.items() if node == "n2")
    assert cluster.lab.detail(f"{job.array}_{number}", "Restarts") == "1"
    assert cluster.exit_code(job.closing) == 0
    assert cluster.shop.is_like(finished)


def test_the_same_job_submitted_twice_at_once(cluster: Cluster, finished: Finished) -> None:
    """Whoever comes second to a part leaves it; whichever step comes last finds everything."""
    arguments: list[str | Path] = ["slurm", cluster.shop.standard_job, "--tasks", "2", "--submit"]
    hook = {"stand_in": True, **SLOW}
    running = [cluster.shop.start(*arguments, hook=hook, extra=cluster.lab.environment) for _ in range(2)]
    for one in running:
        ended = one.end()
        assert ended.code == 0, ended.stderr
    cluster.lab.wait_until(lambda: not cluster.lab.command("squeue", "-h").strip())
    assert cluster.shop.is_like(finished)
    logs = cluster.log("task-1-of-2") + cluster.log("task-2-of-2")
    assert logs.count("another run holds part") + logs.count("complete: nothing to score") == 2, logs
    assert "rows        150 in 8 shards" in cluster.log("finish")


def test_two_hundred_tasks_for_forty_shards(cluster: Cluster) -> None:
    """A hundred and sixty have nothing to do, which is no error; every shard is there, once."""
    job = cluster.shop.job(output={"shard_rows": 3})
    single = cluster.shop.run("run", job, "--limit", "120", "--set", "output.path=single")
    assert single.code == 0, single.stderr
    submitted = cluster.submit("--tasks", "200", "--limit", "120")
    cluster.wait_for_end(submitted)
    states = cluster.lab.tasks(submitted.array)
    assert len(states) == 200
    assert set(states.values()) == {"COMPLETED"}
    assert cluster.exit_code(submitted.closing) == 0
    shards = cluster.shop.shards()
    assert len(shards) == 40
    assert shards == cluster.shop.shards(cluster.shop.folder / "single")


def test_behind_a_launcher_the_script_asks_for_the_requeue(cluster: Cluster, finished: Finished) -> None:
    """USR1 reaches the shell alone, which hands it on: the run ends with 75, and this task comes back, no other."""
    program = shlex.join([sys.executable, "-m", "batchzs"])
    # The last task to start has the array's own id, so that a requeue by the id alone would be everybody's.
    job = cluster.submit("--tasks", "2", "--launcher", "env INSIDE=1", "--program", program, hook=SLOW)
    cluster.wait_for_scoring("task-1-of-2", "task-2-of-2")
    cluster.lab.command("scancel", "--batch", "--signal=USR1", f"{job.array}_2")
    cluster.wait_for_end(job)
    assert "stopped by SIGUSR1" in cluster.log("task-2-of-2")
    assert "asking Slurm to queue this task again" in cluster.log("task-2-of-2")
    assert cluster.log("task-2-of-2").count("this is part 2/2") == 2
    assert [cluster.lab.detail(f"{job.array}_{number}", "Restarts") for number in (1, 2)] == ["0", "1"]
    assert cluster.exit_code(job.closing) == 0
    assert cluster.shop.is_like(finished)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tasks", "2000"), "Invalid job array specification; fewer --tasks"),
        (("--tasks", "2", "--sbatch", "--partition=nowhere"), "name one with --sbatch --partition"),
        (("--tasks", "2", "--set", "engine.device=cuda", "--gpus", "9"), "no node has what is asked for: fewer --gpus"),
    ],
)
def test_what_slurm_refuses_is_said_in_its_words(cluster: Cluster, options: tuple[str, ...], message: str) -> None:
    """With what to do about it here; nothing is left in the queue."""
    ended = cluster.shop.run("slurm", cluster.shop.standard_job, "--submit", *options, extra=cluster.lab.environment)
    assert ended.code == 8, ended.stderr
    assert "Slurm refuses it: sbatch: error: " in ended.stderr
    assert message in ended.stderr
    assert cluster.lab.command("squeue", "-h") == ""
