"""Nothing of another input, model or column passes for this run's: refused by name, or the same bytes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import polars as pl
import torch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Finished, Workshop


def test_shards_of_another_input_are_not_taken_over(done: Workshop) -> None:
    """With its record gone (a removal that was cut short), an output's shards still say which input they are of."""
    path = done.input / "part-2.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("观众", "观看"), encoding="utf-8")
    for name in ("run.json", "inputs.json"):
        (done.state / name).unlink()
    result = done.run("run", done.standard_job)
    assert result.code == 6, result.stderr
    assert "part-00000.parquet: was made from another input, whose record is gone" in result.stderr


def test_carried_columns_that_batchzs_adds_too_are_refused(workshop: Workshop) -> None:
    """`keep: all` meets an input with a column `label`: overwriting either would lose somebody's work."""
    pl.DataFrame({"text": ["新闻"], "label": ["mine"], "id": [1]}).write_parquet(workshop.folder / "in.parquet")
    job = workshop.job(input={"path": "in.parquet", "keep": "all"})
    result = workshop.run("run", job)
    assert result.code == 2, result.stderr
    assert "output.prefix: the input has columns that batchzs adds too (label); set a prefix" in result.stderr
    prefixed = workshop.job(input={"path": "in.parquet", "keep": "all"}, output={"prefix": "zs_"})
    assert workshop.run("run", prefixed).code == 0
    assert workshop.table()["label"].to_list() == ["mine"]


def test_partition_columns_that_batchzs_adds_too_are_refused(workshop: Workshop) -> None:
    """The same for the names of folders."""
    folder = workshop.folder / "in" / "status=new"
    folder.mkdir(parents=True)
    pl.DataFrame({"text": ["新闻"], "id": [1]}).write_parquet(folder / "a.parquet")
    result = workshop.run("run", workshop.job(input={"path": "in", "partitions": "keep"}))
    assert result.code == 2, result.stderr
    assert "the input has columns that batchzs adds too (status)" in result.stderr


def change_model(folder: Path) -> None:
    """Negate the classifier; sizes and times stay."""
    path = folder / "pytorch_model.bin"
    before = path.stat()
    state = torch.load(path, weights_only=True)
    state["classifier.weight"] = -state["classifier.weight"]
    torch.save(state, path)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_another_model_of_the_same_size_and_time_is_another_model(done: Workshop) -> None:
    """Archives and container layers level times: in another directory only contents count."""
    other = done.folder / "other" / done.model.name
    shutil.copytree(done.model, other)
    change_model(other)
    result = done.run("run", done.job(model={"path": str(other)}))
    assert result.code == 6, result.stderr
    assert 'model files: begun with {"pytorch_model.bin"' in result.stderr


def test_a_renamed_model_gives_the_same_bytes(done: Workshop, finished: Finished) -> None:
    """The directory's name is no part of the scores, and a shard scored later is the one that it would have been."""
    model = done.folder / "renamed"
    shutil.copytree(done.model, model)
    (done.output / "scores/part-00003.parquet").unlink()
    result = done.run("run", done.job(model={"path": str(model)}))
    assert result.code == 0, result.stderr
    assert done.is_like(finished)


def test_an_output_over_its_input_is_refused(workshop: Workshop) -> None:
    """What lies in an output is never read: the message says so, and does not say that nothing is there."""
    (workshop.folder / "in.csv").write_text("id,text\n1,新闻\n", encoding="utf-8")
    result = workshop.run("run", workshop.job(input={"path": "in.csv"}, output={"path": "."}))
    assert result.code == 2, result.stderr
    assert "output.path: " in result.stderr
    assert " holds the input " in result.stderr


def test_settings_that_mean_nothing_for_the_format_are_refused(workshop: Workshop) -> None:
    """An encoding for Parquet was meant for something, and is not passed over."""
    pl.DataFrame({"text": ["新闻"], "id": [1]}).write_parquet(workshop.folder / "in.parquet")
    result = workshop.run("run", workshop.job(input={"path": "in.parquet", "encoding": "gb18030"}))
    assert result.code == 2, result.stderr
    assert "input.encoding: means nothing for parquet (in.parquet), only for csv, tsv, jsonl" in result.stderr


def test_a_kill_between_record_and_shard_leaves_the_summary_as_it_would_be(
    standard: Workshop, finished: Finished
) -> None:
    """A shard is never there without its record, so that every count survives."""
    hook = {"stand_in": True, "crash": "shard-published:2"}
    assert standard.run("run", standard.standard_job, hook=hook).code == -signal.SIGKILL
    result = standard.run("run", standard.standard_job)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    counts = ("num_pairs", "num_tokens", "num_duplicates", "num_nul_texts", "labels", "statuses")
    undisturbed = standard.record("summary.json", output=finished.folder / standard.output.name)
    summary = standard.record("summary.json")
    assert {name: summary[name] for name in counts} == {name: undisturbed[name] for name in counts}


def test_a_stop_while_restarting_says_how_to_go_on(done: Workshop) -> None:
    """The same command would begin anew once more."""
    hook = {"stand_in": True, "delay_s": 0.1}
    running = done.start("run", done.standard_job, "--restart", hook=hook)
    running.wait_until(lambda: "published" in running.stderr)
    running.send(signal.SIGTERM)
    result = running.end()
    assert result.code == 75
    assert "run the same command again to go on, without --restart" in result.stderr


def test_nohup_is_heeded(standard: Workshop, finished: Finished) -> None:
    """Whoever starts a run with SIGHUP ignored wants it to outlive the terminal."""
    script = 'trap "" HUP; exec "$@"'
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 0.05}, script=script)
    running.wait_until(lambda: "published" in running.stderr)
    running.send(signal.SIGHUP)
    time.sleep(0.2)
    assert running.end().code == 0
    assert standard.is_like(finished)


def test_one_label_with_full_width_commas_is_remarked_on(standard: Workshop) -> None:
    """To YAML it is one label; whoever meant three hears of it before the night is over."""
    result = standard.run("run", standard.job(labels=["体育，财经，汽车"]))
    assert result.code == 0, result.stderr
    assert "labels: found one label, 体育，财经，汽车: for several, write plain commas between them" in result.stderr
