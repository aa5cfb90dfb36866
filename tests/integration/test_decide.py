"""`batchzs decide` through the command: what a run with those settings gives, and what no run gives."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.builders import products_keep_rows
from tests.integration.conftest import INPUT, LABELS, OUTPUT, STAND_IN

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Ended, Finished, Workshop

NEW = "新标签 [2] 'b'"
#: Options of `decide`, and the job's settings that ask for the same.
SAME: dict[str, tuple[list[str], dict[str, Any]]] = {
    "threshold": (["--threshold", "0.6"], {"threshold": 0.6}),
    "multi-label": (["--multi-label"], {"multi_label": True}),
    "multi-label from a threshold on": (
        ["--multi-label", "--threshold", "0.3"],
        {"multi_label": True, "threshold": 0.3},
    ),
    "a subset in another order": (["--labels", "娱乐,体育,球赛"], {"labels": ["娱乐", "体育,球赛"]}),
    "one label": (["--labels", "娱乐", "--threshold", "0.4"], {"labels": ["娱乐"], "threshold": 0.4}),
}


def decide(workshop: Workshop, *options: str | Path, to: str | None = NEW) -> Ended:
    """Decide from the standard output."""
    target: list[str | Path] = [] if to is None else ["--to", workshop.folder / to]
    return workshop.run("decide", workshop.output, *target, *options, hook=None)


def decided(workshop: Workshop, *options: str | Path) -> pl.DataFrame:
    """Decide, see that `verify` passes, and read the rows."""
    result = decide(workshop, *options)
    assert (result.code, result.stderr) == (0, "")
    verified = workshop.run("verify", workshop.folder / NEW, hook=None)
    assert verified.code == 0, verified.stdout
    return workshop.table(workshop.folder / NEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME)
def test_it_is_what_a_run_with_those_settings_gives(done: Workshop, name: str) -> None:
    """Every column the same, bit for bit, and `verify`, `status` and `bad` read the new output as any other."""
    options, changes = SAME[name]
    new = decided(done, *options)
    job = done.job("新 2.yaml", output={"path": "新跑的"}, **changes)
    assert done.run("run", job).code == 0
    fresh = done.table(done.folder / "新跑的")
    assert new.columns == fresh.columns
    assert new.write_ipc(None).getvalue() == fresh.write_ipc(None).getvalue()
    summaries = [done.record("summary.json", done.folder / name) for name in (NEW, "新跑的")]
    for key in ("num_rows", "statuses", "labels", "num_unlabelled", "num_quarantined"):
        assert summaries[0][key] == summaries[1][key]
    assert "finished" in done.run("status", done.folder / NEW, hook=None).stdout
    bad = [done.run("bad", done.folder / name, hook=None).stdout for name in (NEW, "新跑的")]
    assert bad[0] == bad[1]


def test_with_a_checkpoints_logits(finished_by_model: Finished, standard: Workshop) -> None:
    """The same where torch made the logits, in fp32."""
    source, target = finished_by_model.folder / OUTPUT, standard.folder / NEW
    assert standard.run("decide", source, "--to", target, "--multi-label", "--threshold", "0.6", hook=None).code == 0
    job = standard.job(multi_label=True, threshold=0.6)
    assert standard.run("run", job, "--limit", "80", hook=None, extra={"SLURM_CPUS_PER_TASK": "1"}).code == 0
    assert standard.table(target).write_ipc(None).getvalue() == standard.table().write_ipc(None).getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["娱乐,文化", "娱乐"])
def test_a_subset_of_a_checkpoints_logits(finished_by_model: Finished, standard: Workshop, labels: str) -> None:
    """A run with fewer labels has other batches, and in fp32 the same bits wherever products keep to a row's."""
    source, target = finished_by_model.folder / OUTPUT, standard.folder / NEW
    assert standard.run("decide", source, "--to", target, "--labels", labels, hook=None).code == 0
    job = standard.job(labels=labels.split(","))
    assert standard.run("run", job, "--limit", "80", hook=None, extra={"SLURM_CPUS_PER_TASK": "1"}).code == 0
    new, fresh = standard.table(target), standard.table()
    if products_keep_rows():
        assert new.write_ipc(None).getvalue() == fresh.write_ipc(None).getvalue()
    assert new["label"].equals(fresh["label"], null_equal=True)
    for found, expected in zip(new["scores"].to_list(), fresh["scores"].to_list(), strict=True):
        assert found == (None if expected is None else pytest.approx(expected, abs=1e-5))


def test_truncated_is_said_of_the_hypotheses_that_are_left(standard: Workshop) -> None:
    """A text that only the longest hypothesis cut is whole without it, in the column and in the counts."""
    engine = {"max_length": 60}
    assert standard.run("run", standard.job(engine=engine)).code == 0
    new = decided(standard, "--labels", "娱乐,文化")
    job = standard.job("新.yaml", engine=engine, labels=["娱乐", "文化"], output={"path": "新跑的"})
    assert standard.run("run", job).code == 0
    fresh = standard.table(standard.folder / "新跑的")
    assert new.write_ipc(None).getvalue() == fresh.write_ipc(None).getvalue()
    num_truncated = [
        standard.record("summary.json", standard.folder / name)["num_truncated"] for name in (OUTPUT, NEW, "新跑的")
    ]
    assert num_truncated[0] > num_truncated[1] == num_truncated[2] > 0


def test_from_multi_label_to_single_and_no_threshold(standard: Workshop) -> None:
    """The other way round."""
    assert standard.run("run", standard.job(multi_label=True, threshold=0.7)).code == 0
    new = decided(standard, "--single-label", "--threshold", "none")
    assert standard.run("run", standard.job("单.yaml", output={"path": "单"})).code == 0
    fresh = standard.table(standard.folder / "单")
    assert new.write_ipc(None).getvalue() == fresh.write_ipc(None).getvalue()


def test_merged_labels(done: Workshop) -> None:
    """A merged label stands where its first member stood, with the sum of their scores, and without logits."""
    old = done.table()
    new = decided(done, "--merge", "文体=文化,体育,球赛")
    assert "logits" not in new.columns
    scores = [[row[0] + row[1], row[2]] if row else None for row in old["scores"].to_list()]
    for found, expected in zip(new["scores"].to_list(), scores, strict=True):
        assert found == (None if expected is None else pytest.approx(expected, abs=1e-6))
    best = [None if row is None else "文体" if row[0] >= row[1] else "娱乐" for row in new["scores"].to_list()]
    assert new["label"].to_list() == best
    again = decide(done, "--threshold", "0.5", to="再")
    assert again.code == 0


def test_the_label_for_what_none_fits(done: Workshop) -> None:
    """Below the score, or where the two best are too near; the score and the logits stay."""
    old = done.table()
    new = decided(done, "--other", "其他", "--other-below", "0.6", "--other-margin", "0.3")
    assert new.drop("label").equals(old.drop("label"))
    for row in new.iter_rows(named=True):
        if row["scores"] is None:
            assert row["label"] is None
            continue
        best, second, _ = sorted(row["scores"], reverse=True)
        is_other = best < 0.6 or best - second < 0.3
        assert (row["label"] == "其他") == is_other
    assert 0 < (new["label"] == "其他").sum() < new.height


def test_the_label_for_what_none_fits_in_multi_label(done: Workshop) -> None:
    """Where no label reaches the threshold, `labels` holds it alone."""
    new = decided(done, "--multi-label", "--threshold", "0.9", "--other", "其他")
    for row in new.iter_rows(named=True):
        if row["scores"] is not None:
            is_other = max(row["scores"]) < pl.Series([0.9], dtype=pl.Float32)[0]
            assert (row["labels"] == ["其他"]) == (row["label"] == "其他") == is_other
    assert 0 < (new["label"] == "其他").sum() < new.height


@pytest.mark.slow
def test_priors_of_the_batch(done: Workshop) -> None:
    """Each score over its label's mean, over the row's sum; both are reported."""
    old = done.table()
    rows = [row for row in old["scores"].to_list() if row is not None]
    means = [sum(row[label] for row in rows) / len(rows) for label in range(3)]
    new = decided(done, "--priors", "batch")
    for before, after in zip(rows, [row for row in new["scores"].to_list() if row is not None], strict=True):
        weighted = [score / mean for score, mean in zip(before, means, strict=True)]
        assert after == pytest.approx([value / sum(weighted) for value in weighted], abs=1e-6)
    record = done.record("run.json", done.folder / NEW)["decided"]["priors"]
    assert record["num_rows"] == len(rows)
    assert list(record["values"].values()) == pytest.approx(means)


@pytest.mark.slow
def test_priors_of_texts_that_say_nothing(done: Workshop) -> None:
    """The means are those of another output's rows, which has to ask the same questions."""
    (done.folder / "空话.csv").write_text("text\nN/A\n无\n。\n", encoding="utf-8")
    plain = {"path": "空话.csv", "keep": []}
    assert done.run("run", done.job("空话.yaml", input=plain, output={"path": "空话"})).code == 0
    rows = done.table(done.folder / "空话")["scores"].to_list()
    new = decided(done, "--priors", "content-free", "--priors-from", done.folder / "空话")
    first, corrected = done.table()["scores"][0].to_list(), new["scores"][0].to_list()
    weighted = [score / (sum(row[label] for row in rows) / 3) for label, score in enumerate(first)]
    assert corrected == pytest.approx([value / sum(weighted) for value in weighted], abs=1e-6)
    job = done.job("别的.yaml", input=plain, output={"path": "别的"}, template="说的是{}")
    assert done.run("run", job).code == 0
    result = decide(done, "--priors", "content-free", "--priors-from", done.folder / "别的", to="三")
    assert result.code == 2
    assert "no label with the hypothesis" in result.stderr


def pretend_bf16(workshop: Workshop, *, rescore_margin: float | None) -> None:
    """Have the record say that the stand-in, which is exact, was a bf16 run that measured this margin."""
    path = workshop.state / "run.json"
    content = json.loads(path.read_bytes())
    content["resolved"] |= {"precision": "bf16", "rescore_margin": rescore_margin}
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.slow
def test_low_precision_marks_what_could_flip(standard: Workshop) -> None:
    """In bf16 rows near the new threshold are marked and counted, unless they were scored again in fp32."""
    assert standard.run("run", standard.standard_job).code == 0
    pretend_bf16(standard, rescore_margin=0.1)
    result = decide(standard, "--threshold", "0.6", "--json")
    assert result.code == 0, result.stderr
    new = standard.table(standard.folder / NEW)
    assert new.columns[-1] == "close"
    scored = new.filter(pl.col("scores").is_not_null())
    best = [sorted(row, reverse=True) for row in scored["scores"].to_list()]
    expected = [abs(row[0] - 0.6) <= 0.1 or row[0] - row[1] <= 0.1 for row in best]
    assert scored["close"].to_list() == [
        is_close and not rescored for is_close, rescored in zip(expected, scored["rescored"].to_list(), strict=True)
    ]
    assert not new.filter(pl.col("scores").is_null())["close"].any()
    assert json.loads(result.stdout)["close"] == new["close"].sum() > 0
    assert standard.run("verify", standard.folder / NEW, hook=None).code == 0
    # Of another kind of scores nothing was measured: the stated tolerance.
    result = decide(standard, "--multi-label", "--json", to=None)
    assert json.loads(result.stdout)["margin"] == 0.2


def test_a_carried_column_may_be_called_close(standard: Workshop) -> None:
    """Stock prices have such: the mark gets another name, and says so."""
    path = standard.folder / "股价.csv"
    path.write_text("text,close\n涨了,3.5\n跌了,2\n", encoding="utf-8")
    assert standard.run("run", standard.job(input={"path": "股价.csv", "keep": ["close"]})).code == 0
    pretend_bf16(standard, rescore_margin=None)
    result = decide(standard, "--threshold", "0.6")
    assert result.code == 0, result.stderr
    assert "a carried column is called close" in result.stderr
    new = standard.table(standard.folder / NEW)
    assert new["close"].to_list() == ["3.5", "2"]
    assert new["close_"].dtype == pl.Boolean


@pytest.mark.slow
def test_held_against_the_truth(standard: Workshop) -> None:
    """A carried column and one of the input say the same; the threshold found has the precision."""
    path = standard.folder / "带标签.csv"
    truth = [LABELS[row % 3] if row % 5 else "" for row in range(60)]
    lines = [f'第{row}条新闻,"{label}",{row}' for row, label in enumerate(truth)]
    path.write_text("text,topic,n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    source = {"path": "带标签.csv"}
    assert standard.run("run", standard.job(input={**source, "keep": ["topic"]})).code == 0
    assert standard.run("run", standard.job("二.yaml", input={**source, "keep": []}, output={"path": "二"})).code == 0
    options = ("--truth", "topic", "--precision", "0.5", "--json")
    results = [standard.run("decide", standard.folder / one, *options, hook=None) for one in (standard.output, "二")]
    for result in results:
        assert result.code == 0, result.stderr
    held = [json.loads(result.stdout)["truth"] for result in results]
    assert held[0] == held[1]
    table = standard.table().with_columns(pl.col("topic").str.strip_chars().replace("", None))
    known = table.filter(pl.col("topic").is_not_null())
    assert (held[0]["rows"], held[0]["unknown"]) == (known.height, 60 - known.height)
    assert held[0]["accuracy"] == pytest.approx((known["label"] == known["topic"]).mean())
    found = held[0]["threshold"]
    if found is not None:
        above = known.filter(pl.col("score") >= pl.lit(found["threshold"], dtype=pl.Float32))
        assert (above.height, (above["label"] == above["topic"]).mean()) == (found["num_rows"], found["precision"])
    shown = standard.run("decide", standard.output, "--truth", "topic", hook=None).stdout
    assert "expected calibration error" in shown
    assert "nothing is written without --to FOLDER" in shown
    result = standard.run("decide", standard.output, "--truth", "主题", hook=None)
    assert result.code == 2
    assert "expected one of: topic, text, n" in result.stderr
    path.unlink()
    assert standard.run("decide", standard.folder / "二", "--truth", "topic", hook=None).code == 3


@pytest.mark.slow
def test_again_goes_on_and_something_else_is_refused(done: Workshop) -> None:
    """The same command keeps what is there; other settings, a run's own output and foreign files are left alone."""
    target = done.folder / NEW
    assert decide(done, "--threshold", "0.6").code == 0
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (target / "scores").iterdir()}
    (target / "scores/part-00003.parquet").unlink()
    (target / "_SUCCESS").unlink()
    (target / "state/tmp/part-00003.parquet.abc.tmp").write_bytes(b"half")
    assert decide(done, "--threshold", "0.6").code == 0
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (target / "scores").iterdir()}
    assert {name: content for name, (content, _) in after.items()} == {name: one for name, (one, _) in before.items()}
    assert sum(before[name] != after[name] for name in before) == 1
    assert (target / "_SUCCESS").exists()
    assert not list((target / "state/tmp").iterdir())
    result = decide(done, "--threshold", "0.7")
    assert result.code == 6
    assert "threshold: begun with 0.6, now 0.7" in result.stderr
    assert decide(done, "--threshold", "0.7", "--restart").code == 0
    assert done.run("run", done.job(output={"path": NEW})).code == 6
    source = {path: path.read_bytes() for path in done.output.rglob("*") if path.is_file()}
    for to, code, says in (
        (done.output, 2, "is the output itself"),
        (done.output / "scores", 2, "lie inside each other"),
        (done.folder / INPUT, 6, "holds something else"),
        (done.standard_job, 2, "is a file"),
    ):
        result = done.run("decide", done.output, "--to", to, "--threshold", "0.7", "--restart", hook=None)
        assert (result.code, says in result.stderr) == (code, True), result.stderr
    shutil.copytree(done.output, done.folder / "别的")
    result = done.run("decide", done.output, "--to", done.folder / "别的", "--restart", hook=None)
    assert (result.code, "holds the results of a run" in result.stderr) == (6, True)
    assert {path: path.read_bytes() for path in done.output.rglob("*") if path.is_file()} == source
    result = done.run("decide", target, "--to", done.folder / "三", hook=None)
    assert (result.code, "was decided from" in result.stderr) == (2, True)


REFUSED = {
    "an unknown label": (["--labels", "文化,体育"], 'found "体育", expected some of 文化, 体育,球赛, 娱乐'),
    "Chinese commas": (["--labels", "文化，娱乐"], "ASCII commas"),
    "a label twice": (["--labels", "文化,文化"], "is given twice"),
    "a merge of nothing known": (["--merge", "甲=乙"], "expected some of"),
    "no merge at all": (["--merge", "甲"], "expected NAME=LABEL,LABEL"),
    "a merge under another label's name": (["--merge", "文化=体育,球赛"], "is a label of the run"),
    "a merge that is left out": (["--merge", "甲=文化", "--labels", "娱乐"], "is not among --labels"),
    "a label in two merges": (["--merge", "甲=文化", "--merge", "乙=文化"], "is merged into 甲 already"),
    "other without a when": (["--other", "其他"], "when is it given?"),
    "a when without other": (["--other-below", "0.4"], "what is the label called?"),
    "a margin in multi-label": (["--other", "x", "--other-margin", "0.1", "--multi-label"], "--other-below"),
    "priors of nowhere": (["--priors", "content-free"], "--priors-from OUTPUT"),
    "priors of the batch in multi-label": (["--priors", "batch", "--multi-label"], "content-free"),
    "a precision of nothing": (["--precision", "0.9"], "--truth COLUMN"),
    "a threshold beyond 1": (["--threshold", "1.5"], "expected a number from 0 to 1, or none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(done: Workshop, name: str) -> None:
    """With code 2, a message that says what to do, and nothing written."""
    options, says = REFUSED[name]
    result = decide(done, *options)
    assert (result.code, says in result.stderr) == (2, True), result.stderr
    assert not (done.folder / NEW).exists()


@pytest.mark.slow
def test_an_output_that_labels_cannot_be_made_from(standard: Workshop) -> None:
    """Not finished, or without logits."""
    assert standard.run("run", standard.standard_job, hook={**STAND_IN, "crash": "shard-published"}).code == -9
    result = decide(standard, "--threshold", "0.5")
    assert (result.code, "is not finished (7 of 8 shards" in result.stderr) == (2, True), result.stderr
    assert standard.run("run", standard.job(output={"logits": False, "path": "无"})).code == 0
    result = standard.run("decide", standard.folder / "无", "--threshold", "0.5", hook=None)
    assert (result.code, "set output.logits: true" in result.stderr) == (2, True), result.stderr
    result = standard.run("decide", standard.folder / "哪里", "--threshold", "0.5", hook=None)
    assert (result.code, "holds no run of batchzs" in result.stderr) == (2, True), result.stderr
