"""docs/job.md: it names every key with its default, and its example is a job."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from batchzs.job import JobConfig, load_job

PAGE = (Path(__file__).parent.parent / "docs" / "job.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0]


def _keys(schema: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in schema.model_fields.items():
        yield above + name, field
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{above}{name}.")


KEYS = dict(_keys(JobConfig))
SECTIONS = {key.rpartition(".")[0] for key in KEYS} - {""}


def _at(value: object, key: str) -> object:
    """Return what stands at a dotted key of nested mappings or of a job."""
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def _list_if_tuple(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


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
