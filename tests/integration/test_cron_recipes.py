"""docs/cron.md: its job is a job, and every command in it is run, in the environment that cron gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from tests.exposition import parse_exposition

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cron.md").read_text(encoding="utf-8")
NUM_ROWS = 20
MISSED = [f"2026-11-{day}" for day in (25, 26, 27, 28, 29)]


def blocks(language: str) -> list[str]:
    """The page's code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def cron_commands() -> list[str]:
    """The commands of the crontab lines, as cron hands them to the shell: an escaped % is one, a bare one ends it."""
    commands = []
    for line in "".join(blocks("cron")).splitlines():
        found = re.fullmatch(r"(?:[0-9*/,-]+ ){5}(.+)", line)
        assert found is not None, line
        assert re.search(r"(?<!\\)%", found[1]) is None, line
        commands.append(found[1].replace(r"\%", "%"))
    return commands


COMMANDS = cron_commands()


class Machine:
    """A folder in place of `/srv`, as the page has it: drops, job, model, and the command in its environment."""

    def __init__(self, folder: Path, pythonpath: Path) -> None:
        self.folder = folder
        for name in ("batchzs/.venv/bin", "drops", "jobs", "log", "out", "textfile", "bin"):
            (folder / name).mkdir(parents=True)
        (folder / "model").symlink_to(ROOT / "sample_data" / "model")
        (job,) = blocks("yaml")
        (folder / "jobs/news.yaml").write_text(self.local(job), encoding="utf-8")
        hook = json.dumps({"stand_in": True})
        variables = f"BATCHZS_TEST_HOOK='{hook}' PYTHONPATH='{pythonpath}'"
        self.script("batchzs/.venv/bin/batchzs", f'export {variables}\nexec "{sys.executable}" -m batchzs "$@"\n')
        self.script("bin/mail", f'{{ printf "%s\\n" "$@"; cat; }} >> {folder}/mail\n')

    def local(self, text: str) -> str:
        """A text of the page, with this folder's paths."""
        return text.replace("/srv/", f"{self.folder}/")

    def script(self, name: str, content: str) -> None:
        """Write a program."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{content}", encoding="utf-8")
        path.chmod(0o755)

    def drop(self, day: str) -> None:
        """Put a day's texts where the job looks for them: some of the sample data."""
        rows = pl.read_parquet(ROOT / "sample_data/news.parquet").head(NUM_ROWS)
        rows.write_csv(self.folder / f"drops/news-{day}.csv")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as cron does: hardly any environment, no terminal, another working directory."""
        return subprocess.run(
            ["/bin/sh", "-c", self.local(command)],
            capture_output=True,
            check=False,
            cwd="/",
            encoding="utf-8",
            env={"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": "/none", "SHELL": "/bin/sh", "LOGNAME": "nobody"},
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    def finished_days(self) -> list[str]:
        """The days whose outputs are complete."""
        return sorted(path.parent.name for path in self.folder.glob("out/*/_SUCCESS"))


@pytest.fixture
def machine(tmp_path: Path, guard: Path) -> Machine:
    """A machine with yesterday's drop, whenever the test passes midnight."""
    made = Machine(tmp_path / "srv", guard)
    for offset in range(-2, 2):
        made.drop((shanghai() + timedelta(days=offset)).strftime("%Y-%m-%d"))
    return made


def shanghai() -> datetime:
    """The time there, which has no summer time."""
    return datetime.now(UTC) + timedelta(hours=8)


def test_the_page_has_the_recipes() -> None:
    """So that the tests below look at all of them."""
    assert len(blocks("sh")) == 1
    assert len(COMMANDS) == 7


@pytest.mark.parametrize("command", [command for command in COMMANDS if "--date" in command])
def test_a_crontab_line(machine: Machine, command: str) -> None:
    """It scores yesterday's drop, says nothing that cron would mail, and its log has plain lines in UTF-8."""
    before = (shanghai() - timedelta(days=1)).strftime("%Y-%m-%d")
    result = machine.run(command)
    after = (shanghai() - timedelta(days=1)).strftime("%Y-%m-%d")
    (log,) = machine.folder.glob("log/*.log")
    content = log.read_bytes().decode("utf-8")
    assert result.returncode == 0, content
    assert result.stdout + result.stderr == ""
    (day,) = machine.finished_days()
    assert day in {before, after}
    assert f"the date is {day}" in content
    assert "\r" not in content
    assert all(line.isprintable() for line in content.splitlines())
    assert not (machine.folder / "mail").exists()
    if "textfile" in command:
        samples = parse_exposition((machine.folder / "textfile/news.prom").read_bytes())
        assert samples["batchzs_rows_done", (("output", f"{machine.folder}/out/{day}"),)] == NUM_ROWS
    if "latest.json" in command:
        assert json.loads((machine.folder / "out/latest.json").read_bytes())["day"] == day


def test_a_directory_that_grows(machine: Machine) -> None:
    """Every drop is scored by the first night, and what has come since by the next one."""
    (command,) = [command for command in COMMANDS if "--new-files" in command]
    for num_files, day in ((4, None), (5, "2026-12-31"), (5, None)):
        if day is not None:
            machine.drop(day)
        result = machine.run(command)
        assert result.returncode == 0, (machine.folder / "log/all.log").read_text(encoding="utf-8")
        table = pl.read_parquet(machine.folder / "out/all/scores/*.parquet")
        assert (table.height, table["source_file"].n_unique()) == (NUM_ROWS * num_files, num_files)
    assert "generation 2: 1 new file" in (machine.folder / "log/all.log").read_text(encoding="utf-8")


def test_mail_when_a_drop_is_missing(machine: Machine) -> None:
    """The mail has the path that was looked for; no other line of the page mails anything."""
    for path in machine.folder.glob("drops/*"):
        path.unlink()
    (command,) = [command for command in COMMANDS if "mail" in command]
    assert machine.run(command).returncode == 3
    subject, recipient, body = (machine.folder / "mail").read_text(encoding="utf-8").splitlines()[1:]
    assert (subject, recipient) == ("news failed", "ops@example.org")
    assert json.loads(body)["exit_code"] == 3
    assert f"{machine.folder}/drops/news-20" in json.loads(body)["message"]


@pytest.mark.slow
def test_missed_days_are_caught_up_with(machine: Machine) -> None:
    """The loop does each day that is not done, and passes over one whose drop is missing."""
    for day in MISSED:
        if day != MISSED[1]:
            machine.drop(day)
    (loop,) = blocks("sh")
    result = machine.run(loop)
    assert result.returncode == 0, result.stderr
    assert machine.finished_days() == [day for day in MISSED if day != MISSED[1]]
    assert f"{MISSED[1]}: code 3\n" in result.stdout
    assert machine.run(loop.replace(MISSED[0], MISSED[4])).returncode == 0


def test_old_logs_are_removed(machine: Machine) -> None:
    """Only those, and only old ones."""
    for name, age_days in (("news-2026-01-01.log", 40), ("news-2026-02-01.log", 3), ("other.log", 40)):
        path = machine.folder / "log" / name
        path.touch()
        os.utime(path, times=(time.time() - age_days * 86_400,) * 2)
    (command,) = [command for command in COMMANDS if command.startswith("find")]
    assert machine.run(command).returncode == 0
    assert {path.name for path in machine.folder.glob("log/*")} == {"news-2026-02-01.log", "other.log"}
