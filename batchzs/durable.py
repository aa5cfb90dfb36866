"""Write files that are whole or absent, whatever happens in between, and hold a lock that dies with its process.

A file is written under a temporary name on the same file system, synced, renamed, and its folder synced: after a
power failure the name points to all of the bytes or does not exist. Permissions are those that the umask gives.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from batchzs.errors import LockedError, MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)


def make_folders(*folders: Path) -> None:
    """Make folders, with their parents, where they are not there yet.

    Raises:
        MachineError: a folder cannot be made.
    """
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise MachineError(f"{folder}: cannot make this folder: {exc.strerror} (output.path in the job)") from exc


@contextmanager
def publish(path: Path, temporary_folder: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing; when the block ends well, it becomes `path`, durably and at once.

    Args:
        path: the name to get; what had it before is replaced.
        temporary_folder: on the same file system.

    Raises:
        MachineError: the disk is full, read-only, or otherwise in the way. Nothing stays behind.
    """
    temporary = temporary_folder / f"{path.name}.{os.getpid()}.tmp"
    try:
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as exc:
        raise MachineError(
            f"{path}: cannot be written: {exc.strerror or exc}. Free space or mend the permissions; the same command "
            "goes on from what is published"
        ) from exc


def publish_bytes(path: Path, content: bytes, temporary_folder: Path) -> None:
    """Give `path` this content, all or nothing; see `publish`."""
    with publish(path, temporary_folder) as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def hold_lock(path: Path, holder: str) -> Iterator[bool]:
    """Hold a kernel lock on a file while the block runs; the kernel drops it when the process ends, however it ends.

    On a file system that has no locks the run goes on with a warning: shards are published whole and with the same
    bytes, so that a double run wastes time and does no harm.

    Args:
        path: the lock file, made if need be and never removed: a removed one could be locked twice.
        holder: written into the file, for people only.

    Yields:
        Whether the lock is held; False where there are no locks, and another process may be at work as well.

    Raises:
        LockedError: another process holds it.
        MachineError: the file cannot be opened.
    """
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as exc:
        raise MachineError(f"{path}: cannot be opened: {exc.strerror}") from exc
    with file:
        is_held = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
                file.seek(0)
                raise LockedError(
                    f"{path.parent.parent}: another run holds this output ({file.read().strip()})"
                ) from exc
            is_held = False
            logger.warning(
                "%s: this file system has no locks (%s): see that only one run writes here", path, exc.strerror
            )
        else:
            file.truncate(0)
            file.write(holder + "\n")
            file.flush()
        yield is_held
