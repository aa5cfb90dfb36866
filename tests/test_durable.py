"""Files are whole or absent, and a lock lives as long as its process."""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import subprocess
import sys
from typing import IO, TYPE_CHECKING

import pytest

from batchzs import durable
from batchzs.durable import hold_lock, make_folders, move, publish, publish_bytes, publish_new
from batchzs.errors import LockedError, MachineError
from tests.builders import odd_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLD = """
import sys, time
from pathlib import Path
from batchzs.durable import hold_lock
with hold_lock(Path(sys.argv[1]), "process 1 on node1"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where files are published; temporary ones go beside it."""
    (tmp_path / "tmp").mkdir()
    return odd_folder(tmp_path)


def leftovers(folder: Path) -> list[str]:
    """What lies in the folder and in the temporary one."""
    return sorted(path.name for place in (folder, folder.parent / "tmp") for path in place.iterdir())


def test_the_name_appears_when_the_block_ends(folder: Path) -> None:
    """While it is being written there is no such file; afterwards it has all bytes and nothing is left over."""
    path = folder / "分片 0.parquet"
    with publish(path, folder.parent / "tmp") as file:
        file.write(b"first ")
        assert not path.exists()
        file.write(b"second")
    assert path.read_bytes() == b"first second"
    assert leftovers(folder) == [path.name]


@pytest.mark.parametrize("error", [ValueError("a fault"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_inside_leaves_what_was_there(folder: Path, error: BaseException) -> None:
    """All or nothing, and the exception goes on as it is."""
    path = folder / "a"
    publish_bytes(path, b"before", folder.parent / "tmp")

    def write() -> None:
        with publish(path, folder.parent / "tmp") as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    assert caught.value is error
    assert path.read_bytes() == b"before"
    assert leftovers(folder) == ["a"]


def test_of_two_new_files_the_first_one_stays(folder: Path) -> None:
    """Without any lock: the name is taken once, and nothing is left over."""
    path = folder / "run.json"
    assert publish_new(path, b"first", folder.parent / "tmp")
    assert not publish_new(path, b"second", folder.parent / "tmp")
    assert path.read_bytes() == b"first"
    assert leftovers(folder) == ["run.json"]


def test_of_many_processes_one_publishes(folder: Path) -> None:
    """At the same time: one is told that it was the first, and the file is its own."""
    program = """
import sys
from pathlib import Path
from batchzs.durable import publish_new
sys.stdin.readline()
print(publish_new(Path(sys.argv[1]), sys.argv[2].encode(), Path(sys.argv[3])))
"""
    arguments = [sys.executable, "-c", program, str(folder / "a")]
    processes = [
        subprocess.Popen(
            [*arguments, f"{number}", str(folder.parent / "tmp")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].strip() for process in processes]
    assert sorted(said) == ["False", "False", "False", "True"]
    assert (folder / "a").read_text() == str(said.index("True"))
    assert leftovers(folder) == ["a"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_new_file_where_there_are_no_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """exFAT, SMB and others: looking first is all that is left."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    test_of_two_new_files_the_first_one_stays(folder)


def test_a_link_that_was_made_and_not_answered_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over NFS a repeated request finds its own link: that is no other process's file."""
    link = os.link

    def link_and_lose(path: Path, target: Path) -> None:
        link(target, path)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr("pathlib.Path.hardlink_to", link_and_lose)
    assert publish_new(folder / "a", b"first", folder.parent / "tmp")
    assert (folder / "a").read_bytes() == b"first"


def test_a_new_file_on_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for any other file: one message, nothing left over; moving what is not there is for the caller to know."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    with pytest.raises(MachineError, match="No space left"):
        publish_new(folder / "a", b"first", folder.parent / "tmp")
    assert leftovers(folder) == []
    with pytest.raises(FileNotFoundError):
        move(folder / "a", folder / "b")


class FullDisk(io.BufferedWriter):
    """A file on a disk that fills up."""

    def write(self, content: object) -> int:
        """Fail as the kernel does."""
        del content
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_a_machine_error_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case R7: the message says what to do, and the old content stays."""
    path = folder / "a"
    publish_bytes(path, b"before", folder.parent / "tmp")

    def full(path: Path, _: str) -> IO[bytes]:
        return FullDisk(io.FileIO(path, "w"))

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.open", full)
        with pytest.raises(MachineError) as caught:
            publish_bytes(path, b"after", folder.parent / "tmp")
    assert str(caught.value).startswith(f"{path}: cannot be written: No space left on device")
    assert path.read_bytes() == b"before"
    assert leftovers(folder) == ["a"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_error_of_any_step_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Quotas are often reported only when a file is synced."""

    def fail(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr("os.fsync" if step == "fsync" else "pathlib.Path.replace", fail)
    with pytest.raises(MachineError, match="cannot be written"):
        publish_bytes(folder / "a", b"after", folder.parent / "tmp")
    monkeypatch.undo()
    assert leftovers(folder) == []


def test_a_missing_temporary_folder_is_a_machine_error(folder: Path) -> None:
    """An output that someone removed under a run."""
    with pytest.raises(MachineError, match="cannot be written: No such file"):
        publish_bytes(folder / "a", b"", folder / "absent")


def test_bytes_are_on_disk_before_the_name_is_and_the_name_before_it_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure meets all of the file or none of it: sync, rename, sync of the folder, in this order."""
    steps: list[str] = []
    real_fsync, real_sync_folder = os.fsync, durable.sync_folder

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            steps.append(f"file synced, name is {'there' if (folder / 'a').exists() else 'not there'}")
        real_fsync(descriptor)

    def sync_folder(path: Path) -> None:
        steps.append(f"folder synced, name is {'there' if (folder / 'a').exists() else 'not there'}")
        assert path == folder
        real_sync_folder(path)

    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr(durable, "sync_folder", sync_folder)
    publish_bytes(folder / "a", b"content", folder.parent / "tmp")
    assert steps == ["file synced, name is not there", "folder synced, name is there"]


@pytest.fixture
def umask() -> Iterator[None]:
    """A umask that lets the group write, for the time of a test."""
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_files_and_folders_get_the_umasks_permissions(folder: Path) -> None:
    """A colleague reads the results: no temporary file's 0600 stays on them."""
    make_folders(folder / "a" / "b")
    publish_bytes(folder / "a" / "file", b"", folder.parent / "tmp")
    assert stat.S_IMODE((folder / "a" / "file").stat().st_mode) == 0o664
    assert stat.S_IMODE((folder / "a" / "b").stat().st_mode) == 0o775


def test_folders_that_are_there_are_fine_and_files_in_their_place_are_named(folder: Path) -> None:
    """A run that goes on finds its folders."""
    make_folders(folder / "a" / "b", folder / "a")
    make_folders(folder / "a" / "b")
    (folder / "file").write_bytes(b"")
    with pytest.raises(MachineError, match=r"cannot make this folder: .* \(output\.path in the job\)"):
        make_folders(folder / "file" / "scores")


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / "run.lock")], stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_kept_out_and_told_who_holds_the_lock(folder: Path, holder: subprocess.Popen[str]) -> None:
    """Overlapping cron runs: the second one ends at once. The holder's death, by kill -9, frees the lock."""
    with (
        pytest.raises(LockedError, match=r"another run holds this output \(process 1 on node1\)"),
        hold_lock(folder / "run.lock", "process 2"),
    ):
        pytest.fail("the lock was given twice")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with hold_lock(folder / "run.lock", "process 2"):
        assert (folder / "run.lock").read_text(encoding="utf-8") == "process 2\n"


def test_a_lock_is_free_again_after_its_block_and_the_file_stays(folder: Path) -> None:
    """A lock file that is removed could be locked twice."""
    for number in range(3):
        with hold_lock(folder / "run.lock", f"process {number}"):
            pass
    assert (folder / "run.lock").read_text(encoding="utf-8") == "process 2\n"


def test_a_lock_that_cannot_be_made_is_a_machine_error(folder: Path) -> None:
    """A read-only or missing folder."""
    with pytest.raises(MachineError, match="cannot be opened"), hold_lock(folder / "absent" / "run.lock", "me"):
        pytest.fail("there is no such folder")


def test_a_file_system_without_locks_is_warned_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Some network file systems have none: the run goes on, and says so."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", fail)
    with caplog.at_level("WARNING", logger="batchzs"), hold_lock(folder / "run.lock", "me"):
        pass
    assert ["this file system has no locks" in record.getMessage() for record in caplog.records] == [True]
