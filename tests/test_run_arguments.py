"""What a user says of a run, written out for a script: the same run from any folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchzs.job import load_job
from batchzs.plan import Selection
from batchzs.slurm.run_arguments import RunArguments, absolute_overrides
from tests.builders import odd_folder


def test_every_option_is_passed_on() -> None:
    """In an order that `batchzs run` takes; the seed only where it means something."""
    arguments = RunArguments(Path("/jobs/新闻 1.yaml"), ("engine.device=cpu",), Selection(None, 20, 3), offline=True)
    assert arguments.run_words() == [
        *("/jobs/新闻 1.yaml", "--set", "engine.device=cpu", "--sample", "20", "--seed", "3", "--offline"),
    ]
    first_rows = RunArguments(Path("/jobs/a.yaml"), (), Selection(10, None, 0), log_format="json")
    assert first_rows.run_words() == ["/jobs/a.yaml", "--log-format", "json", "--limit", "10"]
    assert first_rows.job_words() == ["/jobs/a.yaml", "--log-format", "json"]


def test_a_relative_job_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script starts wherever Slurm likes."""
    folder = odd_folder(tmp_path)
    monkeypatch.chdir(folder)
    assert RunArguments(Path("a.yaml"), (), Selection()).run_words() == [str(folder / "a.yaml")]
    appending = RunArguments(Path("/a.yaml"), (), Selection(), new_files=True)
    assert appending.run_words() == ["/a.yaml", "--new-files"]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("input.path=甲 [1].csv", ("input.path", "{}/甲 [1].csv")),
        ("input.path=[a.csv, ../b.csv, /c.csv]", ("input.path", ["{}/a.csv", "{}/../b.csv", "/c.csv"])),
        ("output.path=out/'x'", ("output.path", "{}/out/'x'")),
        ("output={path: out, prefix: zs_}", ("output", {"path": "{}/out", "prefix": "zs_"})),
        ("labels=标签.txt", ("labels", "{}/标签.txt")),
        ("model.path=m", ("model.path", "{}/m")),
        ("model.cache_dir=c", ("model.cache_dir", "{}/c")),
        ("labels=[财经, 体育]", None),
        ("output.path=/out", None),
        ("input.separator='/'", None),
        ("model.id=damo/x", None),
        ("engine.device=cpu", None),
        ('input.csv.delimiter="\\t"', None),
    ],
)
def test_only_paths_change(
    override: str, expected: tuple[str, object] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is no relative path stays letter by letter; paths become the ones that the job would have."""
    folder = odd_folder(tmp_path)
    monkeypatch.chdir(folder)
    (found,) = absolute_overrides([override])
    if expected is None:
        assert found == override
        return
    key, value = expected
    text = json.dumps(value, ensure_ascii=False).replace("{}/../", f"{tmp_path}/").replace("{}", str(folder))
    assert found == f"{key}={text}"


def test_the_job_is_the_same_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with the options as given here, and as written out there."""
    folder = odd_folder(tmp_path)
    job = folder / "新闻.yaml"
    job.write_text(
        "input: {path: a.csv, text: t}\nlabels: [一, 二]\nmodel: {path: m}\noutput: {path: o}\n", encoding="utf-8"
    )
    (folder / "标 签.txt").write_text("甲\n乙\n", encoding="utf-8")
    overrides = ["input.path=[x/*.csv, 'y [1].csv']", "labels=标 签.txt", "output.path=../结果"]
    monkeypatch.chdir(folder)
    here = load_job(job, overrides)
    written = absolute_overrides(overrides)
    monkeypatch.chdir(tmp_path)
    assert load_job(job, written) == here
