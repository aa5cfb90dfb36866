"""`batchzs verify` through the command: what is whole passes, and every kind of damage is found and named."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchzs.counted import counted
from batchzs.output import METADATA_KEY, write_shard

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import Finished, Workshop

#: transformers is imported for --rescore alone, so the guard, which hides it, stays away from these.
UNGUARDED = {"PYTHONPATH": ""}


def rewrite(workshop: Workshop, index: int, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write a shard with other columns, and a record that fits it: what no checksum shows."""
    path = workshop.output / f"scores/part-{index:05d}.parquet"
    table = pq.read_table(path)
    provenance = json.loads(table.schema.metadata[METADATA_KEY])
    with path.open("wb") as file:
        size_bytes, sha256 = write_shard(file, change(table), provenance, "zstd")
    edit(workshop.state / f"shards/part-{index:05d}.json", size_bytes=size_bytes, sha256=sha256)


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes), encoding="utf-8")


def with_value(table: pa.Table, name: str, row: int, value: object) -> pa.Table:
    """Put one value into a column."""
    index = table.column_names.index(name)
    values = table.column(name).to_pylist()
    values[row] = value
    return table.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type))


def with_next_score(table: pa.Table, row: int, place: int) -> pa.Table:
    """Move one of a row's scores by its last bit."""
    scores = table.column("scores").to_pylist()
    scores[row][place] = float(np.nextafter(np.float32(scores[row][place]), np.float32(0)))
    return with_value(table, "scores", row, scores[row])


def swapped(table: pa.Table, one: int, other: int) -> pa.Table:
    """Let two rows change places."""
    order = list(range(table.num_rows))
    order[one], order[other] = other, one
    return table.take(order)


def flip_byte(workshop: Workshop) -> None:
    """Change one byte in the middle of a shard."""
    path = workshop.output / "scores/part-00002.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_shard(workshop: Workshop) -> None:
    """Leave half of a shard."""
    path = workshop.output / "scores/part-00002.parquet"
    path.write_bytes(path.read_bytes()[:1000])


DAMAGE: dict[str, tuple[Callable[[Workshop], object], list[str]]] = {
    "a score": (
        lambda workshop: rewrite(workshop, 2, lambda table: with_next_score(table, 7, 1)),
        ["scores/part-00002.parquet: row 7, column scores: is not what follows from the row's logits"],
    ),
    "a label": (
        lambda workshop: rewrite(workshop, 1, lambda table: with_value(table, "label", 3, "体育,球赛")),
        ["scores/part-00001.parquet: row 3, column label: is not what follows from the row's logits"],
    ),
    "a logit": (
        lambda workshop: rewrite(
            workshop,
            1,
            lambda table: with_value(
                table, "logits", 3, [{"entailment": float("nan"), "neutral": 0.0, "contradiction": 0.0}] * 3
            ),
        ),
        ["scores/part-00001.parquet: row 3, column logits: has entailment that is no finite number"],
    ),
    "two rows": (
        lambda workshop: rewrite(workshop, 0, lambda table: swapped(table, 4, 9)),
        [
            "scores/part-00000.parquet: row 4, column source_row: holds row 9 of part-2.csv, expected row 4 of part-",
            "(and 1 more rows are not in their place)",
        ],
    ),
    "a lost row": (
        lambda workshop: rewrite(workshop, 0, lambda table: table.slice(1)),
        ["scores/part-00000.parquet: has 19 rows, expected 20", "holds row 1 of part-2.csv, expected row 0"],
    ),
    "a column": (
        lambda workshop: rewrite(workshop, 0, lambda table: table.drop_columns(["num_tokens"])),
        ["scores/part-00000.parquet: its columns are not the job's: lacks num_tokens"],
    ),
    "a type": (
        lambda workshop: rewrite(
            workshop,
            0,
            lambda table: table.set_column(2, "source_row", table.column("source_row").cast(pa.int32())),
        ),
        ["scores/part-00000.parquet: column source_row: has type int32, expected int64"],
    ),
    "a quarantined row's score": (
        lambda workshop: rewrite(workshop, 2, lambda table: with_value(table, "score", 11, 0.5)),
        ["scores/part-00002.parquet: row 11, column score: has a value, but the row is not ok"],
    ),
    "a status": (
        lambda workshop: rewrite(workshop, 2, lambda table: with_value(table, "status", 11, "坏")),
        ["scores/part-00002.parquet: row 11, column status: is '坏', expected one of ok, empty, bad_record"],
    ),
    "a deleted shard": (
        lambda workshop: (workshop.output / "scores/part-00005.parquet").unlink(),
        ["scores/part-00005.parquet: is missing; run the job again", "_SUCCESS: is there, though shards are missing"],
    ),
    "a foreign file": (
        lambda workshop: (workshop.output / "scores/笔记.txt").touch(),
        ["scores/笔记.txt: is none of this run's 8 shards"],
    ),
    "a shard of another place": (
        lambda workshop: shutil.copy(
            workshop.output / "scores/part-00001.parquet", workshop.output / "scores/part-00003.parquet"
        ),
        ["scores/part-00003.parquet: its footer says shard 1, expected 3", "its record says", "expected row 60 of"],
    ),
    "a byte": (flip_byte, ["scores/part-00002.parquet: its bytes have SHA-256", "its record says"]),
    "half a shard": (cut_shard, ["scores/part-00002.parquet: has 1000 bytes", "cannot be read as Parquet"]),
    "a record's number": (
        lambda workshop: edit(workshop.state / "shards/part-00004.json", statuses={"ok": 21}),
        ["state/shards/part-00004.json: says statuses {'ok': 21}, the shard holds {'", "state/summary.json: says stat"],
    ),
    "a torn record": (
        lambda workshop: (workshop.state / "shards/part-00004.json").write_text('{"index": 4', encoding="utf-8"),
        ["state/shards/part-00004.json: is damaged: remove it and run the job again"],
    ),
    "the summary": (
        lambda workshop: edit(workshop.state / "summary.json", num_rows=151),
        ["state/summary.json: says num_rows 151, the shards' records add up to 150"],
    ),
    "_SUCCESS": (
        lambda workshop: (workshop.output / "_SUCCESS").unlink(),
        ["_SUCCESS: is missing, though every shard is there; run the job again"],
    ),
    "the run's record": (
        lambda workshop: edit(workshop.state / "run.json", num_shards=9),
        ["state/run.json: says num_shards 9, the frozen input gives 8"],
    ),
    "an input file": (
        lambda workshop: (workshop.input / "part-10.csv").write_text("id,text\n", encoding="utf-8"),
        ["part-10.csv: is not what it was when these results were begun"],
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_named(done: Workshop, kind: str) -> None:
    """Each kind of damage gives a finding that says which file, row and column."""
    damage, expected = DAMAGE[kind]
    damage(done)
    found = "\n".join(done.findings())
    for text in expected:
        assert text in found


def test_a_finding_is_shown_and_ends_with_its_code(done: Workshop) -> None:
    """A line on standard output for each, code 9, and the number of them in the last message."""
    DAMAGE["two rows"][0](done)
    result = done.run("verify", done.output)
    assert result.code == 9
    findings = done.findings()
    assert result.stdout.splitlines()[: len(findings)] == findings
    assert f"{counted(len(findings), 'finding')}: these results are not what the run wrote" in result.stderr


def test_an_undamaged_output_passes_and_nothing_is_written(done: Workshop) -> None:
    """A short summary, code 0, no lock taken, no file touched."""
    before = {path: path.stat().st_mtime_ns for path in done.folder.rglob("*")}
    result = done.run("verify", done.output, extra={"GUARD_FORBIDS": "torch", "GUARD_NETWORK": "1"})
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith("8 of 8 shards, 150 rows, ")
    assert result.stdout.endswith("everything is as it should be\n")
    assert {path: path.stat().st_mtime_ns for path in done.folder.rglob("*")} == before


def test_json_is_one_object(done: Workshop) -> None:
    """With --json standard output holds one object with every finding, not only the first ones."""
    for index in range(8):
        (done.output / f"scores/部分 {index}").touch()
        (done.output / f"scores/part-{index:05d}.parquet").unlink()
        (done.state / f"shards/part-{index:05d}.json").unlink()
        (done.output / f"scores/x-{index}").touch()
    result = done.run("verify", done.output, "--json")
    assert result.code == 9
    found = json.loads(result.stdout)
    assert len(found["findings"]) == 25
    what = "is none of this run's 8 shards: move it away"
    assert found["findings"][3] == {"file": "scores/x-3", "row": None, "column": None, "what": what}
    assert (found["shards"], found["shards_read"], found["rows"]) == (8, 0, 0)
    shown = done.run("verify", done.output).stdout.splitlines()
    assert len(shown) == 20 + 3
    assert shown[20] == "... and 5 more (--json has all)"


def test_the_input_need_not_be_there(done: Workshop) -> None:
    """Results are checked without the input; that it was not compared is said."""
    shutil.rmtree(done.input)
    result = done.run("verify", done.output)
    assert result.code == 0
    assert "note: 2 of 2 input files cannot be read any more and were not compared" in result.stdout


@pytest.mark.slow
def test_a_run_under_way_lacks_shards(standard: Workshop) -> None:
    """What is missing is named, what is there is checked, and the same command makes it whole."""
    hook = {"stand_in": True, "crash": "shard-published:3"}
    assert standard.run("run", standard.standard_job, hook=hook).code == -9
    result = standard.run("verify", standard.output)
    assert result.code == 9
    assert "scores/part-00002.parquet" not in result.stdout
    assert "scores/part-00003.parquet: is missing; run the job again" in result.stdout
    assert "3 of 8 shards, 60 rows" in result.stdout
    assert standard.run("run", standard.standard_job).code == 0
    (standard.state / "journal/part-00003.journal").touch()
    result = standard.run("verify", standard.output)
    assert result.code == 0
    assert "note: state/journal/part-00003.journal: is left over of a complete shard" in result.stdout


def test_a_record_made_again_still_adds_up(done: Workshop) -> None:
    """A lost record is a finding; the next run makes it from the shard, without times, and then all is well."""
    (done.state / "shards/part-00004.json").unlink()
    result = done.run("verify", done.output)
    assert "state/shards/part-00004.json: is missing: run the job again" in result.stdout
    assert done.run("run", done.standard_job).code == 0
    result = done.run("verify", done.output)
    assert result.code == 0, result.stdout


@pytest.mark.parametrize("name", ["run.json", "inputs.json"])
def test_a_damaged_state_is_one_clear_message(done: Workshop, name: str) -> None:
    """Where nothing can be held against anything, that is said in a line, by `bad` too."""
    content = (done.state / name).read_bytes()
    (done.state / name).write_bytes(content[: len(content) // 2])
    for command in ("verify", "bad"):
        result = done.run(command, done.output)
        assert (result.code, result.stdout) == (9, "")
        assert f"state/{name}: is damaged (" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_what_is_no_output_is_refused(done: Workshop) -> None:
    """A folder without a run, or none at all, is a fault of the command line."""
    for command, path in (("verify", done.output / "scores"), ("bad", done.folder / "nowhere")):
        result = done.run(command, path)
        assert result.code == 2
        assert "holds no run of batchzs" in result.stderr
    (done.state / "inputs.json").unlink()
    assert "inputs.json: is damaged (is missing): run the job again" in done.run("verify", done.output).stderr
    edit(done.state / "run.json", format_version=99)
    assert done.run("verify", done.output).code == 6


@pytest.fixture
def by_model(workshop: Workshop, finished_by_model: Finished) -> Workshop:
    """A folder with 80 rows that the checkpoint scored."""
    shutil.copytree(finished_by_model.folder, workshop.folder, dirs_exist_ok=True)
    for name in ("run.json", "inputs.json"):
        path = workshop.state / name
        content = path.read_text(encoding="utf-8")
        path.write_text(content.replace(str(finished_by_model.folder), str(workshop.folder)), encoding="utf-8")
    return workshop


@pytest.mark.slow
def test_rows_scored_again_agree(by_model: Workshop) -> None:
    """In fp32 the plain path gives the stored scores within 1e-5 and flips no label."""
    result = by_model.run("verify", by_model.output, "--rescore", "60", "--json", extra=UNGUARDED, hook=None)
    assert (result.code, result.stderr) == (0, ""), result.stderr + result.stdout
    rescored = json.loads(result.stdout)["rescored"]
    assert (rescored["rows"], rescored["flipped_labels"]) == (60, 0)
    assert rescored["largest_difference"] < 1e-5


@pytest.mark.slow
def test_scores_that_no_checksum_betrays_are_found_by_scoring_again(by_model: Workshop) -> None:
    """Logits and scores changed together, with a fitting record, pass every check but this one."""

    def shift(table: pa.Table) -> pa.Table:
        """Move the logits of row 5 and what follows from them to row 6, and back."""
        for name in ("label", "score", "scores", "logits"):
            values = table.column(name).to_pylist()
            table = with_value(with_value(table, name, 5, values[6]), name, 6, values[5])
        return table

    rewrite(by_model, 1, shift)
    assert by_model.findings() == []
    result = by_model.run("verify", by_model.output, "--rescore", "1000", extra=UNGUARDED, hook=None)
    assert result.code == 9
    assert "scores/part-00001.parquet: row " in result.stdout
    assert "further apart than 0.0001, which rounding in fp32 explains" in result.stdout
    assert "76 rows scored again in fp32" in result.stdout
    assert ", 2 labels flipped" in result.stdout  # the other rows agree


def test_scoring_again_needs_the_same_model_and_input(by_model: Workshop, tmp_path: Path) -> None:
    """A model or an input that is gone or changed is refused with its own code, before the long part."""
    (by_model.input / "part-2.csv").rename(tmp_path / "away.csv")
    result = by_model.run("verify", by_model.output, "--rescore", "5", hook=None)
    assert (result.code, result.stdout) == (3, "")
    assert "part-2.csv: cannot be read any more" in result.stderr
    (tmp_path / "away.csv").rename(by_model.input / "part-2.csv")
    model = tmp_path / "model"
    shutil.copytree(by_model.model, model)
    record = by_model.record("run.json")
    record["job"]["model"]["path"] = str(model)
    edit(by_model.state / "run.json", **record)
    with (model / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("\n")
    result = by_model.run("verify", by_model.output, "--rescore", "5", hook=None)
    assert (result.code, result.stdout) == (4, "")
    shutil.rmtree(model)
    assert by_model.run("verify", by_model.output, "--rescore", "5", hook=None).code == 4


def test_a_stand_ins_scores_are_not_scored_again(done: Workshop) -> None:
    """There is no model to score with."""
    result = done.run("verify", done.output, "--rescore", "5")
    assert (result.code, result.stdout) == (2, "")
    assert "stand-in" in result.stderr
