"""What a command finds around it, made up: an `sbatch` on PATH, and a hub model in ModelScope's cache."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Workshop

HUB_ID = "damo/nlp_tiny.v1_zero-shot"
#: Answers with a number, one more each time, and writes down what it was given.
SBATCH = """#!/bin/sh
echo "$@" >> "{folder}/asked"
/usr/bin/wc -l < "{folder}/asked"
"""


def write_sbatch(folder: Path, text: str) -> None:
    """Make a program."""
    path = folder / "sbatch"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def cache_model(workshop: Workshop) -> Path:
    """Lay the checkpoint out as ModelScope's cache has a hub model; return the snapshot's directory."""
    snapshot = workshop.folder / "缓存" / "models" / HUB_ID.replace("/", "--") / "snapshots" / "master"
    shutil.copytree(workshop.model, snapshot)
    return snapshot
