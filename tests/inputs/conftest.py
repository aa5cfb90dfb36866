"""Ways to write odd input files, and to read them whole, for all tests of the input stages."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.read import read_rows
from batchzs.inputs.rows import RowSpan
from batchzs.inputs.spec import ReadSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from batchzs.inputs.rows import InputSet, ShardRows

# On a busy machine a file may take longer than hypothesis expects of a function.
settings.register_profile("files", deadline=None)
settings.load_profile("files")

_SPEC = ReadSpec(
    path="",
    format=None,
    text=("text",),
    separator="\n",
    keep=(),
    partitions="drop",
    encoding="utf-8",
    delimiter=None,
    quote='"',
    header=True,
    null_values=(),
    on_bad_rows="quarantine",
)


class Reading:
    """Makes specs, and takes input files through the stages."""

    def spec(self, path: Path | str | tuple[str, ...], **changes: Any) -> ReadSpec:
        """Return a spec with a text column `text` and no carried ones, unless changed."""
        return replace(_SPEC, path=path if isinstance(path, tuple) else str(path), **changes)

    def frozen(self, path: Path | str | tuple[str, ...], **changes: Any) -> InputSet:
        """Find and freeze."""
        spec = self.spec(path, **changes)
        return freeze_inputs(spec, find_files(spec, []))

    def rows(self, path: Path | str | tuple[str, ...], **changes: Any) -> ShardRows:
        """Find, freeze, and read every row."""
        frozen = self.frozen(path, **changes)
        spans = [RowSpan(index, 0, file.num_rows) for index, file in enumerate(frozen.files)]
        return read_rows(self.spec(path, **changes), frozen, spans)

    def write(self, path: Path, content: str | bytes, /, **changes: Any) -> ShardRows:
        """Write a file and read every row of it."""
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.rows(path, **changes)


@pytest.fixture(scope="session")
def reading() -> Reading:
    """Take files through the stages."""
    return Reading()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder whose path is as odd as users' paths are."""
    odd = tmp_path / "新闻 [2024] *a? {b} 'c'"
    odd.mkdir()
    return odd


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder for tests that write many files, gone afterwards."""
    path = tmp_path_factory.mktemp("scratch")
    yield path
    shutil.rmtree(path)
