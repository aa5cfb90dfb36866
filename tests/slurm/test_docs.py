"""What docs/slurm.md shows is what works: its commands, in their order, on a cluster."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.slurm.lab import SlurmLab

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/slurm.md").read_text(encoding="utf-8")
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What this machine may lack: environment modules, a container's command (which here contains nothing), and a network
#: for pip.
STUBS = {
    "module": "",
    "apptainer": 'while [ "$1" != batchzs.sif ]; do shift; done; shift; export INSIDE=1; exec "$@"',
    "python3": 'echo "python3 $*"; mkdir -p .venv/bin; ln -sf "$(command -v python3)" .venv/bin/pip',
    "batchzs": f'exec {sys.executable} -m batchzs "$@"',
}


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Path) -> Path:
    """A folder with the job that the page speaks of, of forty rows."""
    (tmp_path / "jobs").mkdir()
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    rows = "".join(f"{number},新闻标题{number}\n" for number in range(40))
    (tmp_path / "news.csv").write_text(f"id,text\n{rows}", encoding="utf-8")
    job = {
        "input": {"path": "../news.csv", "text": "text"},
        "labels": ["财经", "体育"],
        "model": {"path": str(checkpoint)},
        "output": {"path": "../out/news", "shard_rows": 10},
    }
    (tmp_path / "jobs/news.yaml").write_text(yaml.safe_dump(job, allow_unicode=True), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name, lines in STUBS.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
        path.chmod(0o755)
    return tmp_path


def test_the_recipes(lab: SlurmLab, folder: Path) -> None:
    """Each block in its turn, in one folder; each submission comes to its end, and after it another run begins."""
    environment = {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "BATCHZS_TEST_HOOK": json.dumps({"stand_in": True}),
        **lab.environment,
    }
    blocks = SHELL_BLOCK.findall(TEXT)
    assert len(blocks) >= 8
    num_submitted = 0
    for block in blocks:
        if "--submit" in block:
            shutil.rmtree(folder / "out", ignore_errors=True)
        # Sixteen tasks for four shards would only take longer than four.
        block = block.replace("--tasks 16", "--tasks 4")  # noqa: PLW2901 - what is run
        done = subprocess.run(
            ["sh", "-e", "-c", block], cwd=folder, env=environment, capture_output=True, check=False, encoding="utf-8"
        )
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        if "--submit" in block:
            num_submitted += 1
            lab.wait_until(lambda: not lab.command("squeue", "-h").strip())
            logs = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("out/news/state/slurm/*.log")}
            assert (folder / "out/news/_SUCCESS").exists(), logs
            assert "rows        40 in 4 shards" in logs["finish.log"]
    assert num_submitted == 6


def test_the_page_names_every_option() -> None:
    """An option of `batchzs slurm` that nobody finds is of no use."""
    from batchzs.commands.slurm import slurm

    names = {name for option in slurm.params for name in option.opts if name.startswith("--")}
    assert {name for name in names if name not in TEXT} <= {"--log-format"}
