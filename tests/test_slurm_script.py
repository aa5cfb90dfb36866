"""The scripts for Slurm, as text, and what bash makes of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import UsageError
from batchzs.paths import RunPaths
from batchzs.slurm.script import (
    Program,
    SlurmOptions,
    array_script,
    checked_directive,
    checked_prolog,
    checked_words,
    finish_script,
    num_gpus,
)
from batchzs.tasks import Task
from tests.builders import PATIENT, odd_folder

PATHS = RunPaths(Path("/out/news"))


def test_the_scripts_as_a_whole() -> None:
    """Written by hand: every line is there for a reason that the module gives."""
    options = SlurmOptions(
        16,
        4,
        1,
        extra=("--partition=gpu", "--time=8:00:00"),
        finish_extra=("--partition=cpu",),
        prolog="module load x\n",
    )
    program = Program("/venv/bin/python -m batchzs")
    assert array_script(options, PATHS, program, ["/jobs/新闻 1.yaml", "--offline"], [1, 2, 3, 7]) == (
        "#!/bin/bash\n"
        "#SBATCH --job-name=batchzs-news\n"
        "#SBATCH --array=1-3,7%4\n"
        "#SBATCH --requeue\n"
        "#SBATCH --signal=B:USR1@120\n"
        "#SBATCH --output=/out/news/state/slurm/task-%2a-of-16.log\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --gres=gpu:1\n"
        "#SBATCH --partition=gpu\n"
        "#SBATCH --time=8:00:00\n"
        "\n"
        "module load x\n"
        "\n"
        "export BATCHZS_REQUEUE=1  # the run asks to be queued again where its time is up\n"
        "exec /venv/bin/python -m batchzs run '/jobs/新闻 1.yaml' --offline --task \"$SLURM_ARRAY_TASK_ID/16\"\n"
    )
    assert finish_script(options, PATHS, program, ["/jobs/a.yaml", "--tasks", "16"]) == (
        "#!/bin/bash\n"
        "#SBATCH --job-name=batchzs-news-finish\n"
        "#SBATCH --output=/out/news/state/slurm/finish.log\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --partition=gpu\n"
        "#SBATCH --time=8:00:00\n"
        "#SBATCH --partition=cpu\n"
        "\n"
        "module load x\n"
        "\n"
        "exec /venv/bin/python -m batchzs finish /jobs/a.yaml --tasks 16\n"
    )


def test_a_tasks_log_is_named_like_the_task() -> None:
    """What Slurm makes of `%2a` is what batchzs calls the part."""
    for number, total in ((3, 9), (3, 16), (120, 200)):
        pattern = PATHS.slurm_log_name(total)
        name = re.sub(r"%(\d)a", lambda found: f"{number:0{found[1]}d}", pattern)  # noqa: B023 - used at once
        assert name == f"{Task(number, total).name}.log"


def run_script(script: str, folder: Path, **environ: str) -> subprocess.Popen[bytes]:
    """Run a script as Slurm would, with its environment."""
    path = folder / "script.sh"
    path.write_text(script, encoding="utf-8")
    environment = {
        "PATH": f"{folder}:{os.defpath}",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_ARRAY_JOB_ID": "70",
        "SLURM_JOB_ID": "70",
        **environ,
    }
    return subprocess.Popen(["bash", path], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def program_that(folder: Path, lines: str) -> str:
    """Write a program into a folder with an odd name, and give it in the shell's words."""
    path = folder / "pro gram.sh"
    path.write_text(f"#!/bin/bash\n{lines}\n", encoding="utf-8")
    path.chmod(0o755)
    return f"'{path}'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose `scontrol` writes down what it is asked."""
    folder = tmp_path / "a 甲"
    folder.mkdir()
    scontrol = folder / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho \"$@\" >> '{folder}/asked'\n", encoding="utf-8")
    scontrol.chmod(0o755)
    return folder


PLAIN_WORDS = st.text(st.characters(blacklist_characters="\n\r\0", codec="utf-8"), max_size=12)


@PATIENT
@given(words=st.lists(PLAIN_WORDS, max_size=4))
def test_bash_gives_the_program_the_words_as_they_were(words: list[str]) -> None:
    """Spaces, quotes, dollars, stars and Chinese: whatever a path or a `--set` holds."""
    script = array_script(SlurmOptions(5), PATHS, Program("printf '%s\\0'"), words, [3]).replace(
        "exec printf", "printf"
    )
    done = subprocess.run(
        ["bash", "-c", script], env={"SLURM_ARRAY_TASK_ID": "3"}, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.decode().split("\0")[:-1] == ["run", *words, "--task", "3/5"]


def test_the_program_takes_the_shells_place(folder: Path) -> None:
    """So that what Slurm sends to the shell reaches it; and it may ask for its requeue."""
    program = program_that(folder, 'echo "$$ $BATCHZS_REQUEUE $*"')
    process = run_script(array_script(SlurmOptions(4), PATHS, Program(program), ["j.yaml"], [3]), folder)
    out, _ = process.communicate(timeout=60)
    assert out.decode() == f"{process.pid} 1 run j.yaml --task 3/4\n"
    assert process.returncode == 0


#: A run that ends like one of ours: 75 soon after a signal.
STOPPABLE = (
    "trap 'sleep 0.3; echo heard; exit 75' USR1\necho \"begun ${BATCHZS_REQUEUE-unset}\"\nwhile :; do sleep 0.05; done"
)


def launched(folder: Path, lines: str) -> subprocess.Popen[bytes]:
    """A script with a launcher between Slurm and the program."""
    program = Program(program_that(folder, lines), launcher="env A=1")
    script = array_script(SlurmOptions(4), PATHS, program, ["j.yaml"], [3])
    return run_script(script, folder, BATCHZS_REQUEUE="1")


def test_the_shell_before_a_launcher_hands_the_signal_on_and_asks_for_a_requeue(folder: Path) -> None:
    """By the array's id and the task's: the id alone may be the whole array's. The run inside asks for none."""
    process = launched(folder, STOPPABLE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun unset\n"
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=60)
    assert out.decode().splitlines() == ["heard", "stopped with work left: asking Slurm to queue this task again"]
    assert process.returncode == 75
    assert (folder / "asked").read_text(encoding="utf-8") == "requeue 70_3\n"


def test_two_signals_close_together_are_both_waited_out(folder: Path) -> None:
    """The shell's code is the program's, not that of an interrupted wait."""
    process = launched(folder, "trap : USR1\necho begun\nfor _ in 1 2 3 4 5 6 7 8; do sleep 0.1; done\nexit 5")
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(2):
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
    process.communicate(timeout=60)
    assert process.returncode == 5
    assert not (folder / "asked").exists()


def test_a_cancelled_task_does_not_come_back(folder: Path) -> None:
    """TERM reaches all processes by itself and means an end: nothing is handed on, nothing asked for."""
    process = launched(folder, "trap 'echo usr1' USR1\ntrap 'exit 75' TERM\necho begun\nsleep 0.5\nexit 75")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert out == b""
    assert process.returncode == 75
    assert not (folder / "asked").exists()


@pytest.mark.parametrize("code", [0, 1, 8])
def test_another_end_is_passed_on(folder: Path, code: int) -> None:
    """What is done or wrong is not begun again."""
    process = launched(folder, f"exit {code}")
    process.communicate(timeout=60)
    assert process.returncode == code
    assert not (folder / "asked").exists()


def test_an_odd_output_stays_one_value(tmp_path: Path) -> None:
    """Quotes are escaped as sbatch wants them, and a percent sign is doubled for the log's name alone."""
    paths = RunPaths(odd_folder(tmp_path) / '结 "果" 50%')
    script = array_script(SlurmOptions(4), paths, Program("batchzs"), ["a.yaml"], [1])
    log = str(paths.slurm).replace('"', '\\"').replace("%", "%%")
    assert f'#SBATCH --output="{log}/task-%1a-of-4.log"\n' in script
    assert '#SBATCH --job-name="batchzs-结 \\"果\\" 50%"\n' in script


@pytest.mark.parametrize(
    ("output", "message"),
    [("/out/a\nb", "no line break"), ("/out/a\\b", "backslash"), ("/out/a\udcffb", "UTF-8")],
)
def test_outputs_that_slurm_cannot_name_are_refused(output: str, message: str) -> None:
    """Before a job fails without a log."""
    with pytest.raises(UsageError, match=message):
        array_script(SlurmOptions(4), RunPaths(Path(output)), Program("batchzs"), ["a.yaml"], [1])


def test_a_job_with_a_line_break_is_refused() -> None:
    """Its name would end the line."""
    with pytest.raises(UsageError, match="no line break"):
        array_script(SlurmOptions(4), PATHS, Program("batchzs"), ["/a\nb.yaml"], [1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partition=gpu", "expected an option of sbatch"),
        ("", "expected an option of sbatch"),
        ("-p gpu\n-A x", "no line break"),
        ("--array=1-9", "follows from --tasks"),
        ("-p gpu -a1-9", "follows from --tasks"),
        ("-p gpu --array 3", "follows from --tasks"),
    ],
)
def test_lines_that_cannot_stand_behind_sbatch_are_refused(text: str, message: str) -> None:
    """Rather than be passed over by Slurm, or undo the array."""
    with pytest.raises(UsageError, match=message):
        checked_directive(text)


@pytest.mark.parametrize("text", ["--partition=gpu", "-p gpu", "--account=a --qos=b", '--comment="a #b"', "-A x"])
def test_other_lines_are_the_users(text: str) -> None:
    """As they are."""
    assert checked_directive(text) == text


def test_what_slurm_would_not_see_in_a_prolog_is_refused() -> None:
    """It reads no directive behind the first command."""
    assert checked_prolog("module load a\n# a comment\n") == "module load a\n# a comment\n"
    with pytest.raises(UsageError, match="use --sbatch"):
        checked_prolog("module load a\n#SBATCH -p gpu\n")


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "apptainer exec 'x"])
def test_a_launcher_is_words(text: str) -> None:
    """On one line, and whole ones."""
    with pytest.raises(UsageError, match="--launcher"):
        checked_words("--launcher", text)


@pytest.mark.parametrize(
    ("device", "asked", "expected"),
    [
        ("auto", None, 1),
        ("auto", 0, 0),
        ("cuda", None, 1),
        ("cuda", 3, 3),
        ("cuda:1", 2, 2),
        ("all", 4, 4),
        ("cpu", 0, 0),
    ],
)
def test_gpus_follow_from_the_device(device: str, asked: int | None, expected: int) -> None:
    """A device of the job calls for one; the user may know better."""
    assert num_gpus(device, asked) == expected


@pytest.mark.parametrize(
    ("device", "asked", "message"),
    [
        ("cpu", 1, "engine.device: cpu uses none"),
        ("all", None, "say how many with --gpus"),
        ("cuda:1", None, "numbered from 0 within the task"),
        ("cuda:2", 2, "a task is given 2"),
        ("cuda", 0, "a task is given 0"),
    ],
)
def test_contradicting_gpus_are_refused(device: str, asked: int | None, message: str) -> None:
    """Here, and not on every node."""
    with pytest.raises(UsageError, match=message):
        num_gpus(device, asked)
