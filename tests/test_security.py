"""What others write makes batchzs neither run code, nor write elsewhere, nor say their words; see docs/security.md."""

from __future__ import annotations

import io
import json
import logging
import sys
import textwrap
from typing import TYPE_CHECKING

import polars as pl
import pytest

from batchzs.durable import hold_lock, publish_bytes, refuse_links
from batchzs.errors import InputError, LockedError, MachineError, ModelError, UsageError
from batchzs.escape import one_line
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.job import load_job
from batchzs.labels import fill_template, template_fault
from batchzs.logs import ROOT, SEVERAL_LINES, fields, log_to_file, log_to_stream
from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.tokenizer import load_tokenizer
from batchzs.prepare import read_spec
from tests.builders import make_job, network_config, odd_folder, write_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORGED = "甲\n2026-11-30 03:00:00 error: all is lost"
logger = logging.getLogger(f"{ROOT}.security")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An output's folder, with the folder of temporary files beside it."""
    (tmp_path / "tmp").mkdir()
    return odd_folder(tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Somebody's file that no run may touch."""
    path = tmp_path / "theirs"
    path.write_bytes(b"theirs")
    return path


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """Put the logger of batchzs back, handlers closed."""
    root = logging.getLogger(ROOT)
    before = (list(root.handlers), root.level, root.propagate)
    yield
    for handler in root.handlers:
        if handler not in before[0]:
            handler.close()
    root.handlers, root.level, root.propagate = before


# Links


def test_a_link_in_a_files_place_is_replaced_and_its_target_stays(folder: Path, outside: Path) -> None:
    """A record or a shard takes its name from whatever had it."""
    path = folder / "run.json"
    path.symlink_to(outside)
    publish_bytes(path, b"ours", folder.parent / "tmp")
    assert not path.is_symlink()
    assert path.read_bytes() == b"ours"
    assert outside.read_bytes() == b"theirs"


def test_a_link_at_a_temporary_name_gets_no_byte(folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who guesses a temporary name stops the file, and turns it nowhere."""
    monkeypatch.setattr("batchzs.durable._random_name", lambda: "guessed")
    (folder.parent / "tmp" / "a.guessed.tmp").symlink_to(outside)
    with pytest.raises(MachineError, match="cannot be written: File exists"):
        publish_bytes(folder / "a", b"ours", folder.parent / "tmp")
    assert outside.read_bytes() == b"theirs"
    assert not (folder / "a").exists()


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize("is_dangling", [False, True])
def test_the_lock_and_the_log_are_not_opened_through_links(folder: Path, outside: Path, *, is_dangling: bool) -> None:
    """The lock is emptied and the log is added to: through a link that would be somebody's file."""
    if is_dangling:
        outside.unlink()
    for name in ("run.lock", "run.log"):
        (folder / name).symlink_to(outside)
    said = r"run\.{}: is a symbolic link, and batchzs writes through none inside an output: remove it"
    with pytest.raises(MachineError, match=said.format("lock")), hold_lock(folder / "run.lock", "me"):
        pytest.fail("the lock was given")
    with pytest.raises(MachineError, match=said.format("log")):
        log_to_file(folder / "run.log")
    assert outside.exists() is not is_dangling
    assert is_dangling or outside.read_bytes() == b"theirs"


def test_links_are_named(folder: Path, outside: Path) -> None:
    """Files, folders and names that are not there yet are fine."""
    refuse_links(folder, outside, folder / "absent")
    (folder / "state").symlink_to(folder.parent / "tmp")
    with pytest.raises(MachineError, match="state: is a symbolic link"):
        refuse_links(folder, folder / "state")


def test_a_strange_lock_files_words_are_cut(folder: Path) -> None:
    """The holder's words go into a message, and others may have written them."""
    import fcntl

    with (folder / "run.lock").open("wb") as file:
        file.write(b"\xff" + b"x" * 2**20)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LockedError) as caught, hold_lock(folder / "run.lock", "me"):
            pytest.fail("the lock was given twice")
    assert len(str(caught.value)) < 1000


# Messages


@pytest.mark.usefixtures("logging_as_it_was")
def test_a_name_forges_no_line_and_works_no_terminal(tmp_path: Path) -> None:
    """Line ends of any kind, escape sequences in 7 and 8 bits, and turned reading stand as escapes, in the log too."""
    name = f"{FORGED}\r\x1b[2J\x9b31m\x07\x85\u2028\u202egnp\u2066.csv"
    stream = io.StringIO()
    log_to_stream(stream, "plain")
    log_to_file(tmp_path / "run.log")
    logger.warning("%s: skipped", name)
    logger.warning("a surrogate %s", "\udcff")
    text = (tmp_path / "run.log").read_text(encoding="utf-8")
    lines = text.split("\n")
    shown = r"甲\n2026-11-30 03:00:00 error: all is lost\r\x1b[2J\x9b31m\x07\x85\u2028\u202egnp\u2066.csv"
    assert lines[0].endswith(f" warning: {shown}: skipped")
    assert len(lines) == 3
    assert text.splitlines() == lines[:-1]
    assert stream.getvalue().split("\n")[0] == lines[0]


@pytest.mark.usefixtures("logging_as_it_was")
def test_json_lines_hold_names_as_they_are_in_ascii_escapes() -> None:
    """A reader of JSON gets the very name; what shows the file itself gets nothing that acts."""
    name = f"{FORGED}\x1b[2J\x9b31m\x7f\u2028\u202e"
    stream = io.StringIO()
    log_to_stream(stream, "json")
    logger.warning("%s", name, extra=fields("skipped", file=name))
    assert one_line(stream.getvalue()[:-1]) == stream.getvalue()[:-1]
    entry = json.loads(stream.getvalue())
    assert (entry["message"], entry["file"]) == (name, name)


@pytest.mark.usefixtures("logging_as_it_was")
def test_lines_that_belong_together_are_indented() -> None:
    """A traceback's last line holds an exception's words, which may hold anything: it begins no line either."""
    stream = io.StringIO()
    log_to_stream(stream, "plain")
    logger.error("a.yaml:1: one\na.yaml:2: two \x1b[2J", extra=SEVERAL_LINES)
    try:
        io.StringIO(newline=FORGED)
    except ValueError:
        logger.exception("unexpected error")
    lines = stream.getvalue().splitlines()
    assert [line[:4] == "    " for line in lines[:3]] == [False, True, False]
    assert lines[1] == r"    a.yaml:2: two \x1b[2J"
    assert [line for line in lines if line.startswith("2026-11-30 03:00:00 error:")] == []
    assert any("error: all is lost" in line for line in lines)


SECRET_ROWS = "".join(f"{row},绝密ZXQJ第{row}条\n" for row in range(60))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("unclosed quote.csv", f'id,text\n{SECRET_ROWS}9,"绝密ZXQJ\n9,绝密ZXQJ\n'.encode()),
        ("undecodable.csv", f"id,text\n{SECRET_ROWS}".encode("gb18030")),
        ("ragged.csv", f"id,text,more\n{SECRET_ROWS}".encode()),
        ("no json.jsonl", SECRET_ROWS.encode()),
        ("torn.parquet", b""),
        ("list.parquet", b""),
    ],
)
def test_a_refused_input_is_not_quoted(tmp_path: Path, name: str, content: bytes) -> None:
    """A whole file may be refused; the message has its name, a line, an offset, and nothing that stands there."""
    path = tmp_path / name
    texts: list[object] = [f"绝密ZXQJ第{row}条" for row in range(60)]
    if name == "list.parquet":
        texts = [[text] for text in texts]
    if content:
        path.write_bytes(content)
    else:
        pl.DataFrame({"text": texts}).write_parquet(path, compression="uncompressed")
        path.write_bytes(path.read_bytes().replace("绝密ZXQJ第7条".encode(), b"\xffZXQJ".ljust(17)))
    spec = read_spec(make_job(input={"path": [str(path)], "text": ["text"]}))
    with pytest.raises(InputError) as caught:
        freeze_inputs(spec, find_files(spec, []))
    assert name in str(caught.value)
    assert "ZXQJ" not in str(caught.value)
    assert "绝密" not in str(caught.value)


# Job files and label files


BOMB = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]" for n in range(12))


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("!!python/object/apply:pathlib.Path.touch [TRACE]", "tag"),
        ("!!python/object/new:pathlib.PosixPath [TRACE]", "tag"),
        ("!!python/name:os.system", "tag"),
        ("!!python/module:evil", "tag"),
        ("!evil x", "tag"),
        (BOMB, "more than 50,000 values"),
        ("&a [*a]", "holds itself"),
        ("[" * 5000 + "]" * 5000, "nested more than 32 deep"),
        ("x: " * 5000, "not valid YAML"),
        ("- " * 5000 + "x", "nested more than 32 deep"),
    ],
    ids=lambda value: value[:30].replace("\n", " "),
)
@pytest.mark.parametrize("place", ["job", "label file", "--set"])
def test_yaml_makes_values_and_nothing_else(tmp_path: Path, place: str, yaml: str, message: str) -> None:
    """Tags are refused and run nothing; aliases, depth and their like are bounded, in all three places."""
    trace = tmp_path / "code ran"
    yaml = yaml.replace("TRACE", str(trace))
    (tmp_path / "labels.yaml").write_text(yaml if place == "label file" else "[a]", encoding="utf-8")
    value = yaml if place == "job" else "labels.yaml"
    job = tmp_path / "job.yaml"
    job.write_text(f"labels:\n{textwrap.indent(value, '  ')}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        load_job(job, [f"labels={yaml}"] if place == "--set" else [])
    assert not trace.exists()


@pytest.mark.parametrize("name", ["job.yaml", "labels.yaml", "labels.txt", "labels.csv"])
def test_what_people_write_is_small(tmp_path: Path, name: str) -> None:
    """A file of gigabytes is not read to its end, wherever the job names it: /dev/zero would have no end."""
    (tmp_path / "job.yaml").write_text(f"labels: {name}\n", encoding="utf-8")
    with (tmp_path / name).open("wb") as file:
        file.truncate(2**40)  # takes no room on the disk
    with pytest.raises(UsageError, match="larger than 4 MiB"):
        load_job(tmp_path / "job.yaml")


@pytest.mark.parametrize("template", ["{0.__class__}", "{.x}{}", "{!r}", "{:9999999999}", "{a}", "{{}}{}", "{}{}"])
def test_a_template_reaches_nothing(template: str) -> None:
    """Names are put in by replacement: no attribute, no index, no width of a billion."""
    assert template_fault(template) is not None


@pytest.mark.parametrize("name", ["{0.__class__}", "{}", "%s", "%(levelname)s", "$HOME", r"\1", "{:9999999999}"])
def test_a_label_is_taken_literally(name: str) -> None:
    """Whatever it looks like to a formatter."""
    assert template_fault("主题{}。") is None
    assert fill_template("主题{}。", name) == f"主题{name}。"


# Model directories


@pytest.fixture
def model(folder: Path) -> Path:
    """A checkpoint that is all there but for its weights, which nothing here loads."""
    (folder / "config.json").write_text(json.dumps(network_config()), encoding="utf-8")
    write_vocabulary(folder)
    (folder / "pytorch_model.bin").touch()
    return folder


def test_a_pickles_modules_are_not_imported(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle names what it wants by module, and importing is running; not even an environment variable allows it."""
    from batchzs.models.weights import load_weights

    trace = model / "code ran"
    (model / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\ndef run(): return {{}}", encoding="utf-8")
    (model / "pytorch_model.bin").write_bytes(b"\x80\x02cevil\nrun\n)R.")
    monkeypatch.syspath_prepend(model)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(ModelError, match="holds pickled objects and not tensors alone"):
        load_weights(read_checkpoint(model))
    assert "evil" not in sys.modules
    assert not trace.exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["[" * 200_000, '{"a":' * 200_000, "9" * 10_000])
def test_json_that_is_made_to_break_a_reader_is_a_model_error(model: Path, name: str, content: str) -> None:
    """Thousands of brackets end Python's recursion, thousands of digits its integers: a plain message all the same."""
    (model / name).write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match="JSON"):
        load_tokenizer(read_checkpoint(model))


def test_a_network_of_a_billion_layers_is_refused(model: Path) -> None:
    """The list of its parameters alone would fill the memory."""
    (model / "config.json").write_text(json.dumps(network_config(num_hidden_layers=10**9)), encoding="utf-8")
    with pytest.raises(ModelError, match="num_hidden_layers is 1000000000, expected"):
        read_checkpoint(model)
