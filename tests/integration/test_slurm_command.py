"""`batchzs slurm` without a Slurm: what is written, what is handed to `sbatch`, and what is refused.

What a real one makes of it is in `tests/slurm`.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Ended, Workshop

#: Answers with a number, one more each time, and writes down what it was given.
SBATCH = """#!/bin/sh
echo "$@" >> "{folder}/asked"
/usr/bin/wc -l < "{folder}/asked"
"""


@pytest.fixture
def slurm(standard: Workshop) -> Path:
    """A folder with an `sbatch` that takes everything."""
    folder = standard.folder.parent / "bin"
    folder.mkdir()
    write_sbatch(folder, SBATCH.format(folder=folder))
    return folder


def write_sbatch(folder: Path, text: str) -> None:
    """Make a program."""
    path = folder / "sbatch"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def submit(shop: Workshop, slurm: Path, *options: str | Path) -> Ended:
    """Submit the standard job in four parts."""
    # Not the machine's own Slurm, should it have one.
    path = {"PATH": str(slurm)}
    return shop.run("slurm", shop.standard_job, "--tasks", "4", "--submit", *options, extra=path)


def asked(slurm: Path) -> list[str]:
    """What `sbatch` was given so far."""
    path = slurm / "asked"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def array_line(shop: Workshop) -> str:
    """Which parts the script submitted last is for."""
    script = (shop.state / "slurm/array.sbatch").read_text(encoding="utf-8")
    return next(line for line in script.splitlines() if line.startswith("#SBATCH --array"))


def test_an_array_and_the_step_after_it_are_submitted(standard: Workshop, slurm: Path) -> None:
    """Two scripts, kept where the logs will lie; the second one waits for the whole first one, however it ends."""
    ended = submit(standard, slurm, "--max-running", "2")
    assert ended.code == 0, ended.stderr
    folder = standard.state / "slurm"
    assert asked(slurm) == [
        f"--parsable {folder}/array.sbatch",
        f"--parsable --dependency=afterany:1 {folder}/finish.sbatch",
    ]
    assert array_line(standard) == "#SBATCH --array=1-4%2"
    assert ended.stdout.splitlines()[:2] == ["array       1: all 4 parts", "closing     2, after it"]
    log = (folder / "submit.log").read_text(encoding="utf-8")
    assert "submitted array 1: all 4 parts" in log
    assert "submitted the closing step 2" in log
    status = standard.run("status", standard.output)
    assert status.code == 2, status.stderr  # nothing has begun


@pytest.mark.slow
def test_only_what_is_unfinished_is_submitted_again(standard: Workshop, slurm: Path) -> None:
    """By the shards that are there, for whatever number of parts is asked for; nothing where all is done."""
    for task in ("1/4", "3/4"):
        assert standard.run("run", standard.standard_job, "--task", task).code == 0
    ended = submit(standard, slurm)
    assert ended.code == 0, ended.stderr
    assert array_line(standard) == "#SBATCH --array=2,4"
    assert "array       1: 2 of 4 parts are unfinished: 2, 4" in ended.stdout
    (standard.output / "scores/part-00001.parquet").write_bytes(b"torn")
    for index in (1, 3, 5):
        assert standard.run("run", standard.standard_job, "--task", f"{index + 1}/8").code == 0
    other = submit(standard, slurm, "--tasks", "16")  # shard 7 alone is missing
    assert other.code == 0, other.stderr
    assert array_line(standard) == "#SBATCH --array=8"
    assert standard.run("run", standard.standard_job).code == 0
    count = len(asked(slurm))
    done = submit(standard, slurm)
    assert (done.code, done.stdout) == (0, "nothing to submit: the job is finished\n")
    assert len(asked(slurm)) == count
    written = standard.run("slurm", standard.standard_job, "--tasks", "4")
    assert (written.code, written.stdout) == (0, "")
    assert "nothing to write: the job is finished" in written.stderr


def test_the_end_alone_is_submitted_where_it_alone_is_missing(done: Workshop, tmp_path: Path) -> None:
    """The last task was killed between its shard and the end."""
    (done.output / "_SUCCESS").unlink()
    write_sbatch(tmp_path, SBATCH.format(folder=tmp_path))
    ended = submit(done, tmp_path)
    assert ended.code == 0, ended.stderr
    assert asked(tmp_path) == [f"--parsable {done.state}/slurm/finish.sbatch"]
    assert "none: every shard is there" in ended.stdout


def test_a_changed_job_is_refused_before_it_queues(done: Workshop, tmp_path: Path) -> None:
    """Each task would be refused; and other labels are not done because the old ones are."""
    write_sbatch(tmp_path, SBATCH.format(folder=tmp_path))
    done.job(labels=["甲", "乙"])
    ended = submit(done, tmp_path)
    assert ended.code == 6, ended.stderr
    assert "labels" in ended.stderr
    assert submit(done, tmp_path, "--limit", "10").code == 6
    assert asked(tmp_path) == []


def test_without_sbatch_or_with_its_refusal(standard: Workshop, slurm: Path) -> None:
    """Code 8, Slurm's own words, and what to do."""
    write_sbatch(slurm, "#!/bin/sh\necho 'sbatch: error: Invalid job array specification' >&2\nexit 1\n")
    ended = submit(standard, slurm)
    assert ended.code == 8, ended.stderr
    assert "Slurm refuses it: sbatch: error: Invalid job array specification; fewer --tasks" in ended.stderr
    (slurm / "sbatch").unlink()
    ended = submit(standard, slurm)
    assert ended.code == 8, ended.stderr
    assert "sbatch: not found on PATH" in ended.stderr


def test_a_closing_step_that_is_refused(standard: Workshop, slurm: Path) -> None:
    """The array is in the queue by then, and the message says so."""
    write_sbatch(slurm, '#!/bin/sh\ncase "$*" in *dependency*) echo no >&2; exit 1;; esac\necho "7;cluster"\n')
    ended = submit(standard, slurm)
    assert ended.code == 8, ended.stderr
    assert "The array is submitted all the same, as 7" in ended.stderr


def test_the_script_on_standard_output_runs(standard: Workshop) -> None:
    """What it says does a part; relative paths were written out, and the folder of the logs is there."""
    relative = ["--set", "output.path=anderswo/出"]
    ended = standard.run("slurm", standard.standard_job.name, "--tasks", "4", "--limit", "60", *relative)
    assert ended.code == 0, ended.stderr
    output = standard.folder / "anderswo/出"
    assert (output / "state/slurm").is_dir()
    environment = standard.environment({"stand_in": True}, {"SLURM_ARRAY_TASK_ID": "2"})
    subprocess.run(["bash", "-c", ended.stdout], cwd="/", env=environment, check=True, capture_output=True, timeout=120)
    assert list(standard.shards(output)) == ["part-00001.parquet"]
    assert sys.executable in ended.stdout


def test_new_files_call_for_every_part(done: Workshop) -> None:
    """Where everything is done and files have come since, each part may get some, and is told so."""
    command = ("slurm", done.standard_job, "--tasks", "3", "--new-files")
    assert "the job is finished" in done.run(*command).stderr
    (done.input / "part-99.csv").write_text("id,text\n1,新的\n", encoding="utf-8")
    script = done.run(*command)
    assert script.code == 0, script.stderr
    assert "#SBATCH --array=1-3\n" in script.stdout
    assert " --new-files --task " in script.stdout
    refused = done.run(*command, "--limit", "5")
    assert (refused.code, "--new-files scores every row" in refused.stderr) == (2, True)


def test_scripts_are_written_to_files(standard: Workshop) -> None:
    """With the line that submits them, which a shell can read."""
    ended = standard.run("slurm", standard.standard_job, "--tasks", "4", "--to", "夜 1.sbatch")
    assert ended.code == 0, ended.stderr
    assert (standard.folder / "夜 1.sbatch").read_text(encoding="utf-8").startswith("#!/bin/bash\n#SBATCH")
    assert "exec" in (standard.folder / "夜 1.sbatch-finish").read_text(encoding="utf-8")
    assert "sbatch --dependency=afterany:${id%;*} '夜 1.sbatch-finish'" in ended.stdout
    nowhere = standard.run("slurm", standard.standard_job, "--tasks", "4", "--to", "no/such/folder")
    assert nowhere.code == 8, nowhere.stderr


def test_prologs_launcher_and_program(standard: Workshop) -> None:
    """Lines and files in their order; inside a launcher batchzs goes by its name."""
    (standard.folder / "环境.sh").write_text("module load a\nexport B=1\n", encoding="utf-8")
    options = ["--prolog", "ulimit -n 4096", "--prolog", "环境.sh", "--launcher", "apptainer exec --nv 'a b.sif'"]
    ended = standard.run("slurm", standard.standard_job, "--tasks", "4", *options)
    assert ended.code == 0, ended.stderr
    assert "\nulimit -n 4096\nmodule load a\nexport B=1\n\n" in ended.stdout
    assert "\napptainer exec --nv 'a b.sif' batchzs run " in ended.stdout
    ended = standard.run("slurm", standard.standard_job, "--tasks", "4", "--program", "/opt/bin/batchzs")
    assert "\nexec /opt/bin/batchzs run " in ended.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Missing option '--tasks'"),
        (("--tasks", "0"), "0 is not in the range"),
        (("--tasks", "4", "--submit", "--to", "x"), "--submit and --to exclude each other"),
        (("--tasks", "4", "--gpus", "1"), "engine.device: cpu uses none"),
        (("--tasks", "4", "--sbatch", "partition"), "expected an option of sbatch"),
        (("--tasks", "4", "--finish-sbatch", "--array=1"), "follows from --tasks"),
        (("--tasks", "4", "--prolog", "#SBATCH -p x"), "use --sbatch"),
        (("--tasks", "4", "--launcher", "a 'b"), "which the shell cannot read"),
        (("--tasks", "4", "--seed", "1"), "--seed goes with --sample"),
        (("--tasks", "4", "--set", "output.path=a\\b"), "backslash"),
    ],
)
def test_wrong_options_are_refused(standard: Workshop, options: tuple[str, ...], message: str) -> None:
    """With code 2, before anything is made or submitted."""
    ended = standard.run("slurm", standard.standard_job, *options)
    assert ended.code == 2, ended.stderr
    assert message in ended.stderr
    assert not standard.output.exists()
