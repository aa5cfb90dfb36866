"""A drop a day: the day in input and output, frozen with the run, also where Slurm sends it again after midnight."""

from __future__ import annotations

import shutil
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Workshop

#: Two clocks that are 26 hours apart, so that they always show different days, as two moments around midnight do.
BEFORE = {"TZ": "<-12>12"}
AFTER = {"TZ": "<+14>-14"}
SLOW = {"stand_in": True, "delay_s": 0.5}


@pytest.fixture
def daily(workshop: Workshop) -> Workshop:
    """A folder with drops of some days around today, a few rows each, and a job on them."""
    for offset in range(-4, 4):
        day = datetime.now(UTC).date() + timedelta(days=offset)
        lines = [f"{row},{day} 第{row}条新闻\n" for row in range(60)]
        (workshop.folder / f"新闻 {day:%Y%m%d}.csv").write_text("id,text\n" + "".join(lines), encoding="utf-8")
    workshop.job(input={"path": "新闻 {date:%Y%m%d}.csv"}, output={"path": "结果 {date}"})
    return workshop


def outputs(workshop: Workshop) -> list[Path]:
    """The days' outputs."""
    return sorted(workshop.folder.glob("结果 *"))


def test_a_day_in_full(daily: Workshop) -> None:
    """The day is in the paths, the log, the record, the summary and the status; a repeat finds it done."""
    day = (datetime.now(UTC).date() - timedelta(days=3)).isoformat()
    result = daily.run("run", daily.standard_job, "--date", day)
    assert result.code == 0, result.stderr
    output = daily.folder / f"结果 {day}"
    assert outputs(daily) == [output]
    assert result.stdout.startswith(f"date        {day}\nrows        60 in 3 shards\n")
    for log in (result.stderr, (output / "state/run.log").read_text(encoding="utf-8")):
        assert f"the date is {day}, as --date says" in log
    record = daily.record("run.json", output)
    assert record["day"] == day
    assert record["job"]["output"]["path"] == str(output)
    assert record["job"]["input"]["path"] == [str(daily.folder / f"新闻 {day.replace('-', '')}.csv")]
    assert daily.record("summary.json", output)["day"] == day
    status = daily.run("status", daily.standard_job, "--date", day)
    assert status.code == 0, status.stderr
    assert f"date        {day}\n" in status.stdout
    refused = daily.run("status", output, "--date", day)
    assert refused.code == 2
    assert daily.findings(output) == []


def test_a_missing_drop(daily: Workshop) -> None:
    """Code 3, with the path that was looked for, the date, and why it is that one; other days are not touched."""
    job = daily.job(
        input={"path": "没有 {date}.csv", "time_zone": "Asia/Shanghai"}, output={"path": "结果 {date:%Y%m%d}"}
    )
    shanghai = datetime.now(UTC) + timedelta(hours=8)
    result = daily.run("run", job, "--date", "yesterday")
    days = [(moment - timedelta(days=1)).date() for moment in (shanghai, datetime.now(UTC) + timedelta(hours=8))]
    assert result.code == 3, result.stderr
    last = result.stderr.splitlines()[-1]
    assert any(
        f"{daily.folder}/没有 {day}.csv: there is no such file or directory (the date is {day}, y" in last
        for day in days
    )
    assert "yesterday in Asia/Shanghai, where it is 20" in last
    glob = daily.job(input={"path": "没有 {date}-*.csv"}, output={"path": "结果 {date}"})
    result = daily.run("run", glob, "--date", "2026-01-02")
    assert result.code == 3, result.stderr
    assert f"{daily.folder}/没有 2026-01-02-*.csv: nothing matches (the date is 2026-01-02" in result.stderr


def test_a_stop_says_which_day_to_go_on_with(daily: Workshop) -> None:
    """Tomorrow the same command means another day: the message gives this one in full."""
    running = daily.start("run", daily.standard_job, hook=SLOW)
    running.wait_until(lambda: any(daily.shards(output) for output in outputs(daily)))
    running.send(signal.SIGTERM)
    result = running.end()
    assert result.code == 75, result.stderr
    (output,) = outputs(daily)
    day = output.name.removeprefix("结果 ")
    assert result.stderr.endswith(f"stopped by SIGTERM: run the same command again to go on, with --date {day}\n")
    assert daily.run("run", daily.standard_job, "--date", day).code == 0
    assert outputs(daily) == [output]
    assert (output / "_SUCCESS").exists()


def test_a_requeue_after_midnight(daily: Workshop) -> None:
    """Killed before midnight and sent again after it, the same Slurm job finishes the day that it began with."""
    slurm = {"SLURM_JOB_ID": "77", "SLURM_CLUSTER_NAME": "北 1"}
    crash = {"stand_in": True, "crash": "shard-published"}
    killed = daily.run("run", daily.standard_job, hook=crash, extra=slurm | BEFORE)
    assert killed.code == -signal.SIGKILL
    (output,) = outputs(daily)
    again = daily.run("run", daily.standard_job, extra=slurm | AFTER | {"SLURM_RESTART_COUNT": "1"})
    assert again.code == 0, again.stderr
    assert "which Slurm job -1-77 began with" in again.stderr
    assert outputs(daily) == [output]
    assert (output / "_SUCCESS").exists()
    other = daily.run("run", daily.standard_job, extra=slurm | AFTER | {"SLURM_JOB_ID": "78"})
    assert other.code == 0, other.stderr
    assert len(outputs(daily)) == 2


def test_an_array_around_midnight(daily: Workshop) -> None:
    """Tasks that begin on different days score one day's input together."""
    for number, clock in ((0, BEFORE), (1, AFTER)):
        array = {"ID": number, "COUNT": 2, "MIN": 0, "MAX": 1}
        slurm = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in array.items()}
        ids = {"SLURM_ARRAY_JOB_ID": "90", "SLURM_JOB_ID": str(90 + number)}
        result = daily.run("run", daily.standard_job, extra=slurm | ids | clock)
        assert result.code == 0, result.stderr
    (output,) = outputs(daily)
    assert (output / "_SUCCESS").exists()


def test_a_date_is_no_part_of_the_job(daily: Workshop) -> None:
    """A drop that was moved, and a job that names it by hand, go on in the day's output: only paths changed."""
    day = (datetime.now(UTC).date() - timedelta(days=2)).isoformat()
    assert daily.run("run", daily.standard_job, "--date", day).code == 0
    moved = daily.folder / "moved"
    moved.mkdir()
    name = f"新闻 {day.replace('-', '')}.csv"
    shutil.copy2(daily.folder / name, moved / name)
    job = daily.job(input={"path": f"moved/{name}"}, output={"path": f"结果 {day}"})
    result = daily.run("run", job)
    assert result.code == 0, result.stderr
    assert "nothing to score" in result.stderr
