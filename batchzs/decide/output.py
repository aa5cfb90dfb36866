"""The folder that `batchzs decide` writes into: seen to be its own, held, begun, and finished.

It has a run's shape and a run's record, so that whatever opens a run's output opens this one too; its record says in
`decided` what it was made from, and no run goes on in it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchzs.durable import hold_lock, lock_holder, make_folders, publish_bytes, refuse_links, remove
from batchzs.errors import OtherJobError, UsageError
from batchzs.fingerprint import refuse_other_job
from batchzs.known_input import write_first, write_generation
from batchzs.records import RunRecord, read_json, read_record, write_record
from batchzs.resume import remove_run, sweep_temporary_files
from batchzs.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from batchzs.finished import FinishedRun
    from batchzs.paths import RunPaths
    from batchzs.records import ShardRecord

_OWN_NAMES = frozenset({"scores", "state", "_SUCCESS"})


def refuse_overlap(source: Path, output: Path) -> None:
    """See that neither folder is the other or lies inside it.

    Raises:
        UsageError: it does.
    """
    one, other = source.resolve(), output.resolve()
    if one == other:
        raise UsageError(f"--to: {output} is the output itself, which stays as it is; choose another folder")
    if one in other.parents or other in one.parents:
        raise UsageError(f"--to: {output} and {source} lie inside each other; choose a folder beside it")


@contextmanager
def hold_output(run: FinishedRun, *, restart: bool) -> Iterator[Callable[[Sequence[ShardRecord]], None]]:
    """Hold the folder of a new output while the block runs.

    Args:
        run: the new output.
        restart: remove what another `decide` left there.

    Yields:
        What is called at the end with all shards' records, and says that everything is there.

    Raises:
        OtherJobError: the folder holds something else.
        LockedError: another process holds it.
        MachineError: the disk is in the way.
    """
    paths = run.paths
    _refuse_other_content(paths)
    refuse_links(paths.state, *paths.folders)
    make_folders(*paths.folders)
    with hold_lock(paths.lock, lock_holder()) as lock:
        begun = read_record(paths.run_record, RunRecord)
        if begun is not None and restart:
            remove_run(paths)
            begun = None
        if begun is not None:
            refuse_other_job(begun.fingerprint, run.record.fingerprint, paths.output)
        if lock.is_held:
            sweep_temporary_files(paths)
        if begun is None:
            write_first(paths, run.known.first)
            write_record(paths.run_record, run.record, paths.temporary)  # last: what it names is there
        for one in run.known.added:  # the run may have grown since this output was begun
            write_generation(paths, one)
        remove(paths.success)

        def finish(records: Sequence[ShardRecord]) -> None:
            summary = summarise(run.job, paths, run.record, records)
            write_record(paths.summary, summary, paths.temporary)
            publish_bytes(paths.success, b"", paths.temporary)

        yield finish


def _refuse_other_content(paths: RunPaths) -> None:
    """See that the folder is empty, is not there, or was begun by `decide`."""
    output = paths.output
    try:
        names = {path.name for path in output.iterdir()}
    except FileNotFoundError:
        return
    except NotADirectoryError as exc:
        raise UsageError(f"--to: {output} is a file, expected a folder") from exc
    record = read_json(paths.run_record)
    if isinstance(record, dict):
        if record.get("decided"):
            return
        raise OtherJobError(f"{output}: holds the results of a run, which are not replaced: choose another folder")
    foreign = sorted(names - _OWN_NAMES)
    if not foreign and paths.scores.is_dir():
        foreign = sorted(path.name for path in paths.scores.iterdir())
    if foreign:
        raise OtherJobError(f"{output}: holds something else ({foreign[0]}): choose a new or an empty folder")
