"""A Slurm of this machine's own, and jobs submitted to it through `batchzs slurm`.

Runs with `-m slurm -n 0`: there is one cluster, and the tests take turns.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# The integration tests' jobs and folders are these tests' too.
from tests.integration.conftest import (  # noqa: F401 - fixtures, found by their names
    checkpoint,
    finished,
    guard,
    standard,
    workshop,
)
from tests.slurm.lab import SlurmLab, install, missing_programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Workshop

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that none is run by accident."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session")
def lab() -> Iterator[SlurmLab]:
    """The cluster, up while the tests run."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail("there is one cluster: run these tests with -n 0")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of one's own needs root")
    if missing_programs():
        if shutil.which("apt-get") is None:
            pytest.skip(f"no Slurm on this machine, and no apt to get it: {', '.join(missing_programs())} missing")
        try:
            install()
        except subprocess.CalledProcessError as exc:
            pytest.skip(f"no Slurm on this machine, and apt does not get it: {exc.stderr[-300:]!r}")
    folder = Path(tempfile.mkdtemp(prefix="batchzs-slurm-"))  # short: a socket's path is
    made = SlurmLab(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Submitted:
    """Two jobs in the queue."""

    array: str
    closing: str


@dataclass(frozen=True)
class Cluster:
    """A folder with a job, and the cluster that it is submitted to."""

    lab: SlurmLab
    shop: Workshop

    def submit(self, *options: str | Path, hook: dict[str, Any] | None = None) -> Submitted:
        """Submit the standard job as `batchzs slurm` does; a slow model where the hook says so."""
        ended = self.shop.run(
            *("slurm", self.shop.standard_job, "--submit", *options),
            hook={"stand_in": True, **(hook or {})},
            extra=self.lab.environment,
        )
        assert ended.code == 0, ended.stderr
        found = re.search(r"^array +(\d+): .*\nclosing +(\d+)", ended.stdout)
        assert found is not None, ended.stdout
        return Submitted(found[1], found[2])

    def wait_for_end(self, submitted: Submitted) -> None:
        """Wait until the closing step has ended."""
        self.lab.wait_for_end(submitted.array, submitted.closing)

    def log(self, name: str) -> str:
        """What a task has printed so far, or the closing step."""
        path = self.shop.state / "slurm" / f"{name}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def wait_for_scoring(self, *names: str) -> None:
        """Wait until tasks are inside their work."""
        self.lab.wait_until(lambda: all("scoring in" in self.log(name) for name in names))

    def exit_code(self, job: str) -> int:
        """How a job ended that is over."""
        return int(self.lab.detail(job, "ExitCode").partition(":")[0])


@pytest.fixture
def cluster(lab: SlurmLab, standard: Workshop) -> Iterator[Cluster]:  # noqa: F811 - the fixture
    """The standard job in a folder with an odd name, and an idle cluster; nothing is left in its queue."""
    lab.wait_until(lab.is_idle)
    yield Cluster(lab, standard)
    lab.cancel_everything()
