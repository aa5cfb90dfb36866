"""Write files that are whole or absent, whatever happens in between, and hold a lock that dies with its process.

A file is written under a temporary name on the same file system, synced, renamed, and its folder synced: after a
power failure the name points to all of the bytes or does not exist. Permissions are those that the umask gives.

Nothing is written through a symbolic link: a name that is to be replaced is replaced, link or not, and where a file is
opened to be added to, a link is refused. Otherwise whoever can put a link into an output could have any file changed
that the run's user may write.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

from batchzs.errors import LockedError, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)

#: So much of a lock file is shown: what batchzs writes there is shorter, and others may have written it.
_HOLDER_BYTES = 200
_LOCK_POLL_S = 0.2
#: How file systems say that they have no hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


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


def refuse_links(*paths: Path) -> None:
    """See that none of these names is a symbolic link; names that are not there yet are fine.

    Raises:
        MachineError: one is.
    """
    for path in paths:
        if path.is_symlink():
            raise _link_error(path)


def open_no_link(path: str, flags: int) -> int:
    """Open a file that is itself no symbolic link: an `opener` for `open`, with the umask's permissions.

    Raises:
        MachineError: the name is a link.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise _link_error(path) from exc
        raise


def _link_error(path: Path | str) -> MachineError:
    return MachineError(
        f"{path}: is a symbolic link, and batchzs writes through none inside an output: remove it (output.path itself "
        "may be a link)"
    )


@contextmanager
def publish(path: Path, temporary_folder: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing; when the block ends well, it becomes `path`, durably and at once.

    Args:
        path: the name to get; what had it before is replaced.
        temporary_folder: on the same file system.

    Raises:
        MachineError: the disk is full, read-only, or otherwise in the way. Nothing stays behind.
    """
    with _temporary_name(path, temporary_folder) as temporary:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)


@contextmanager
def _temporary_name(path: Path, temporary_folder: Path) -> Iterator[Path]:
    """A name for what is to become `path`; what still has it when the block ends is removed."""
    # A name that nobody else has: two machines may share a process id, and on a file system without locks an output.
    temporary = temporary_folder / f"{path.name}.{_random_name()}.tmp"
    try:
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        where = f" ({exc.filename})" if exc.filename else ""
        raise MachineError(
            f"{path}: cannot be written: {exc.strerror or exc}{where}. Free space or mend the permissions; the same "
            "command goes on from what is published"
        ) from exc


def publish_bytes(path: Path, content: bytes, temporary_folder: Path) -> None:
    """Give `path` this content, all or nothing; see `publish`."""
    with publish(path, temporary_folder) as file:
        file.write(content)


def publish_new(path: Path, content: bytes, temporary_folder: Path) -> bool:
    """Give `path` this content, all or nothing, unless the name is taken: of several the first one wins, locks or not.

    Returns:
        Whether the name is this content's; False where something else had it before.

    Raises:
        MachineError: the disk is full, read-only, or otherwise in the way. Nothing stays behind.
    """
    with _temporary_name(path, temporary_folder) as temporary:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        is_first = _take_name(temporary, path)
        sync_folder(path.parent)
    return is_first


def _take_name(temporary: Path, path: Path) -> bool:
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return path.samefile(temporary)  # over a network a link may be made and the answer lost
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        # A file system without hard links: an instant between looking and renaming remains.
        if path.exists() or path.is_symlink():
            return False
        temporary.replace(path)
    return True


def move(path: Path, target: Path) -> None:
    """Give a whole file another name on the same file system, durably.

    Raises:
        FileNotFoundError: it is not there.
        MachineError: the disk is in the way.
    """
    try:
        path.replace(target)
        sync_folder(target.parent)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise MachineError(f"{target}: cannot be written: {exc.strerror}. Mend the permissions and try again") from exc


def remove(path: Path) -> None:
    """Remove a file where it is there.

    Raises:
        MachineError: it is there and cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        raise MachineError(
            f"{path}: cannot be removed: {exc.strerror}. Mend the permissions; the same command goes on from what is "
            "published"
        ) from exc


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _random_name() -> str:
    # What `secrets` would give, without the hashes and sockets that it loads for every command.
    return os.urandom(8).hex()


def lock_holder() -> str:
    """What a lock file says of who holds it."""
    return f"process {os.getpid()} on {os.uname().nodename} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock file that is open. A process that inherits the descriptor holds the lock as well, until it ends."""

    is_held: bool  # False where there are no locks, and another process may be at work as well
    descriptor: int


@contextmanager
def hold_lock(path: Path, holder: str, *, shared: bool = False, part: str = "") -> Iterator[HeldLock]:
    """Hold a kernel lock on a file while the block runs; the kernel drops it when the process ends, however it ends.

    On a file system that has no locks the run goes on with a warning: shards are published whole and with the same
    bytes, so that a double run wastes time and does no harm.

    Args:
        path: the lock file, made if need be and never removed: a removed one could be locked twice.
        holder: written into the file, for people only.
        shared: others may hold it in the same way at the same time, and none in the other.
        part: which part of the output the lock stands for, in the message to who comes second; empty: all of it.

    Yields:
        The lock.

    Raises:
        LockedError: another process holds it.
        MachineError: the file cannot be opened, or is a symbolic link.
    """
    try:
        file = open(path, "a+b", buffering=0, opener=open_no_link)  # noqa: SIM115 - closed by the `with` below
    except OSError as exc:
        raise MachineError(f"{path}: cannot be opened: {exc.strerror}") from exc
    with file:
        is_held = True
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
                file.seek(0)
                other = file.read(_HOLDER_BYTES).decode("utf-8", errors="replace").strip()
                raise LockedError(
                    f"{path.parents[2 if part else 1]}: another run holds {part or 'this output'} ({other})"
                ) from exc
            is_held = False
            logger.warning(
                "%s: this file system has no locks (%s): see that only one run writes here", path, exc.strerror
            )
        else:
            with suppress(OSError):  # on a full disk the lock is held as well without saying by whom
                file.truncate(0)
                file.write(f"{holder}\n".encode())
        yield HeldLock(is_held, file.fileno())


@contextmanager
def wait_for_lock(path: Path, holder: str, check: Callable[[], None]) -> Iterator[HeldLock]:
    """Hold a kernel lock as `hold_lock` does, and wait while another process holds it.

    Args:
        path: the lock file.
        holder: written into the file, for people only.
        check: called while waiting; what it raises ends the wait.
    """
    while True:
        check()
        with ExitStack() as stack:
            try:
                lock = stack.enter_context(hold_lock(path, holder))
            except LockedError:
                pass
            else:
                yield lock
                return
        time.sleep(_LOCK_POLL_S)
