"""docs/tutorial.md: every command of it is run, in order, as a newcomer does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_from_a_csv_to_a_report(tmp_path: Path) -> None:
    """Each command succeeds; at the end there is a job file, a report that knows the truth, and another decision."""
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("batchzs", "-m batchzs "), ("python", "")):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n', encoding="utf-8")
        path.chmod(0o755)
    result = subprocess.run(
        ["bash", "-euxc", "".join(BLOCKS)],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        encoding="utf-8",
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert "这篇文章的标题是财经" in result.stdout
    assert "everything is as it should be" in result.stdout
    report = (tmp_path / "out/mine/report.html").read_text(encoding="utf-8")
    assert "9 scored rows have a true label, 1 have none" in report
    assert (tmp_path / "out/mine-sure/_SUCCESS").exists()
    assert "其他" in result.stdout
