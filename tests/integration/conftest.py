"""Whole runs of the real command, each in a process of its own.

Most use the stand-in model, which loads no torch; a few use a tiny random checkpoint. What is named here is odd on
purpose: spaces, brackets, quotes and Chinese are what users' paths look like.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import yaml

from batchzs.finished import open_run
from batchzs.verify.output import verify_run

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator, Mapping

#: Far beyond what anything here takes: a test that meets it found a process that hangs.
TIMEOUT_S = 120
STAND_IN = {"stand_in": True}
JOB = "新闻 [夜].yaml"
INPUT = "输入 [2024] 甲"
OUTPUT = "结果 'a' 1"
LABELS = ["文化", "体育,球赛", "娱乐"]
NUM_ROWS = 150
SHARD_ROWS = 20
NUM_SHARDS = 8
#: Rows of the standard input that are damaged, and those whose text has no token of its own.
BAD_ROWS = (51, 120)
EMPTY_TEXTS = {12: None, 33: "", 58: "  ", 96: "\u200b\ufeff"}

#: Python runs this file at its start, in every process that a test starts. Libraries of the development extra are not
#: there on users' machines, so they are not there here; and a test may forbid others, connections, processes, or locks.
GUARD = """
import errno, fcntl, importlib.util, os, socket, sys

class Guard:
    shown = set(os.environ.get("GUARD_SHOWS", "").split())
    hidden = {"pandas", "duckdb", "hypothesis", "pytest", "transformers"} - shown
    forbidden = set(os.environ.get("GUARD_FORBIDS", "").split())

    def find_spec(self, name, path=None, target=None):
        if name in self.forbidden:  # asking whether it is there is allowed
            return importlib.util.spec_from_loader(name, self)
        if name in self.hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    def create_module(self, spec):
        os.write(2, f"GUARD: {spec.name} was imported\\n".encode())
        os._exit(99)

    def exec_module(self, module):
        pass

def refuse(*arguments, **named):
    os.write(2, b"GUARD: a connection was tried\\n")
    os._exit(98)

def watch(event, arguments):
    if event in ("os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"):
        os.write(2, f"GUARD: {event}\\n".encode())
        os._exit(97)
    if event == "os.putenv" and b"TOKENIZERS_PARALLELISM" in arguments:
        os.write(2, b"GUARD: TOKENIZERS_PARALLELISM was set\\n")
        os._exit(96)

def lack_locks(*arguments):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

sys.meta_path.insert(0, Guard())
if "GUARD_NETWORK" in os.environ:
    socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
if "GUARD_PROCESSES" in os.environ:
    sys.addaudithook(watch)
if "GUARD_LOCKS" in os.environ:
    fcntl.flock = lack_locks
"""


def standard_texts() -> list[str | None]:
    """Texts of every ordinary kind; with `EMPTY_TEXTS` where they belong, and without regard to `BAD_ROWS`."""
    texts: list[str | None] = [
        f"第{row}条：{'球队昨夜取胜，' * (row % 7)}观众{row * row} OK\u3000😀" for row in range(NUM_ROWS)
    ]
    for row in range(3, NUM_ROWS, 17):
        texts[row] = "同一条新闻，多次出现"
    texts[40] = '他说："好，\n再见"'
    texts[77] = "很长的正文。" * 200
    texts[78] = "NA"
    for row, text in EMPTY_TEXTS.items():
        texts[row] = text
    return texts


def ids() -> list[str | None]:
    """Ids as users have them: with leading zeros, repeated, and missing."""
    return [None if row % 29 == 4 else f"{row // 2:03d}" for row in range(NUM_ROWS)]


def csv_field(value: str | None) -> str:
    """Write a CSV field so that null and the empty text differ."""
    return "" if value is None else '"' + value.replace('"', '""') + '"'


def write_standard_input(folder: Path) -> None:
    """Write the standard input: two CSV files in a directory, whose natural order is not that of their characters."""
    folder.mkdir()
    lines = [f"{csv_field(one)},{csv_field(text)}\n" for one, text in zip(ids(), standard_texts(), strict=True)]
    for row in BAD_ROWS:
        lines[row] = f"{csv_field(ids()[row])},降准,利好,股市\n"
    (folder / "part-2.csv").write_text("id,text\n" + "".join(lines[:70]), encoding="utf-8")
    (folder / "part-10.csv").write_text("id,text\n" + "".join(lines[70:]), encoding="utf-8")
    (folder / "_SUCCESS").touch()
    (folder / "说明.txt").write_text("no data", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Running:
    """A command under way, its output going to files, so that no full pipe stops it."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: Path, stderr: Path) -> None:
        self._process = process
        self._stdout = stdout
        self._stderr = stderr

    @property
    def stderr(self) -> str:
        """What it has written to standard error until now."""
        return self._stderr.read_text(encoding="utf-8")

    @property
    def process_id(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self._process.poll() is not None

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that this command brings about; one that ends without it is a failure."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert not self.has_ended, self.stderr
            assert time.monotonic() < deadline_s, self.stderr
            time.sleep(0.01)

    def wait_until_paused(self) -> None:
        """Wait until it has stopped itself, as the hook's `pause` has it do."""
        status = Path(f"/proc/{self.process_id}/stat")
        self.wait_until(lambda: status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> Ended:
        """Wait for its end; no way to end shows a user a traceback."""
        try:
            code = self._process.wait(TIMEOUT_S)
        finally:
            self.stop()
        ended = Ended(code, self._stdout.read_text(encoding="utf-8"), self.stderr)
        assert "Traceback" not in ended.stderr, ended.stderr
        assert "Logging error" not in ended.stderr, ended.stderr
        return ended

    def stop(self) -> None:
        """See that nothing of it is left."""
        if not self.has_ended:
            self._process.kill()
            self._process.wait(TIMEOUT_S)


class Workshop:
    """One test's folder: writes jobs and inputs there, runs the command, and reads what came out."""

    num_rows = NUM_ROWS
    num_shards = NUM_SHARDS
    shard_rows = SHARD_ROWS
    labels = LABELS
    bad_rows = BAD_ROWS
    empty_texts = EMPTY_TEXTS
    texts = standard_texts()
    ids = ids()

    def __init__(self, folder: Path, model: Path, guard: Path) -> None:
        self.folder = folder
        self.model = model
        self.guard = guard
        self._started: list[Running] = []

    @property
    def standard_job(self) -> Path:
        """The standard job's file."""
        return self.folder / JOB

    @property
    def input(self) -> Path:
        """The standard input's directory."""
        return self.folder / INPUT

    @property
    def output(self) -> Path:
        """Where a job's results go unless it says otherwise."""
        return self.folder / OUTPUT

    @property
    def state(self) -> Path:
        """The run's state."""
        return self.output / "state"

    def job(self, name: str = JOB, **changes: Any) -> Path:
        """Write a job file: the standard one with other keys; sections are merged."""
        content: dict[str, Any] = {
            "input": {"path": INPUT, "text": "text", "keep": ["id"], "max_bad_share": 0.5},
            "labels": LABELS,
            "model": {"path": str(self.model)},
            "output": {"path": OUTPUT, "shard_rows": SHARD_ROWS},
            "engine": {"device": "cpu", "precision": "fp32", "max_batch_tokens": 600},
        }
        for key, value in changes.items():
            content[key] = {**content[key], **value} if isinstance(value, dict) and key in content else value
        path = self.folder / name
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        return path

    def environment(self, hook: Mapping[str, Any] | None, extra: Mapping[str, str] | None) -> dict[str, str]:
        """Everything that the command sees of the environment: little, and nothing of the machine's own."""
        environment = {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(self.guard),
            **(extra or {}),
        }
        if hook is not None:
            environment["BATCHZS_TEST_HOOK"] = json.dumps(hook)
        return environment

    def start(
        self,
        *arguments: str | Path,
        hook: Mapping[str, Any] | None = STAND_IN,
        extra: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        script: str | None = None,
    ) -> Running:
        """Start `batchzs` with these arguments.

        Args:
            arguments: those of `batchzs`.
            hook: what BATCHZS_TEST_HOOK says; None: nothing.
            extra: variables beside the usual ones.
            environment: all variables, in place of the usual ones.
            cwd: the working directory, the workshop's folder unless given.
            script: a line for sh, in which "$@" is the command.
        """
        command = [sys.executable, "-m", "batchzs", *map(str, arguments)]
        if script is not None:
            command = ["/bin/sh", "-c", script, "sh", *command]
        number = len(self._started)
        paths = [self.folder.parent / f"{name} {number}" for name in ("stdout", "stderr")]
        with paths[0].open("wb") as stdout, paths[1].open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=dict(environment) if environment is not None else self.environment(hook, extra),
                cwd=cwd or self.folder,
            )
        running = Running(process, *paths)
        self._started.append(running)
        return running

    def run(self, *arguments: str | Path, **settings: Any) -> Ended:
        """Run `batchzs` with these arguments to its end; see `start`."""
        return self.start(*arguments, **settings).end()

    def stop_all(self) -> None:
        """End what is still running."""
        for running in self._started:
            running.stop()

    def shards(self, output: Path | None = None) -> dict[str, bytes]:
        """Read the published files' bytes by name; anything in `scores/` counts."""
        scores = (output or self.output) / "scores"
        return {path.name: path.read_bytes() for path in sorted(scores.iterdir())} if scores.is_dir() else {}

    def published(self, finished: Finished) -> set[int]:
        """See that every published shard is an undisturbed run's, byte for byte; return their indices."""
        shards = self.shards()
        for name, content in shards.items():
            assert content == finished.shards[name], name
        return {int(name.removeprefix("part-").removesuffix(".parquet")) for name in shards}

    def is_like(self, finished: Finished) -> bool:
        """Whether this output is complete and has an undisturbed run's bytes."""
        return self.shards() == finished.shards and (self.output / "_SUCCESS").exists()

    def table(self, output: Path | None = None) -> pl.DataFrame:
        """Read all rows of an output, in the order of its shards."""
        paths = sorted(((output or self.output) / "scores").iterdir())
        return pl.concat([pl.read_parquet(path, glob=False) for path in paths])

    def findings(self, output: Path | None = None) -> list[str]:
        """What `batchzs verify` finds wrong, looked for in this process, which takes a tenth of the command's time."""
        return [str(finding) for finding in verify_run(open_run(output or self.output)).findings]

    def record(self, name: str, output: Path | None = None) -> Any:
        """Read a JSON file of the run's state."""
        return json.loads(((output or self.output) / "state" / name).read_bytes())

    def moments(self) -> dict[str, int]:
        """When each published file and each record was written."""
        paths = [*self.output.glob("scores/*"), *self.output.glob("state/*.json"), *self.output.glob("state/shards/*")]
        return {str(path.relative_to(self.output)): path.stat().st_mtime_ns for path in sorted(paths)}

    def attempts(self) -> list[int]:
        """For each shard the attempt that scored it, 0 where its record had to be made again."""
        return [self.record(f"shards/part-{index:05d}.json")["attempt"] for index in range(NUM_SHARDS)]


@dataclass(frozen=True, slots=True)
class Finished:
    """An undisturbed run of the standard job: where it lies, and what its shards hold."""

    folder: Path
    shards: Mapping[str, bytes]
    table: pl.DataFrame
    ended: Ended


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH that keeps watch inside the processes that tests start."""
    folder = tmp_path_factory.mktemp("guard")
    (folder / "sitecustomize.py").write_text(GUARD, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A StructBERT checkpoint of two small random layers, in ModelScope's layout."""
    folder = tmp_path_factory.mktemp("models") / "模型 [小] v1"
    write_checkpoint(folder)
    return folder


def write_checkpoint(folder: Path, seed: int = 0, num_classes: int = 3) -> None:
    """Write a tiny random checkpoint; another seed gives other weights in files of the same sizes."""
    import torch

    from batchzs.models.checkpoint import read_checkpoint
    from batchzs.models.weights import expected_shapes

    folder.mkdir()
    characters = sorted({character for text in standard_texts() if text for character in text if character.strip()})
    lowered = sorted({*"".join(characters).lower(), *"这篇文章的标题是文化体育球赛娱乐,0123456789"})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *lowered, *(f"##{one}" for one in "0123456789")]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = {"model_type": "structbert", "vocab_size": len(vocabulary), "max_position_embeddings": 512, **sizes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = folder / "pytorch_model.bin"
    weights.touch()
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for key, shape in expected_shapes(read_checkpoint(folder)).items():
        size = [num_classes if length is None else length for length in shape]
        # Smaller weights in the encoder than in the head: other texts and labels get clearly other scores.
        noise = torch.randn(size, generator=generator) * (1 if key.startswith("classifier.") else 0.3)
        stored_key = key if key.startswith("classifier.") else f"bert.{key}"
        state[stored_key] = noise + 1 if key.endswith("LayerNorm.weight") else noise
    torch.save(state, weights)


def odd_folder(above: Path) -> Path:
    """Make a folder whose name is as odd as users' are."""
    folder = above / "甲 [2024] *b? {c} 'd'"
    folder.mkdir()
    return folder


@pytest.fixture
def workshop(tmp_path: Path, checkpoint: Path, guard: Path) -> Iterator[Workshop]:
    """An empty folder to work in."""
    made = Workshop(odd_folder(tmp_path), checkpoint, guard)
    yield made
    made.stop_all()


@pytest.fixture
def standard(workshop: Workshop) -> Workshop:
    """A folder with the standard input and the standard job."""
    write_standard_input(workshop.input)
    workshop.job()
    return workshop


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, guard: Path) -> Finished:
    """The standard job, run once without disturbance; not to be written to."""
    made = Workshop(odd_folder(tmp_path_factory.mktemp("finished")), checkpoint, guard)
    write_standard_input(made.input)
    ended = made.run("run", made.job())
    assert ended.code == 0, ended.stderr
    return Finished(made.folder, made.shards(), made.table(), ended)


@pytest.fixture
def done(workshop: Workshop, finished: Finished) -> Workshop:
    """A folder with the standard job, finished: job, input and output as if they had been made here."""
    shutil.copytree(finished.folder, workshop.folder, dirs_exist_ok=True)
    frozen = workshop.state / "inputs.json"
    content = frozen.read_text(encoding="utf-8")
    # Inside JSON these paths stand as they are: their names need no escapes.
    frozen.write_text(content.replace(str(finished.folder), str(workshop.folder)), encoding="utf-8")
    return workshop


@pytest.fixture(scope="session")
def finished_by_model(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, guard: Path) -> Finished:
    """The first 80 rows of the standard job, scored by the checkpoint without disturbance; not to be written to.

    There is no network, no HOME that could be made, one CPU, and nothing is written beside the output.
    """
    made = Workshop(odd_folder(tmp_path_factory.mktemp("by_model")), checkpoint, guard)
    write_standard_input(made.input)
    extra = {"GUARD_NETWORK": "1", "HOME": str(made.folder / JOB / "home"), "SLURM_CPUS_PER_TASK": "1"}
    before = sorted(path.name for path in checkpoint.iterdir())
    ended = made.run("run", made.job(), "--limit", "80", hook=None, extra=extra)
    assert ended.code == 0, ended.stderr
    assert sorted(path.name for path in checkpoint.iterdir()) == before
    assert sorted(path.name for path in made.folder.iterdir()) == sorted([JOB, INPUT, OUTPUT])
    return Finished(made.folder, made.shards(), made.table(), ended)
