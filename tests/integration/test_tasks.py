"""One job in parts, by several processes: the output of a single run, whoever dies, comes twice or comes late."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Finished, Workshop


def test_parts_at_once_make_one_run(standard: Workshop, finished: Finished) -> None:
    """Three tasks begun together: one settles the run, each does its shards, the last one finishes, once."""
    hook = {"stand_in": True, "delay_s": 0.02}
    running = [standard.start("run", standard.standard_job, "--task", f"{n}/3", hook=hook) for n in (1, 2, 3)]
    ended = [one.end() for one in running]
    assert [one.code for one in ended] == [0, 0, 0], [one.stderr for one in ended]
    assert standard.is_like(finished)
    assert (standard.output / "_SUCCESS").exists()
    assert sum("finished: 150 rows" in one.stderr for one in ended) == 1
    assert standard.record("summary.json")["num_rows"] == 150
    for number, one in enumerate(ended, start=1):
        assert f"this is part {number}/3" in one.stderr
        log = (standard.state / "tasks" / f"task-{number}-of-3.log").read_text(encoding="utf-8")
        assert f"this is part {number}/3" in log
    assert standard.findings() == []


def test_a_part_does_its_shards_and_says_what_is_left(standard: Workshop, finished: Finished) -> None:
    """`--task 2/3` publishes shards 1, 4 and 7 and no end; any later total finishes, none at all too."""
    result = standard.run("run", standard.standard_job, "--task", "2/3")
    assert result.code == 0, result.stderr
    assert standard.published(finished) == {1, 4, 7}
    assert not (standard.output / "_SUCCESS").exists()
    assert "part 2/3 is complete; 5 of 8 shards are other parts' and not there yet" in result.stderr
    assert "shards of other parts not there yet: 5" in result.stdout
    assert standard.run("run", standard.standard_job, "--task", "1/2").code == 0
    assert standard.published(finished) == {0, 1, 2, 4, 6, 7}
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)


def test_a_part_without_shards_ends_well(standard: Workshop, finished: Finished) -> None:
    """More tasks than shards: the ones left over have nothing to do, and that is no error."""
    result = standard.run("run", standard.standard_job, "--task", "11/20")
    assert result.code == 0, result.stderr
    assert standard.published(finished) == set()


@pytest.mark.parametrize("crash", ["inputs-frozen", "run-recorded", "shard-recorded", "run-finished"])
def test_a_killed_part_is_gone_on_with(standard: Workshop, finished: Finished, crash: str) -> None:
    """Wherever a task dies, the same task again, and the others, make the same output; its lock is gone with it."""
    killed = standard.run("run", standard.standard_job, "--task", "2/2", hook={"stand_in": True, "crash": crash})
    assert killed.code == -signal.SIGKILL, killed.stderr
    for task in ("1/2", "2/2"):
        result = standard.run("run", standard.standard_job, "--task", task)
        assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    assert (standard.output / "_SUCCESS").exists()


@pytest.mark.slow
def test_locks_of_parts_and_of_the_whole(standard: Workshop, finished: Finished) -> None:
    """The same part twice, a whole run beside a part, a part beside a whole run: 7 and one line; other parts may."""
    hook = {"stand_in": True, "delay_s": 0.3}
    running = standard.start("run", standard.standard_job, "--task", "1/2", hook=hook)
    running.wait_until(lambda: "scoring in" in running.stderr)
    for options, part in ((("--task", "1/2"), "part 1/2"), ((), "this output")):
        refused = standard.run("run", standard.standard_job, *options)
        assert refused.code == 7, refused.stderr
        assert f"{standard.output}: another run holds {part} (process " in refused.stderr
    assert standard.run("run", standard.standard_job, "--task", "2/2").code == 0
    assert running.end().code == 0
    assert standard.is_like(finished)
    (standard.output / "scores/part-00000.parquet").unlink()
    whole = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 1})
    whole.wait_until(lambda: "scoring in" in whole.stderr)
    refused = standard.run("run", standard.standard_job, "--task", "1/2")
    assert refused.code == 7, refused.stderr
    assert whole.end().code == 0


def test_another_job_is_refused_to_a_part_too(standard: Workshop) -> None:
    """The plan of the first task holds for all."""
    assert standard.run("run", standard.standard_job, "--task", "1/2").code == 0
    refused = standard.run("run", standard.job(threshold=0.9), "--task", "2/2")
    assert refused.code == 6, refused.stderr
    restart = standard.run("run", standard.standard_job, "--task", "2/2", "--restart")
    assert restart.code == 2, restart.stderr
    assert "restart without --task" in restart.stderr


def test_a_slurm_arrays_tasks_find_their_parts(standard: Workshop, finished: Finished) -> None:
    """Without `--task`, from the environment; sent again alone, a task still knows how many there are."""

    def environ(own_id: int, count: int, lowest: int, highest: int) -> dict[str, str]:
        values = {"ID": own_id, "COUNT": count, "MIN": lowest, "MAX": highest}
        return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}

    first = standard.run("run", standard.standard_job, extra=environ(0, 2, 0, 1))
    assert first.code == 0, first.stderr
    assert "this is part 1/2" in first.stderr
    other = standard.run("run", standard.standard_job, extra=environ(0, 4, 0, 3))
    assert other.code == 2, other.stderr
    assert "was begun with 2 from 0 on" in other.stderr
    again = standard.run("run", standard.standard_job, extra=environ(1, 1, 1, 1))
    assert again.code == 0, again.stderr
    assert standard.is_like(finished)
