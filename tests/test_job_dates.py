"""A job's paths filled with the day: which keys, which day, what is refused, and what a Slurm job began with."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pytest

from batchzs.dates import parse_date
from batchzs.errors import UsageError
from batchzs.job import load_dated_job, load_job
from batchzs.job_dates import DateRequest
from batchzs.paths import RunPaths
from batchzs.slurm.day import SlurmOrigin, slurm_origin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from batchzs.dates import Day
    from batchzs.job import JobConfig

JOB = """\
input:
  path: INPUT
  text: text
  time_zone: Asia/Shanghai
labels: [文化, 体育, 财经]
model: {path: model}
output: {path: 'OUTPUT'}
"""
NIGHT = datetime(2026, 11, 29, 16, 30, tzinfo=UTC)  # half past midnight on the 30th in Shanghai
EVENING = datetime(2026, 11, 29, 15, 30, tzinfo=UTC)  # an hour earlier


def load(
    folder: Path,
    text: str = JOB,
    *,
    date: str | None = None,
    now: datetime = NIGHT,
    slurm: SlurmOrigin | None = None,
    overrides: tuple[str, ...] = (),
) -> tuple[JobConfig, Day | None]:
    """Write a job and load it at a moment."""
    path = folder / "夜.yaml"
    path.write_text(text.replace("INPUT", "in/{date}.csv").replace("OUTPUT", "out/{date}"), encoding="utf-8")
    return load_dated_job(path, overrides, DateRequest(None if date is None else parse_date(date), slurm, lambda: now))


def test_both_paths_are_filled(tmp_path: Path) -> None:
    """Input and output get the same day, in the job's time zone; without --date it is today."""
    for asked, expected in ((None, "2026-11-30"), ("yesterday", "2026-11-29"), ("2026-02-28", "2026-02-28")):
        job, day = load(tmp_path, date=asked)
        assert day is not None
        assert job.input.path == (f"{tmp_path}/in/{expected}.csv",)
        assert job.output.path == tmp_path / "out" / expected
        assert day.value.isoformat() == expected


def test_lists_globs_and_set(tmp_path: Path) -> None:
    """A date works in every item of a list, inside a glob, and in --set; a format may make folders."""
    text = JOB.replace("INPUT", "[all.csv, 'in/{date:%Y/%m}/*-{date:%d}.csv']")
    job, _ = load(tmp_path, text, date="2026-11-05", overrides=("output.path='/data/{date:%Y%m%d}'",))
    assert job.input.path == (f"{tmp_path}/all.csv", f"{tmp_path}/in/2026/11/*-05.csv")
    assert str(job.output.path) == "/data/20261105"


def test_a_job_without_dates(tmp_path: Path) -> None:
    """Other braces are ordinary, nobody asks the clock, and --date would mean nothing: refused."""
    text = JOB.replace("INPUT", "in/{}/{a} 100%.csv").replace("OUTPUT", "out")

    def fail() -> datetime:
        raise AssertionError

    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    job, day = load_dated_job(tmp_path / "job.yaml", (), DateRequest(now=fail))
    assert job.input.path == (f"{tmp_path}/in/{{}}/{{a}} 100%.csv",)
    assert day is None
    with pytest.raises(UsageError, match=r"^--date: no path of this job has a date in it; write \{date\} where"):
        load(tmp_path, text, date="today")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("out", "夜.yaml:7: output.path: input.path has a date in it, and this path has none: every day"),
        ("out/{date:%Y-%m}", "夜.yaml:7: output.path: is the same for 2026-11-30 and 2026-11-29"),
        ("out/{date:%H}", "夜.yaml:7: output.path: found %H in {date:%H}, expected what makes a day"),
        ("out/{date:%Y", "夜.yaml:7: output.path: {date: is not closed"),
    ],
)
def test_outputs_that_days_would_share(tmp_path: Path, output: str, message: str) -> None:
    """Refused with the line and what to write."""
    with pytest.raises(UsageError) as caught:
        load(tmp_path, JOB.replace("OUTPUT", output))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_output_a_day_of_the_same_input(tmp_path: Path) -> None:
    """Labelling one growing file anew each day is a job."""
    job, _ = load(tmp_path, JOB.replace("INPUT", "in/all.csv"))
    assert job.output.path.name == "2026-11-30"


def test_faults_come_all_at_once(tmp_path: Path) -> None:
    """A wrong zone, a wrong date and another key: a line each."""
    text = JOB.replace("Asia/Shanghai", "Shanghai").replace("OUTPUT", "out/{date:%H}").replace("model", "modell")
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert "did you mean Asia/Shanghai?" in str(caught.value)
    assert "%H" in str(caught.value)
    assert "modell" in str(caught.value)


def test_paths_that_are_no_texts(tmp_path: Path) -> None:
    """The schema says so, as without dates."""
    for text in ("input: 3", "output: [a]", "input: {path: {a: 1}}", "input: {path: [[1]]}\noutput: {path: 3}", "a: 1"):
        with pytest.raises(UsageError):
            load(tmp_path, text)


def test_load_job_takes_today(tmp_path: Path) -> None:
    """Whoever asks for no day gets today's."""
    (tmp_path / "job.yaml").write_text(JOB.replace("INPUT", "in.csv").replace("OUTPUT", "{date}"), encoding="utf-8")
    assert date.fromisoformat(load_job(tmp_path / "job.yaml").output.path.name) > date(2026, 1, 1)


def slurm(**variables: str) -> SlurmOrigin:
    """A Slurm job by its variables, without their prefix."""
    found = slurm_origin({f"SLURM_{name}": value for name, value in variables.items()})
    assert found is not None
    return found


def begin(day: Day | None, job: JobConfig) -> None:
    """Do as a run does when it has the output."""
    assert day is not None
    assert day.claim is not None
    RunPaths(job.output.path).temporary.mkdir(parents=True, exist_ok=True)
    day.claim.write(RunPaths(job.output.path), day.value)


@pytest.mark.parametrize("asked", [None, "today", "yesterday"])
def test_a_requeue_after_midnight(tmp_path: Path, asked: str | None) -> None:
    """A Slurm job that began in the evening goes on with that day; another one, or one given a day, does not."""
    job, day = load(tmp_path, date=asked, now=EVENING, slurm=slurm(JOB_ID="7"))
    begin(day, job)
    again, same = load(tmp_path, date=asked, slurm=slurm(JOB_ID="7", RESTART_COUNT="1"))
    assert same is not None
    assert again.output.path == job.output.path
    assert again.input.path == job.input.path
    assert "which Slurm job slurm-7 began with" in str(same)
    for others in ({"JOB_ID": "8", "RESTART_COUNT": "1"}, {"JOB_ID": "7"}, {"JOB_ID": "7", "CLUSTER_NAME": "b"}):
        assert load(tmp_path, date=asked, slurm=slurm(**others))[0].output.path != job.output.path
    fixed, day = load(tmp_path, date="2026-01-01", slurm=slurm(JOB_ID="7", RESTART_COUNT="1"))
    assert day is not None
    assert day.claim is None
    assert fixed.output.path.name == "2026-01-01"


def test_today_and_yesterday_in_one_slurm_job(tmp_path: Path) -> None:
    """A script that does both days finds each of them again."""
    for asked in ("today", "yesterday"):
        job, day = load(tmp_path, date=asked, now=EVENING, slurm=slurm(JOB_ID="7"))
        begin(day, job)
    names = [
        load(tmp_path, date=asked, slurm=slurm(JOB_ID="7", RESTART_COUNT="2"))[0].output.path.name
        for asked in ("today", "yesterday")
    ]
    assert names == ["2026-11-29", "2026-11-28"]


def test_tasks_of_an_array_take_the_first_ones_day(tmp_path: Path) -> None:
    """Without a restart too: tasks of one array may start on different days."""
    first = slurm(ARRAY_JOB_ID="7", JOB_ID="7")
    job, day = load(tmp_path, now=EVENING, slurm=first)
    begin(day, job)
    other, day = load(tmp_path, slurm=slurm(ARRAY_JOB_ID="7", JOB_ID="9"))
    assert other.output.path == job.output.path
    begin(day, other)


def test_tasks_that_begin_around_midnight_at_once(tmp_path: Path) -> None:
    """Both looked before either had left its note: whoever writes second notices, and nothing is mixed in silence."""
    array = slurm(ARRAY_JOB_ID="7", JOB_ID="7")
    before, after = load(tmp_path, now=EVENING, slurm=array), load(tmp_path, slurm=array)
    begin(after[1], after[0])
    with pytest.raises(UsageError, match=r"different days \(2026-11-29, 2026-11-30\).* --date 2026-11-29$"):
        begin(before[1], before[0])
    with pytest.raises(UsageError, match="different days"):
        load(tmp_path, slurm=array)


def test_a_damaged_note_counts_as_none(tmp_path: Path) -> None:
    """What cannot be read says nothing, and is written anew."""
    job, day = load(tmp_path, slurm=slurm(JOB_ID="7"))
    begin(day, job)
    note = RunPaths(job.output.path).slurm_day("slurm-7-today")
    assert note.read_bytes() == b"2026-11-30\n"
    note.write_bytes(b"\xff")
    again, day = load(tmp_path, slurm=slurm(JOB_ID="7", RESTART_COUNT="1"))
    begin(day, again)
    assert note.read_bytes() == b"2026-11-30\n"


@pytest.mark.parametrize("variables", [{}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../x"}])
def test_outside_slurm(variables: Mapping[str, str]) -> None:
    """Nothing is looked for, and nothing from the environment becomes a path."""
    assert slurm_origin(variables) is None
