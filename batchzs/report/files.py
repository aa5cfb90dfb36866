"""Where the page goes, and how it gets there: whole or not at all, and never over what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchzs.durable import publish_bytes
from batchzs.errors import MachineError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.paths import RunPaths


def page_path(paths: RunPaths, target: Path | None) -> Path:
    """Settle which file the page becomes.

    Args:
        paths: the output.
        target: what was asked for; None: the output's own place for it.

    Raises:
        UsageError: it is no file that a page may become.
    """
    if target is None:
        return paths.report
    try:
        path = target.resolve()  # a link is followed, as any program would when it is told to write there
        if path.exists() and not path.is_file():
            what = "is a folder: name a file in it" if path.is_dir() else "is no ordinary file: name one"
            raise UsageError(f"--to: {target} {what}")
        if not path.parent.is_dir():
            raise UsageError(f"--to: there is no folder {path.parent}: make it first, or name another place")
    except OSError as exc:
        raise MachineError(f"--to: {target} cannot be looked at: {exc.strerror}") from exc
    if any(path.is_relative_to(folder.resolve()) for folder in (paths.scores, paths.state)):
        raise UsageError(f"--to: {target} lies among the run's own files: name a place outside scores/ and state/")
    return path


def write_page(paths: RunPaths, path: Path, page: str) -> None:
    """Write the page.

    Raises:
        MachineError: the disk or its permissions are in the way.
    """
    folder = paths.temporary if path == paths.report else path.parent
    try:
        publish_bytes(path, page.encode("utf-8", errors="backslashreplace"), folder)
    except MachineError as exc:
        raise MachineError(f"the page cannot be written ({exc}); --to FILE puts it elsewhere") from exc
