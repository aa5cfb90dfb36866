"""A look at some rows is what a run reads at those positions, without reading the rest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from batchzs.errors import InputError, UsageError
from batchzs.inputs import preview
from batchzs.inputs.discovery import find_files
from batchzs.inputs.freeze import freeze_inputs
from batchzs.inputs.preview import Preview, read_preview
from batchzs.inputs.read import read_rows
from batchzs.plan import Selection, plan_shards
from batchzs.prepare import read_spec
from tests.builders import make_job, odd_folder

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.inputs.rows import ShardRows
    from batchzs.inputs.spec import ReadSpec

FORMATS = ("csv", "tsv", "jsonl", "parquet")


def write(folder: Path, file_format: str, sizes: tuple[int, ...] = (7, 0, 40)) -> ReadSpec:
    """Write files of one format, whose texts hold what texts hold, and say how to read them."""
    for number, size in enumerate(sizes):
        texts = [f'第{row}条："引号"，\n换行\t{number}' if row % 3 else None for row in range(size)]
        path = folder / f"新闻 {number}.{file_format}"
        if file_format == "jsonl":
            lines = [json.dumps({"text": text, "类": row % 4}, ensure_ascii=False) for row, text in enumerate(texts)]
            path.write_text("".join(f"{line}\n\n" for line in lines) or "\n", encoding="utf-8")
            continue
        frame = pl.DataFrame({"text": texts, "类": list(range(size))}, schema={"text": pl.String, "类": pl.Int64})
        if file_format == "parquet":
            frame.write_parquet(path)
        else:
            frame.write_csv(path, separator="\t" if file_format == "tsv" else ",")
    return read_spec(make_job(input={"path": [str(folder)], "text": ["text"], "keep": ["类"]}))


def as_in_a_run(spec: ReadSpec, selection: Selection) -> ShardRows:
    """The same rows by way of the first pass."""
    inputs = freeze_inputs(spec, find_files(spec, exclude=[]))
    (shard,) = plan_shards([file.num_rows for file in inputs.files], 10_000, selection)
    return read_rows(spec, inputs, shard.spans)


def look(spec: ReadSpec, selection: Selection, column: str | None = "类") -> Preview:
    """Read a preview."""
    return read_preview(spec, find_files(spec, exclude=[]), selection, column)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("limit", [1, 7, 8, 500])
def test_the_first_rows_are_a_runs(tmp_path: Path, file_format: str, limit: int) -> None:
    """Texts, positions and the carried column; over empty files and over files' ends."""
    spec = write(odd_folder(tmp_path), file_format)
    found, run = look(spec, Selection(limit=limit)), as_in_a_run(spec, Selection(limit=limit))
    assert found.rows.texts == run.texts
    assert found.rows.source_files == run.source_files
    assert found.rows.source_rows.tolist() == run.source_rows.tolist()
    assert found.rows.carried["类"].to_list() == run.carried["类"].cast(pl.String).to_list()
    assert found.num_seen_files == (1 if limit <= 7 else 3)


@pytest.mark.parametrize("file_format", FORMATS)
def test_random_rows_are_those_that_a_run_draws(tmp_path: Path, file_format: str) -> None:
    """As long as the whole input was there to be drawn from."""
    spec = write(odd_folder(tmp_path), file_format)
    found, run = look(spec, Selection(sample=9, seed=4)), as_in_a_run(spec, Selection(sample=9, seed=4))
    assert found.is_whole
    assert (found.num_seen_rows, found.num_files) == (47, 3)
    assert found.rows.source_rows.tolist() == run.source_rows.tolist()
    assert found.rows.texts == run.texts


@pytest.mark.parametrize("file_format", ["csv", "jsonl"])
def test_of_large_text_files_the_beginnings_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: str
) -> None:
    """No more of a file than its share is looked at, and the rows read there are right to the last one."""
    spec = write(odd_folder(tmp_path), file_format, sizes=(400, 400, 400))
    monkeypatch.setattr(preview, "MAX_TEXT_BYTES", 9000)
    monkeypatch.setattr(preview, "BLOCK_RECORDS", 16)
    found = look(spec, Selection(sample=5000))
    assert not found.is_whole
    assert 3 * 30 < found.num_seen_rows < 3 * 200
    run = as_in_a_run(spec, Selection())
    text_at = dict(zip(zip(run.source_files, run.source_rows.tolist(), strict=True), run.texts, strict=True))
    seen = zip(found.rows.source_files, found.rows.source_rows.tolist(), strict=True)
    assert [text_at[place] for place in seen] == found.rows.texts


def test_of_many_files_a_few_are_looked_at(tmp_path: Path) -> None:
    """The others are not even opened."""
    spec = write(odd_folder(tmp_path), "csv", sizes=(3,) * 40)
    found = look(spec, Selection(sample=500))
    assert (found.num_seen_files, found.num_files) == (preview.MAX_SAMPLED_FILES, 40)
    assert found.rows.num_rows == 3 * preview.MAX_SAMPLED_FILES


def test_what_lies_behind_is_not_looked_at(tmp_path: Path) -> None:
    """A quote that is never closed refuses a run; the rows before it can be shown."""
    path = odd_folder(tmp_path) / "坏.csv"
    path.write_text("text\n一\n坏,了\n三\n" + "四\n" * 500_000 + '"\n', encoding="utf-8")
    found = look(read_spec(make_job(input={"path": [str(path)], "text": ["text"]})), Selection(limit=3), None)
    assert found.rows.texts == ["一", "", "三"]
    assert found.rows.statuses == ["ok", "bad_record", "ok"]
    assert "坏.csv:3" in (found.rows.reasons[1] or "")


def test_a_column_may_come_from_folder_names(tmp_path: Path) -> None:
    """Where the job keeps them; without a column nothing is carried."""
    for topic in ("体育", "科技"):
        folder = tmp_path / f"topic={topic}"
        folder.mkdir()
        (folder / "新闻.csv").write_text("text\n一\n二\n", encoding="utf-8")
    spec = read_spec(make_job(input={"path": [str(tmp_path)], "text": ["text"], "partitions": "keep"}))
    assert look(spec, Selection(limit=3), "topic").rows.carried["topic"].to_list() == ["体育", "体育", "科技"]
    assert look(spec, Selection(limit=3), None).rows.carried.width == 0


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_column_that_is_not_there_is_refused(tmp_path: Path, file_format: str) -> None:
    """The message lists those that are."""
    spec = write(odd_folder(tmp_path), file_format)
    with pytest.raises(UsageError, match="no column '别的'; expected one of: text, 类"):
        look(spec, Selection(limit=3), "别的")
    other = read_spec(make_job(input={"path": list(spec.path), "text": ["正文"]}))
    with pytest.raises(InputError, match="正文"):
        look(other, Selection(limit=3), None)


def test_a_column_that_holds_no_labels_is_refused(tmp_path: Path) -> None:
    """A number with decimals is no label."""
    path = tmp_path / "数.parquet"
    pl.DataFrame({"text": ["一"], "分": [0.5]}).write_parquet(path)
    with pytest.raises(UsageError, match="of type Float64, expected one label a row"):
        look(read_spec(make_job(input={"path": [str(path)], "text": ["text"]})), Selection(limit=1), "分")
