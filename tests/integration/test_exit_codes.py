"""What is wrong, and how a run says so: its exit code, one message that helps, nothing on standard output."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.conftest import Finished, Workshop

#: How soon a refusal comes that needs no work; far above what it takes.
AT_ONCE_S = 15


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["run", "{job}", "--colour"], ["No such option", "--colour"]),
        (["label"], ["No such command", "label"]),
        (["run", "none 甲.yaml"], ["none 甲.yaml"]),
        (["run", "."], [".: cannot be read: Is a directory"]),
        (["run", "{job}", "--limit", "0"], ["--limit"]),
        (["run", "{job}", "--limit", "5", "--sample", "5"], ["--limit and --sample exclude each other"]),
        (["run", "{job}", "--set", "engine.device"], ["expected KEY=VALUE"]),
        (["run", "{job}", "--set", "engine.devise=cpu"], ["engine.devise", "did you mean device?"]),
        (["run", "{job}", "--set", "engine.device=gpu"], ["engine.device", "expected auto, cpu, cuda, cuda:1 or all"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line(standard: Workshop, arguments: list[str], messages: list[str]) -> None:
    """What is wrong with the command line or a `--set` is named, with 2, before anything heavy is loaded."""
    filled = [argument.replace("{job}", str(standard.standard_job)) for argument in arguments]
    result = standard.run(*filled, extra={"GUARD_FORBIDS": "torch polars numpy"})
    assert result.code == 2, result.stderr
    assert result.stdout == ""
    for message in messages:
        assert message in result.stderr
    assert not standard.output.exists()


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (b"", ["the file is empty"]),
        (b"input: [1, 2", ["JOB:1"]),
        (b"- a\n- b\n", ["expected keys: input, labels"]),
        ("标签: [甲]\n".encode("gb18030"), ["UTF-8"]),
        (b"inputs: {path: a.csv, text: t}\nlabels: [a]\n", ["JOB:1", "did you mean input?", "output.path"]),
        (b"labels: [a]\ntemplate: no place\n", ["JOB:2", "template"]),
        (b"labels: 'a, b'\n", ["JOB:1", "labels"]),
    ],
    ids=["empty", "torn", "list", "gb18030", "unknown key", "template", "labels"],
)
def test_a_wrong_job_file(workshop: Workshop, content: bytes, messages: list[str]) -> None:
    """What is wrong with a job file is named with its line, all of it in one go."""
    job = workshop.folder / "错 [1].yaml"
    job.write_bytes(content)
    result = workshop.run("run", job, extra={"GUARD_FORBIDS": "torch polars numpy"})
    assert result.code == 2, result.stderr
    assert result.stdout == ""
    for message in messages:
        assert message.replace("JOB", str(job)) in result.stderr


INPUT_FAULTS: dict[str, tuple[Callable[[Workshop], dict[str, Any]], list[str]]] = {
    "missing file": (
        lambda _: {"path": "没有.csv"},
        [".yaml:", "input.path: ", "没有.csv: there is no such file or directory"],
    ),
    "empty glob": (lambda _: {"path": "none/*.csv"}, ["none/*.csv: nothing matches"]),
    "missing column": (lambda _: {"text": "正文"}, [".yaml:", "part-2.csv: no column '正文' (input.text)", "id, text"]),
    "missing kept column": (lambda _: {"keep": ["日期"]}, ["no column '日期' (input.keep)"]),
    "no bytes": (lambda w: write(w, "空.csv", b""), ["空.csv: the file has no bytes at all"]),
    "no Parquet": (lambda w: write(w, "a.parquet", b"PAR1 no"), ["a.parquet: is not a complete Parquet file"]),
    "unclosed quote": (lambda w: write(w, "q.csv", b'id,text\n1,a\n2,"b\n3,c\n'), ["q.csv:3"]),
    "bad row refused": (lambda _: {"on_bad_rows": "fail"}, ["part-2.csv:54"]),
    "only foreign files": (lambda w: write(w, "d/_SUCCESS", b"", "d"), ["no readable files", "1 skipped"]),
    "mark of another encoding": (lambda w: write(w, "u.csv", b"\xff\xfei\0"), ["u.csv: begins with the", "utf-16"]),
}


def write(workshop: Workshop, name: str, content: bytes, path: str | None = None) -> dict[str, Any]:
    """Write an input file; return what the job's input section says of it."""
    target = workshop.folder / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(content)
    return {"path": path or name}


@pytest.mark.parametrize("fault", INPUT_FAULTS)
def test_a_wrong_input(standard: Workshop, fault: str) -> None:
    """A bad input is found before the model loads, named with file, line or column, with 3."""
    make, messages = INPUT_FAULTS[fault]
    result = standard.run("run", standard.job(input=make(standard)), extra={"GUARD_FORBIDS": "torch"})
    assert result.code == 3, result.stderr
    assert result.stdout == ""
    for message in messages:
        assert message in result.stderr
    assert standard.shards() == {}
    assert not (standard.state / "run.json").exists()


def change_config(workshop: Workshop, **changes: Any) -> None:
    """Change keys of the copied model's config.json."""
    import json

    path = workshop.folder / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}), encoding="utf-8")


MODEL_FAULTS: dict[str, tuple[Callable[[Workshop], object], list[str]]] = {
    "no directory": (lambda w: shutil.rmtree(w.folder / "model"), [".yaml:", "model: no such model directory"]),
    "no config": (lambda w: (w.folder / "model/config.json").unlink(), ["has no config.json"]),
    "no weights": (lambda w: (w.folder / "model/pytorch_model.bin").unlink(), ["has neither pytorch_model.bin nor"]),
    "unknown classes": (
        lambda w: change_config(w, model_type="bert", id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}),
        [".yaml:", "does not say which class is entailment", "0: LABEL_0", "model.entailment_id"],
    ),
    "classes contradict": (
        lambda w: change_config(w, id2label={"0": "contradiction", "1": "neutral", "2": "entailment"}),
        ["config.json names class 2 as entailment"],
    ),
}


@pytest.mark.parametrize("fault", MODEL_FAULTS)
def test_a_wrong_model(standard: Workshop, fault: str) -> None:
    """An unfit checkpoint is refused by what its files say, with 4, before its weights are loaded."""
    damage, messages = MODEL_FAULTS[fault]
    shutil.copytree(standard.model, standard.folder / "model")
    damage(standard)
    started_s = time.monotonic()
    extra = {"GUARD_FORBIDS": "torch modelscope", "GUARD_NETWORK": "1"}
    result = standard.run("run", standard.job(model={"path": "model"}), extra=extra)
    assert time.monotonic() - started_s < AT_ONCE_S
    assert result.code == 4, result.stderr
    assert result.stdout == ""
    for message in messages:
        assert message in result.stderr
    assert standard.shards() == {}


@pytest.mark.parametrize(
    ("device", "variables"),
    [
        ("auto", {"SLURM_JOB_GPUS": "2"}),
        pytest.param("auto", {"CUDA_VISIBLE_DEVICES": "0"}, marks=pytest.mark.slow),
        pytest.param("cuda", {}, marks=pytest.mark.slow),
        pytest.param("cuda:1", {}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_gpu_that_cannot_be_used(standard: Workshop, device: str, variables: dict[str, str]) -> None:
    """A GPU that is asked for or allotted and cannot be used ends the run before any scoring (case M4)."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    result = standard.run("run", standard.job(engine={"device": device}), hook=None, extra=variables)
    assert result.code == 8, result.stderr
    assert f"engine.device is {device}" in result.stderr
    assert result.stdout == ""
    assert standard.shards() == {}


@pytest.mark.slow
def test_weights_without_a_classifier(standard: Workshop) -> None:
    """A checkpoint whose head is missing is refused: random numbers would look like answers (case Z13)."""
    import torch

    shutil.copytree(standard.model, standard.folder / "model")
    weights = standard.folder / "model/pytorch_model.bin"
    state = torch.load(weights, weights_only=True)
    torch.save({key: value for key, value in state.items() if not key.startswith("classifier.")}, weights)
    headless = standard.start("run", standard.job(model={"path": "model"}), hook=None)
    no_gpu = standard.start(
        *("run", standard.job("b.yaml", engine={"device": "cuda"}, output={"path": "b"})),
        hook=None,
        extra={"CUDA_VISIBLE_DEVICES": ""},
    )
    result = headless.end()
    assert result.code == 4, result.stderr
    assert "pytorch_model.bin: lacks 2 parameters, such as classifier.weight, classifier.bias" in result.stderr
    assert result.stdout == ""
    assert standard.shards() == {}
    result = no_gpu.end()
    assert result.code == 8, result.stderr
    assert "engine.device is cuda: " in result.stderr
    assert "set engine.device: cpu" in result.stderr


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"labels": ["文化", "体育" * 300]}, ["its hypothesis has 608 tokens", "engine.max_length"]),
        (
            {"labels": ["科技体育财经家居旅游", "文化"], "engine": {"max_length": 16}},
            ["label '科技体育财经家居旅游': its hypothesis has 18 tokens", "label '文化'"],
        ),
        ({"engine": {"max_length": 513}}, ["engine.max_length is 513, but the model takes at most 512 tokens"]),
    ],
    ids=["hypothesis", "hypotheses", "max_length"],
)
def test_a_job_that_does_not_fit_its_model(standard: Workshop, changes: dict[str, Any], messages: list[str]) -> None:
    """A label that leaves a text no room is found before the input is read, not at row four million (case Z2)."""
    result = standard.run("run", standard.job(**changes), extra={"GUARD_FORBIDS": "torch polars"})
    assert result.code == 2, result.stderr
    assert result.stdout == ""
    for message in messages:
        assert message in result.stderr


def test_too_many_damaged_rows(standard: Workshop, finished: Finished) -> None:
    """Above the allowed share the run ends with 5, and the output is complete; so it does when it is run again."""
    for _ in range(2):
        result = standard.run("run", standard.job(input={"max_bad_share": 0.01}))
        assert result.code == 5, result.stderr
        assert "2 of 150 rows (1.33%) are quarantined, more than input.max_bad_share allows (1.00%)" in result.stderr
        assert "quarantined 2 (bad_record 2)" in result.stdout
        assert standard.is_like(finished)


def test_nothing_but_damaged_rows(workshop: Workshop) -> None:
    """Rows that are all quarantined are all in the output, and only their share decides the code (cases I11, R6)."""
    (workshop.folder / "坏.jsonl").write_text("x\n" * 30, encoding="utf-8")
    for max_bad_share, code in ((0.5, 5), (1, 0)):
        job = workshop.job(input={"path": "坏.jsonl", "keep": [], "max_bad_share": max_bad_share})
        result = workshop.run("run", job)
        assert result.code == code, result.stderr
        assert workshop.table()["status"].to_list() == ["bad_record"] * 30
        assert workshop.table()["source_row"].to_list() == list(range(30))
        assert (workshop.output / "_SUCCESS").exists()


def test_a_second_run_at_the_same_time(standard: Workshop, finished: Finished) -> None:
    """While a run is at work another one on its output is turned away at once, even with `--restart` (case S4)."""
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 0.08})
    running.wait_until(lambda: len(standard.shards()) >= 1)
    started_s = time.monotonic()
    result = standard.run("run", standard.standard_job, "--restart", extra={"GUARD_FORBIDS": "torch polars"})
    assert time.monotonic() - started_s < AT_ONCE_S
    assert result.code == 7, result.stderr
    assert f"{standard.output}: another run holds this output (process " in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert not running.has_ended
    assert running.end().code == 0
    assert standard.is_like(finished)


def test_a_lock_file_alone_locks_nothing(standard: Workshop) -> None:
    """What a killed run wrote into its lock keeps nobody out, whatever process has that number now (case S4)."""
    standard.state.mkdir(parents=True)
    (standard.state / "run.lock").write_text("process 1 on here since 2020-01-01 00:00:00 UTC\n", encoding="utf-8")
    assert standard.run("run", standard.standard_job, "--limit", "3").code == 0


@pytest.mark.parametrize("command", ["run", "fetch", "verify"])
def test_a_library_that_is_too_old(standard: Workshop, command: str) -> None:
    """An environment with an old library is refused with both versions, before anything of it is used (case M2)."""
    libraries = standard.folder / "libraries"
    (libraries / "torch-2.1.dist-info").mkdir(parents=True)
    (libraries / "torch-2.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.1\n")
    paths = f"{standard.environment(None, None)['PYTHONPATH']}{os.pathsep}{libraries}"
    extra = {"PYTHONPATH": paths, "GUARD_FORBIDS": "torch polars"}
    result = standard.run(command, standard.standard_job, extra=extra)
    assert result.code == 8, result.stderr
    assert "torch 2.1 is installed, and 2.6 or later is needed: upgrade it" in result.stderr
    assert result.stdout == ""
    assert not standard.output.exists()


@pytest.mark.parametrize("path", ["a file/out", "a file"])
def test_an_output_that_cannot_be_made(standard: Workshop, path: str) -> None:
    """An output below a regular file, or in its place, is the machine's fault, with 8 and the path."""
    (standard.folder / "a file").write_bytes(b"mine")
    result = standard.run("run", standard.job(output={"path": path}), extra={"GUARD_FORBIDS": "torch polars"})
    assert result.code == 8, result.stderr
    assert f"{standard.folder / 'a file'}" in result.stderr
    assert "output.path" in result.stderr
    assert result.stdout == ""
    assert (standard.folder / "a file").read_bytes() == b"mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_that_may_not_be_written(standard: Workshop) -> None:
    """A folder without permission is the machine's fault."""
    standard.output.mkdir()
    standard.output.chmod(0o555)
    result = standard.run("run", standard.standard_job)
    assert result.code == 8, result.stderr
    assert "Permission denied" in result.stderr


@pytest.mark.slow
def test_a_full_disk(standard: Workshop, finished: Finished) -> None:
    """Where a shard cannot be written whole nothing of it stays; the same command goes on with room (case R7)."""
    standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "shard-published:2"})
    limit = min(len(content) for content in finished.shards.values()) // 512 - 1
    result = standard.run("run", standard.standard_job, script=f'ulimit -f {limit}; exec "$@"')
    assert result.code == 8, result.stderr
    assert "part-00002.parquet: cannot be written: File too large" in result.stderr
    assert "Free space" in result.stderr
    assert result.stdout == ""
    assert standard.published(finished) == {0, 1}
    assert list((standard.state / "tmp").iterdir()) == []
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)


def test_a_log_that_cannot_grow(done: Workshop, finished: Finished) -> None:
    """A run log that takes no more lines neither ends a run nor fills standard error with tracebacks."""
    (done.output / "scores/part-00003.parquet").unlink()
    with (done.state / "run.log").open("ab") as log:
        log.write(b"\n" * 1_000_000)
    result = done.run("run", done.standard_job, script='ulimit -f 1000; exec "$@"')
    assert result.code == 0, result.stderr
    assert done.is_like(finished)


def test_an_input_that_changes_under_a_run(standard: Workshop) -> None:
    """A file edited while the run goes on ends it with 3: rows of two versions never mix."""
    running = standard.start("run", standard.standard_job, hook={"stand_in": True, "delay_s": 0.1})
    running.wait_until(lambda: len(standard.shards()) >= 1)
    os.utime(standard.input / "part-10.csv", (1, 1))
    result = running.end()
    assert result.code == 3, result.stderr
    assert "part-10.csv: has changed while the run went on" in result.stderr
