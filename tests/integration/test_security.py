"""Whole runs among hostile names, links, texts and model directories; docs/security.md names each of these tests."""

from __future__ import annotations

import json
import re
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Finished, Workshop

#: Names as nobody writes them by chance. The last two are as long as a file system takes.
ODD_NAMES = (
    "1\n2026-11-30 03:00:00 error: forged.csv",
    "2\x1b[2J\x1b]0;owned\x07\x9b31m.csv",
    "3\u202evsc.exe.csv",
    "4 $(touch owned) `touch owned` ; touch owned.csv",
    "5 ..%2f..%2fowned.csv",
    "6 ..\\..\\owned.csv",
    "~.csv",
    "-rf.csv",
    "*.csv",
    "科" * 83 + ".csv",
    "x" * 251 + ".csv",
)
CONFIDENTIAL = "绝密ZXQJ"


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: files with their bytes, folders with None."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture
def outside(standard: Workshop) -> Path:
    """Somebody's folder that no run may change."""
    folder = standard.folder / "theirs"
    folder.mkdir()
    for name in ("part-00000.parquet", "part-00000.json", "part-00000.journal", "x.tmp", "file"):
        (folder / name).write_bytes(b"theirs")
    return folder


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("scores", ["--restart"]),
        ("state", ["--restart"]),
        ("state/shards", []),
        ("state/journal", []),
        ("state/tasks", []),
        ("state/tmp", []),
    ],
)
def test_a_folder_of_the_output_is_no_link(standard: Workshop, outside: Path, name: str, arguments: list[str]) -> None:
    """Shards written, swept or removed through a linked folder would be somebody's files: refused, and nothing done."""
    link = standard.output / name
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    before = tree(outside)
    result = standard.run("run", standard.standard_job, *arguments, extra={"GUARD_FORBIDS": "torch polars"})
    assert result.code == 8, result.stderr
    assert f"{link}: is a symbolic link" in result.stderr
    assert tree(outside) == before


@pytest.mark.parametrize("name", ["state/run.lock", "state/run.log", "state/journal/part-00000.journal"])
def test_a_file_that_is_added_to_is_no_link(standard: Workshop, outside: Path, name: str) -> None:
    """The lock, the log and a journal are opened where they are: through a link that is refused by name."""
    link = standard.output / name
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "file")
    before = tree(outside)
    result = standard.run("run", standard.standard_job, "--limit", "5")
    assert result.code == 8, result.stderr
    assert f"{link}: is a symbolic link" in result.stderr
    assert tree(outside) == before


def test_a_link_in_place_of_a_whole_file_is_replaced(standard: Workshop, outside: Path, finished: Finished) -> None:
    """What is written whole takes its name from a link, whose target stays; so do shards under way."""
    names = ["_SUCCESS", "state/run.json", "state/inputs.json", "state/attempt", "state/summary.json"]
    links = [standard.output / name for name in [*names, "state/shards/part-00000.json", "state/tmp/x.tmp"]]
    for link in links:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(outside / "file")
    before = tree(outside)
    result = standard.run("run", standard.standard_job)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    assert [link for link in links if link.is_symlink()] == []
    assert tree(outside) == before


def test_links_among_the_shards(done: Workshop, finished: Finished) -> None:
    """A shard that was moved away and linked counts, is never written through, and `--restart` removes links alone."""
    moved = done.folder / "moved"
    moved.mkdir()
    for name in ("part-00001.parquet", "part-00002.parquet", "part-00003.parquet"):
        shutil.move(done.output / "scores" / name, moved)
        (done.output / "scores" / name).symlink_to(moved / name)
    (moved / "part-00002.parquet").write_bytes(b"theirs")
    (moved / "part-00003.parquet").unlink()
    before = tree(moved)
    result = done.run("run", done.standard_job)
    assert result.code == 0, result.stderr
    assert done.is_like(finished)
    links = [path.name for path in (done.output / "scores").iterdir() if path.is_symlink()]
    assert links == ["part-00001.parquet"]
    assert tree(moved) == before
    result = done.run("run", done.standard_job, "--restart")
    assert result.code == 0, result.stderr
    assert done.is_like(finished)
    assert not any(path.is_symlink() for path in (done.output / "scores").iterdir())
    assert tree(moved) == before


def test_the_output_itself_may_be_a_link(standard: Workshop, finished: Finished) -> None:
    """Users put results on another disk this way."""
    (standard.folder / "disk").mkdir()
    standard.output.symlink_to(standard.folder / "disk")
    result = standard.run("run", standard.standard_job)
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)


def test_odd_names_end_in_their_column_and_nowhere_else(workshop: Workshop) -> None:
    """No name of a file, a folder or a column makes a path, a line of the log, or a terminal's command."""
    data = workshop.folder / "data" / "k=..%2F..%2Fowned"
    data.mkdir(parents=True)
    column = "../\n2026-11-30 03:00:00 error: forged\x1b[2J"
    for name in ODD_NAMES:
        # A damaged row in each: its file is then named in messages and in the column `reason`.
        (data / name).write_text(f'text,"{column}"\n一条,../x\n两条,a,b\n三条,y\n', encoding="utf-8")
    job = workshop.job(
        input={"path": "data", "keep": "all", "partitions": "keep"}, output={"shard_rows": 10}, labels=["体育", "文化"]
    )
    before = tree(workshop.folder)
    result = workshop.run("run", job)
    assert result.code == 0, result.stderr
    wrong_job = workshop.job("wrong.yaml", input={"path": "data", "text": "none"}, output={"path": "wrong"})
    wrong = workshop.run("run", wrong_job)
    assert wrong.code == 3, wrong.stderr
    after = tree(workshop.folder)
    strange = [name for name in after.keys() - before.keys() if not name.startswith((workshop.output.name, "wrong"))]
    assert strange == []
    written = {name.removeprefix(f"{workshop.output.name}/") for name in after if name.startswith(workshop.output.name)}
    known = rf"{re.escape(workshop.output.name)}|_SUCCESS|scores|state(/(run|inputs|summary)\.json|/run\.(log|lock))?"
    known += r"|state/(attempt|metrics\.prom|shards|journal|tasks|slurm|tmp)"
    known += r"|scores/part-0000[0-3]\.parquet|state/shards/part-0000[0-3]\.json"
    assert [name for name in written if not re.fullmatch(known, name)] == []

    table = workshop.table()
    assert set(table["source_file"]) == {f"{data.name}/{name}" for name in ODD_NAMES}
    assert set(table["k"]) == {"../../owned"}
    assert column in table.columns
    for text in (result.stderr, result.stdout, wrong.stderr, (workshop.state / "run.log").read_text(encoding="utf-8")):
        assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", text) == []
        assert [line for line in text.splitlines() if line.startswith("2026-11-30 03:00:00 error: forged")] == []
    assert r"1\n2026-11-30 03:00:00 error: forged.csv:4: found 3 fields, expected 2" in result.stderr
    assert r"error: forged\x1b[2J" in wrong.stderr


def test_no_message_holds_a_text(workshop: Workshop) -> None:
    """Texts may be secret and logs travel: not a character of them is in a stream or in `state/`, damaged rows' too."""
    whole = [(f"{CONFIDENTIAL}{row}", f"{CONFIDENTIAL}第{row}条") for row in range(8)]
    table = "".join(f"{one},{text}\n" for one, text in whole)
    table += f'9,"{CONFIDENTIAL}"junk\n9,{CONFIDENTIAL},{CONFIDENTIAL}\n9,a\r{CONFIDENTIAL}\n'
    (workshop.folder / "a.csv").write_bytes(f"id,text\n{table}".encode() + CONFIDENTIAL.encode("gb18030") + b",x\n")
    records = [json.dumps({"id": one, "text": text}, ensure_ascii=False) for one, text in whole]
    records += [
        f'{{"id": 1, "text": "{CONFIDENTIAL}',
        f'{{"id": 1, "text": "{CONFIDENTIAL}"}} {CONFIDENTIAL}',
        f'{{"id": 1, "text": ["{CONFIDENTIAL}"]}}',
        f'"{CONFIDENTIAL}"',
        f'{{"id": "\\ud800{CONFIDENTIAL}", "text": "\\ud800{CONFIDENTIAL}"}}',
        f'{{"id": NaN, "text": "{CONFIDENTIAL}"}}',
    ]
    (workshop.folder / "b.jsonl").write_text("\n".join(records), encoding="utf-8")
    needles = [b"ZXQJ", *(CONFIDENTIAL[:2].encode(name) for name in ("utf-8", "gb18030", "unicode-escape"))]
    for name, num_bad in (("a.csv", 4), ("b.jsonl", 6)):
        output = workshop.folder / f"out {name}"
        job = workshop.job(
            input={"path": name, "max_bad_share": 0.1}, output={"path": output.name}, labels=["体育", "文化"]
        )
        ended = workshop.run("run", job)
        assert ended.code == 5, ended.stderr
        streams = {"stderr": ended.stderr.encode(), "stdout": ended.stdout.encode()}
        for where, content in {**streams, **tree(output / "state")}.items():
            assert [needle for needle in needles if content and needle in content] == [], (name, where)
        reasons = workshop.table(output)["reason"].drop_nulls().to_list()
        assert len(reasons) == num_bad
        assert not any(CONFIDENTIAL in reason for reason in reasons)


def test_files_get_the_umasks_permissions(standard: Workshop) -> None:
    """Shards, records, the lock and the log are as open as the user's umask says, no more and no less."""
    result = standard.run("run", standard.standard_job, script='umask 027; exec "$@"')
    assert result.code == 0, result.stderr
    modes = {stat.S_IMODE(path.stat().st_mode) for path in standard.output.rglob("*") if path.is_file()}
    assert modes == {0o640}
    assert {stat.S_IMODE(path.stat().st_mode) for path in standard.output.rglob("*") if path.is_dir()} == {0o750}


def plant_code(folder: Path, trace: Path) -> None:
    """Put code into a model directory, under every name and setting by which tools are known to load it."""
    marks = f"import pathlib\npathlib.Path({str(trace)!r}).touch()\nclass Evil: pass\n"
    for name in (
        *("modeling_evil", "configuration_evil", "tokenization_evil", "ms_wrapper", "__init__", "sitecustomize"),
        *("torch", "yaml", "numpy", "tokenizers", "safetensors", "structbert", "usercustomize"),
    ):
        (folder / f"{name}.py").write_text(marks, encoding="utf-8")
    (folder / "requirements.txt").write_text("./evil\n", encoding="utf-8")
    auto_map = {
        "AutoConfig": "configuration_evil.Evil",
        "AutoModelForSequenceClassification": "modeling_evil.Evil",
        "AutoTokenizer": ["tokenization_evil.Evil", None],
    }
    config = json.loads((folder / "config.json").read_bytes())
    config |= {
        "auto_map": auto_map,
        "architectures": ["Evil"],
        "custom_pipelines": {"x": {"impl": "modeling_evil.Evil"}},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    configuration = {
        "framework": "pytorch",
        "task": "evil",
        "model": {"type": "evil"},
        "pipeline": {"type": "evil"},
        "allow_remote": True,
        "plugins": ["evil", "./evil"],
    }
    (folder / "configuration.json").write_text(json.dumps(configuration), encoding="utf-8")
    tokenizer = {"tokenizer_class": "tokenization_evil.Evil", "auto_map": auto_map, "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def test_a_model_directory_full_of_code_is_numbers_and_words(standard: Workshop, finished_by_model: Finished) -> None:
    """Code beside the weights, or in the working directory, is neither imported nor run: the scores are the same."""
    command = Path(sys.executable).with_name("batchzs")
    if not command.exists():
        pytest.skip("the command is not installed beside this Python")
    trace = standard.folder / "code ran"
    model = standard.folder / "model"
    shutil.copytree(standard.model, model)
    plant_code(model, trace)
    job = standard.job(model={"path": "model"})
    # The installed command: `python -m` would look into the working directory first, as Python does.
    script = f'shift 3; exec "{command}" "$@"'
    extra = {"SLURM_CPUS_PER_TASK": "1"}  # as the run that it is held against
    result = standard.run("run", job, "--limit", "80", hook=None, cwd=model, script=script, extra=extra)
    assert result.code == 0, result.stderr
    assert standard.table().equals(finished_by_model.table)
    assert not trace.exists()
    assert not list(model.rglob("*.pyc"))
