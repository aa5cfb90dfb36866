"""docs/job.md: it is what the schema says, names every key with its default, and its example is a job."""

import re
from pathlib import Path

import pytest
import yaml

from batchzs.job import JobConfig, load_job
from batchzs.job_keys import all_keys, key_of, values_of
from docs.make_job_reference import as_yaml, page

PAGE = (Path(__file__).parent.parent / "docs" / "job.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]


KEYS = {".".join(map(str, path)): field for path, field in all_keys(JobConfig)}
SECTIONS = {key.rpartition(".")[0] for key in KEYS} - {""}


def _at(value: object, key: str) -> object:
    """Return what stands at a dotted key of nested mappings or of a job."""
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def _list_if_tuple(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def test_the_page_is_what_the_schema_says() -> None:
    """Tables and example are made from the schema; whoever changes a key there makes them again."""
    assert page(PAGE) == PAGE, "docs/job.md is behind the schema; run: python docs/make_job_reference.py"


def test_what_is_between_the_marks_is_made_anew_and_nothing_else() -> None:
    """A row changed by hand comes back, the text around it stays as it is."""
    changed = PAGE.replace("| What computes. |", "| Something else. |").replace("# The job file", "# Jobs")
    assert page(changed) == PAGE.replace("# The job file", "# Jobs")


def test_defaults_are_written_as_yaml() -> None:
    """What YAML would take for something else, or cannot read, is in quotes."""
    written = [as_yaml(value) for value in (None, "drop", '"', "\n", ",", "", (), 0.001, True)]
    assert written == ["null", "drop", "'\"'", '"\\n"', '","', '""', "[]", "0.001", "true"]


def test_a_section_without_a_place_is_no_page() -> None:
    """A new section needs a heading of its own, with its marks."""
    with pytest.raises(ValueError, match="keys: model"):
        page(PAGE.replace("<!-- begin keys: model -->", ""))


def test_what_auto_comes_to_is_said_of_every_such_key() -> None:
    """The table of what `auto` is has each key whose default it is, in their order."""
    table = PAGE.partition("| key | auto is |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE) == [
        key for key, field in KEYS.items() if field.default == "auto"
    ]


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_key_has_a_meaning_and_values(key: str) -> None:
    """Only the sections that are chapters of the page have none."""
    said = key_of(KEYS[key])
    assert said is not None or key in {"input", "model", "output", "engine"}
    if said is not None:
        assert said.meaning.endswith(".")
        assert "|" not in said.meaning + values_of(KEYS[key])  # it would end the table's cell
        assert values_of(KEYS[key])


def test_the_schema_is_walked() -> None:
    """Sections are found inside annotations: without them the tests below would look at little."""
    assert {"input", "input.csv", "model", "output", "engine"} == SECTIONS


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_key_is_in_the_page(key: str) -> None:
    """A key that is no section has a row in a table, with its default; a section is at least a heading."""
    if key in SECTIONS:
        assert f"\n## {key}\n" in PAGE
        return
    row = re.search(rf"^\| `{re.escape(key)}` \| (required|`(.+?)`) \| .+ \| .+ \|$", PAGE, re.MULTILINE)
    assert row is not None, f"no row for {key}"
    if KEYS[key].is_required():
        assert row[1] == "required"
    else:
        assert row[1] != "required"
        assert yaml.safe_load(row[2]) == _list_if_tuple(KEYS[key].default)


def test_the_page_has_no_other_keys() -> None:
    """A key that was renamed or removed leaves no row behind."""
    assert set(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE)) <= KEYS.keys()


def test_the_example_has_every_key_with_its_default() -> None:
    """What the example writes for an optional key is what its absence means; a job names one of two models."""
    example = yaml.safe_load(EXAMPLE)
    for key, field in KEYS.items():
        written = _at(example, key)  # raises KeyError where it is missing
        if key not in SECTIONS and key != "model.path" and not field.is_required():
            assert written == _list_if_tuple(field.default), key


def test_the_example_loads(tmp_path: Path) -> None:
    """The example is a job, and the defaults it writes down are those of the loaded one."""
    path = tmp_path / "jobs" / "job.yaml"
    path.parent.mkdir()
    path.write_text(EXAMPLE, encoding="utf-8")
    job = load_job(path)
    assert job.output.path == tmp_path / "out" / "news"
    for key, field in KEYS.items():
        if key not in SECTIONS and key != "model.path" and not field.is_required():
            assert _at(job, key) == field.default, key


@pytest.mark.parametrize("suffix", ["txt", "csv", "yaml"])
def test_the_label_files_load(tmp_path: Path, suffix: str) -> None:
    """Each kind's example, which follows the paragraph that begins with its ending, is a file of labels."""
    shown = re.search(rf"^`\.{suffix}`, [^`]*?.*?:\n\n```\w*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert shown is not None
    (tmp_path / f"labels.{suffix}").write_text(shown[1], encoding="utf-8")
    path = tmp_path / "job.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    job = load_job(path, [f"labels={tmp_path}/labels.{suffix}"])
    assert len(job.labels) == 2
    assert job.labels[0].hypothesis == "这篇文章的标题是财经"


def test_set_examples_load(tmp_path: Path) -> None:
    """The options shown for --set, as a shell would hand them over, are taken."""
    path = tmp_path / "job.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    options = re.findall(r"--set (?:'([^'\n]+)'|([a-z.]+=[\w.]+)(?= |$))", PAGE, re.MULTILINE)
    overrides = [quoted or plain for quoted, plain in options]
    assert 'input.path="a/*.parquet"' in overrides
    assert "input.csv.quote=null" in overrides
    for override in overrides:
        load_job(path, [override])
