"""Every name on disk, and nothing in `scores/` but shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchzs.paths import RunPaths
from tests.builders import odd_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_names_are_the_documented_ones(tmp_path: Path) -> None:
    """Users and other tools rely on them."""
    paths = RunPaths(tmp_path)
    names = {
        "scores": paths.scores,
        "scores/part-00007.parquet": paths.shard(7),
        "scores/part-123456.parquet": paths.shard(123_456),
        "_SUCCESS": paths.success,
        "report.html": paths.report,
        "state/run.json": paths.run_record,
        "state/inputs.json": paths.inputs,
        "state/inputs-0123456789abcdef.json": paths.staged_inputs("0123456789abcdef" * 4),
        "state/generation-00002.json": paths.generation(2),
        "state/summary.json": paths.summary,
        "state/run.log": paths.log,
        "state/run.lock": paths.lock,
        "state/attempt": paths.attempt,
        "state/shards/part-00007.json": paths.shard_record(7),
        "state/tmp": paths.temporary,
        "state/slurm/array.sbatch": paths.slurm_array_script,
        "state/slurm/finish.sbatch": paths.slurm_finish_script,
        "state/slurm/finish.log": paths.slurm_finish_log,
        "state/slurm/submit.log": paths.slurm_submit_log,
        "state/slurm/task-%2a-of-16.log": paths.slurm / paths.slurm_log_name(16),
    }
    assert {name: path.relative_to(tmp_path).as_posix() for name, path in names.items()} == {
        name: name for name in names
    }


def test_own_files_are_a_runs_and_no_others(tmp_path: Path) -> None:
    """Beginning anew removes these; the log, the lock and whatever a user put there stay."""
    paths = RunPaths(odd_folder(tmp_path))
    for folder in (paths.scores, paths.shard_records, paths.temporary):
        folder.mkdir(parents=True)
    own = [paths.success, paths.report, paths.summary, paths.run_record, paths.inputs, paths.attempt]
    own += [paths.generation(2), paths.generation(3), paths.staged_inputs("0" * 64)]
    own += [paths.shard(0), paths.shard(100_000), paths.shard_record(0), paths.temporary / "part-00001.parquet.77.tmp"]
    for path in [*own, paths.log, paths.lock, paths.scores / "notes.txt", paths.output / "mine.parquet"]:
        path.write_bytes(b"")
    assert sorted(paths.own_files()) == sorted(own)
