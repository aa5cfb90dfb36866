"""`--json` of `run`, `finish`, `slurm`, `fetch` and `init`: one object on standard output and nothing else there."""

from __future__ import annotations

import hashlib
import json
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.surroundings import HUB_ID, SBATCH, cache_model, write_sbatch

if TYPE_CHECKING:
    from tests.integration.conftest import Ended, Workshop

#: What `run` and `finish` say beside the summary.
ADDED = {"wall_s", "is_finished", "covers", "part"}


def only_object(ended: Ended, code: int = 0) -> dict[str, Any]:
    """The object that a command printed, alone and in one line."""
    assert ended.code == code, ended.stderr
    (line,) = ended.stdout.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def summary_part(found: dict[str, Any]) -> dict[str, Any]:
    """What of an object is the summary's."""
    assert set(found) >= ADDED
    return {key: value for key, value in found.items() if key not in ADDED}


def test_a_run_prints_its_summary(standard: Workshop) -> None:
    """What is in summary.json, and how long it took; again, where all is done, the same without a time."""
    found = only_object(standard.run("run", standard.standard_job, "--json", "--log-format", "json"))
    assert summary_part(found) == standard.record("summary.json")
    assert found["num_rows"] == 150
    assert found["wall_s"] > 0
    assert (found["is_finished"], found["covers"], found["part"]) == (True, "job", None)
    again = only_object(standard.run("run", standard.standard_job, "--json"))
    assert again == found | {"wall_s": None}


def test_too_many_quarantined_rows(standard: Workshop) -> None:
    """The numbers are there though the code is 5, from `run`, `run` again, and `finish`."""
    job = standard.job(input={"max_bad_share": 0.001})
    for arguments in (("run", job), ("run", job), ("finish", job)):
        ended = standard.run(*arguments, "--json")
        found = only_object(ended, code=5)
        assert summary_part(found) == standard.record("summary.json")
        assert (found["num_quarantined"], found["max_bad_share"]) == (2, 0.001)
        assert "more than input.max_bad_share allows" in ended.stderr


def test_an_input_without_rows(standard: Workshop) -> None:
    """Zeros, and no number that JSON does not have."""
    for path in standard.input.glob("*.csv"):
        path.write_text("id,text\n", encoding="utf-8")
    ended = standard.run("run", standard.standard_job, "--json")
    found = only_object(ended)
    assert (found["num_rows"], found["pairs_per_s"], found["quarantined_share"]) == (0, 0, 0)
    assert "NaN" not in ended.stdout


def test_parts_say_what_is_missing_elsewhere(standard: Workshop) -> None:
    """A part has its own numbers while others are missing; the last one has everybody's; `finish` has them again."""
    first = only_object(standard.run("run", standard.standard_job, "--task", "1/2", "--json"))
    part = {"number": 1, "total": 2, "is_complete": True, "num_shards_missing_elsewhere": 4}
    assert (first["part"], first["covers"], first["is_finished"], first["num_shards"]) == (part, "part", False, 4)
    incomplete = standard.run("finish", standard.standard_job, "--tasks", "2", "--json")
    assert (incomplete.code, incomplete.stdout) == (9, "")
    assert "4 of 8 shards are not there" in incomplete.stderr
    last = only_object(standard.run("run", standard.standard_job, "--task", "2/2", "--json"))
    assert last["part"] == {"number": 2, "total": 2, "is_complete": True, "num_shards_missing_elsewhere": 0}
    assert (last["covers"], last["is_finished"]) == ("job", True)
    assert summary_part(last) == standard.record("summary.json")
    again = only_object(standard.run("run", standard.standard_job, "--task", "2/2", "--json"))
    assert (again["covers"], again["num_shards"], again["is_finished"]) == ("part", 4, True)
    for target in (standard.standard_job, standard.output):
        found = only_object(standard.run("finish", target, "--json"))
        assert found == last | {"wall_s": None, "part": None}


def test_what_does_not_end_well_prints_nothing(standard: Workshop) -> None:
    """A stop is 75 and a wrong job 2, both with their message on standard error alone."""
    running = standard.start("run", standard.standard_job, "--json", hook={"stand_in": True, "delay_s": 3})
    running.wait_until(lambda: "scoring in" in running.stderr)
    running.send(signal.SIGTERM)
    stopped = running.end()
    assert (stopped.code, stopped.stdout) == (75, "")
    wrong = standard.run("run", standard.job(labels=[]), "--json", "--log-format", "json")
    assert (wrong.code, wrong.stdout) == (2, "")
    assert "labels" in json.loads(wrong.stderr)["message"]


def test_scripts_in_an_object(standard: Workshop) -> None:
    """Without --submit and --to both scripts, the plain output's among them; with --to also where they lie."""
    command = ("slurm", standard.standard_job, "--tasks", "4", "--max-running", "2", "--sbatch", "--partition=甲")
    plain = standard.run(*command)
    found = only_object(standard.run(*command, "--json"))
    assert found["array"] == {"job_id": None, "path": None, "script": plain.stdout}
    assert " finish " in found["closing"]["script"]
    assert (found["output"], found["logs"]) == (str(standard.output), str(standard.state / "slurm"))
    assert (found["num_tasks"], found["parts"], found["is_finished"]) == (4, [1, 2, 3, 4], False)
    assert (found["max_running"], found["gpus_per_task"]) == (2, 0)
    assert (found["sbatch"], found["finish_sbatch"]) == (["--partition=甲"], [])
    assert found["submit_command"] is None
    written = only_object(standard.run(*command, "--json", "--to", "夜 1.sbatch"))
    path = standard.folder / "夜 1.sbatch"
    assert written["array"] == {"job_id": None, "path": str(path), "script": path.read_text(encoding="utf-8")}
    assert Path(written["closing"]["path"]).read_text(encoding="utf-8") == written["closing"]["script"]
    first, second = shlex.quote(str(path)), shlex.quote(f"{path}-finish")
    submits = f"id=$(sbatch --parsable {first}) && sbatch --dependency=afterany:${{id%;*}} {second}"
    assert written["submit_command"] == submits


def test_a_submission_in_an_object(standard: Workshop, tmp_path: Path) -> None:
    """Slurm's job ids, and the parts that were unfinished."""
    write_sbatch(tmp_path, SBATCH.format(folder=tmp_path))
    assert standard.run("run", standard.standard_job, "--task", "2/4").code == 0
    command = ("slurm", standard.standard_job, "--tasks", "4", "--submit", "--json")
    found = only_object(standard.run(*command, extra={"PATH": str(tmp_path)}))
    assert found["parts"] == [1, 3, 4]
    assert (found["array"]["job_id"], found["closing"]["job_id"]) == ("1", "2")
    for script in (found["array"], found["closing"]):
        assert Path(script["path"]).read_text(encoding="utf-8") == script["script"]


def test_nothing_left_to_send(done: Workshop, tmp_path: Path) -> None:
    """Of a finished job each way of asking gives an object that says so; where the end is missing, it alone is sent."""
    command = ("slurm", done.standard_job, "--tasks", "4", "--json")
    write_sbatch(tmp_path, SBATCH.format(folder=tmp_path))
    extra = {"PATH": str(tmp_path)}
    for options in ((), ("--to", "x.sbatch"), ("--submit",)):
        found = only_object(done.run(*command, *options, extra=extra))
        assert (found["is_finished"], found["parts"], found["array"], found["closing"]) == (True, [], None, None)
    assert not (done.folder / "x.sbatch-finish").exists()
    (done.output / "_SUCCESS").unlink()
    found = only_object(done.run(*command, "--submit", extra=extra))
    assert (found["is_finished"], found["array"], found["closing"]["job_id"]) == (False, None, "1")
    found = only_object(done.run(*command, "--to", "x.sbatch"))
    assert (found["array"], found["closing"]["path"]) == (None, str(done.folder / "x.sbatch-finish"))


def test_a_models_files(standard: Workshop) -> None:
    """A directory's and a hub model's: where it lies, what the job called it, and every file's digest."""
    found = only_object(standard.run("fetch", standard.standard_job, "--json", hook=None))
    assert (found["directory"], found["source"]) == (str(standard.model), "path")
    assert (found["hub_id"], found["revision"]) == (None, None)
    for file in found["files"]:
        content = (standard.model / file["name"]).read_bytes()
        assert (file["size_bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert {file["name"] for file in found["files"]} == {"config.json", "vocab.txt", "pytorch_model.bin"}
    assert found["size_bytes"] == sum(file["size_bytes"] for file in found["files"])
    snapshot = cache_model(standard)
    job = standard.job(model={"path": None, "id": HUB_ID, "revision": "master", "cache_dir": "缓存"})
    hub = only_object(standard.run("fetch", job, "--json", hook=None, extra={"GUARD_NETWORK": "1"}))
    expected = {"directory": str(snapshot), "source": "hub", "hub_id": HUB_ID, "revision": "master"}
    assert hub == found | expected


def test_a_new_job_file(workshop: Workshop) -> None:
    """The file, what it says, and by what: as data where the file has comments; an option's word counts as given."""
    source = workshop.folder / "新闻 [1].csv"
    source.write_text("news_id;标题\n1;央行宣布降准\n2;球队昨夜取胜\n", encoding="gbk")
    (workshop.folder / "标签.txt").write_text("财经\n体育\n", encoding="utf-8")
    model = ("--kind", "headline", "--model", str(workshop.model))
    found = only_object(workshop.run("init", source.name, "--labels", "财经，体育", *model, "--json"))
    assert found["job"] == str(workshop.folder / "新闻 [1].yaml")
    assert Path(found["job"]).is_file()
    assert found["input"] == {
        "path": str(source),
        "num_rows_looked_at": 2,
        "format": "csv",
        "format_by": "name",
        "encoding": "gb18030",
        "delimiter": ";",
        "has_header": True,
        "has_quotes": True,
        "columns": [
            {"name": "news_id", "is_text": True, "mean_characters": 1.0, "distinct_share": 1.0},
            {"name": "标题", "is_text": True, "mean_characters": 6.0, "distinct_share": 1.0},
        ],
    }
    assert (found["text"], found["keep"], found["labels"]) == (["标题"], ["news_id"], ["财经", "体育"])
    assert found["text_reason"].startswith("of 2 columns the one with the longest distinct texts")
    assert (found["template"], found["model_path"]) == ("这篇文章的标题是{}", str(workshop.model))
    assert (found["model_id"], found["labels_path"]) == (None, None)
    assert found["output"] == str(workshop.folder / "out/新闻 [1]")
    options = (
        "--labels",
        "标签.txt",
        "--kind",
        "post",
        "--text",
        "标题",
        "--model",
        HUB_ID,
        "--to",
        "二.yaml",
        "--json",
    )
    stated = only_object(workshop.run("init", source.name, *options))
    assert (stated["labels"], stated["labels_path"]) == (None, str(workshop.folder / "标签.txt"))
    assert (stated["text_reason"], stated["model_id"], stated["model_path"]) == ("as given", HUB_ID, None)
    refused = workshop.run("init", source.name, *options)
    assert (refused.code, refused.stdout) == (2, "")
