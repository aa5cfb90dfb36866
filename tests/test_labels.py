"""Labels from the job's list and from files: nothing is split, nothing ties, every refusal names its place."""

from pathlib import Path

import pytest

from batchzs.errors import UsageError
from batchzs.job import load_job
from batchzs.job_sections import Label

JOB = "input: {path: x, text: t}\nmodel: {path: m}\noutput: {path: o}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the kind of name that people have."""
    folder = tmp_path / "标签 [1]"
    folder.mkdir()
    return folder


def labels_of(folder: Path, labels: str, template: str = "主题{}") -> list[tuple[str, str]]:
    """Load a job with these labels; they stand on line 5."""
    path = folder / "job.yaml"
    path.write_text(f"{JOB}template: '{template}'\nlabels: {labels}\n", encoding="utf-8")
    return [(label.name, label.hypothesis) for label in load_job(path).labels]


def refusal(folder: Path, labels: str, template: str = "主题{}") -> list[str]:
    """The lines of the error, without the folder's name."""
    with pytest.raises(UsageError) as caught:
        labels_of(folder, labels, template)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_items_are_never_split(folder: Path) -> None:
    """Commas of any width, braces and colons belong to the label (Z6)."""
    names = ["财经,股市", "体育，娱乐", "家居、汽车", "{}", "{0.__class__}", "a: b", "# 1", "NO", "财经 股市"]
    assert labels_of(folder, str(names)) == [(name, f"主题{name}") for name in names]


def test_names_are_stripped_and_otherwise_kept(folder: Path) -> None:
    """White space around a label is nobody's intention; its Unicode form is the user's."""
    assert labels_of(folder, '["  财经　", "e\\u0301"]') == [("财经", "主题财经"), ("e\u0301", "主题e\u0301")]


def test_labels_are_values(folder: Path) -> None:
    """A label is frozen and comparable."""
    assert labels_of(folder, "[甲]") == [("甲", "主题甲")]
    assert Label(name="甲", hypothesis="乙") == Label(name="甲", hypothesis="乙")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("财经, 股市", 'job.yaml:5: labels: found "财经, 股市", expected a list, such as [财经, 体育], or the path'),
        ("财经", 'job.yaml:5: labels: found "财经", expected a list'),
        ("labels.json", 'job.yaml:5: labels: found "labels.json", expected a list'),
        ("7", "job.yaml:5: labels: found 7, expected a list"),
        ("{name: x}", "job.yaml:5: labels: found a mapping (key: value), expected a list"),
        ("", "job.yaml:5: labels: found nothing, expected a list"),
        ("[]", "job.yaml:5: labels: found no label, expected at least one"),
        (
            "[甲, NO]",
            "job.yaml:5: labels, item 2: found NO, expected a text; YAML reads it as a yes or no, put it in q",
        ),
        ("[on]", "found on, expected a text; YAML reads it as a yes or no"),
        ("[2024]", "found 2024, expected a text; YAML reads it as a number, put it in quotes"),
        ("[1e3]", "found 1e3, expected a text; YAML reads it as a number"),
        ("[2024-01-01]", "found 2024-01-01, which YAML reads as a date, expected a text; put it in quotes"),
        ("[007]", "found 007, which YAML reads as a number that is not written in plain decimal digits"),
        ("\n- 甲\n- # 科技", "job.yaml:7: labels, item 2: found nothing, expected a text; a text that begins with #"),
        ("[[甲]]", "labels, item 1: found a list, expected a text"),
        (
            "\n- 甲\n- 财经: 股市",
            'job.yaml:7: labels, item 2, 财经: found the key "财经", expected name and hypothesis',
        ),
        ("[甲, '']", 'labels, item 2: found "", which is empty'),
        ("['  　']", "which is empty"),
        ('["\\u200b\\ufeff"]', "which is empty"),
        (
            "\n- 财经\n- 体育\n- '财经 '",
            'job.yaml:8: labels, item 3: "财经" is the same name as item 1 (line 6); remove one',
        ),
        ('["\\u00e9", "e\\u0301"]', "is the same name as item 1 (line 5)"),
        ("[甲, {name: 乙, hypothesis: 主题甲}]", 'item 2: "主题甲" is the same hypothesis as item 1 (line 5)'),
        ("[{hypothesis: 甲}]", "labels, item 1: the key name is missing"),
        ("[{name: 甲, hypothesis: ' '}]", 'labels, item 1, hypothesis: found " ", which is empty'),
        ("[{name: 甲, hypothesis: 5}]", "labels, item 1, hypothesis: found 5, expected a text"),
        ("[{name: 甲, hypothesis: '关于{}'}]", "{} is filled in the template alone; write the whole sentence"),
        ("[{name: NO}]", "labels, item 1, name: found NO, expected a text"),
        ("[{name: 甲, premise: 乙}]", 'found the key "premise", expected name and hypothesis'),
        ("~/labels.txt", 'labels: "~/labels.txt" begins with ~'),
        ("none.txt", "job.yaml:5: labels: none.txt: there is no such file"),
    ],
)
def test_bad_labels_are_refused_at_their_place(folder: Path, labels: str, message: str) -> None:
    """One line a fault, with the line in the file and the item's number."""
    (found,) = refusal(folder, labels)
    assert message in found


def test_every_bad_label_is_named(folder: Path) -> None:
    """All of them at once, beside a bad template."""
    assert len(refusal(folder, "[NO, 甲, 甲, '', 2024]", "没有")) == 5


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "财经, 股市\r\n\r\n # 1 \n体育", ["财经, 股市", "# 1", "体育"]),
        ("a.TXT", "\ufeff甲\n乙\r丙\n", ["甲", "乙", "丙"]),
        ("标签 [1].txt", "NO\n2024\n", ["NO", "2024"]),
        ("a.csv", 'name\n财经\n\n"体育,娱乐"\n', ["财经", "体育,娱乐"]),
        ("a.csv", "\ufeffname , hypothesis\n财经,\nNO,这不是\n", ["财经", ("NO", "这不是")]),
        ("a.yaml", "- 财经\n- {name: 体育, hypothesis: 这是体育}\n", ["财经", ("体育", "这是体育")]),
    ],
)  # fmt: skip
def test_label_files(folder: Path, name: str, content: str, expected: list[str | tuple[str, str]]) -> None:
    """A file of labels gives what the same list in the job would; in .txt and .csv every cell is a text."""
    (folder / name).write_bytes(content.encode())
    assert labels_of(folder, f'"{name}"') == [
        each if isinstance(each, tuple) else (each, f"主题{each}") for each in expected
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "甲\n乙\n\n甲 \n", 'a.txt:4: labels, item 3: "甲" is the same name as item 1 (line 1)'),
        ("a.txt", "\n \n", "a.txt: labels: found no label, expected at least one"),
        ("a.txt", "甲\n".encode("utf-16"), "job.yaml:5: labels: a.txt: not UTF-8 text"),
        ("a.txt", "甲\n乙\n".encode("gb18030"), "job.yaml:5: labels: a.txt:1: not UTF-8: byte 0xbc at offset 0"),
        ("a.csv", "label\n甲\n", 'a.csv:1: found the header "label", expected name or name,hypothesis'),
        ("a.csv", "name\n甲,乙\n", "a.csv:2: labels: found 2 fields, expected 1; put a label with a comma in quotes"),
        ("a.csv", 'name\n"甲\n乙\n', "a.csv:3: not valid CSV"),
        ("a.csv", 'name,hypothesis\n"甲\n乙",丙\n,丁\n', 'a.csv:4: labels, item 2, name: found "", which is empty'),
        ("a.csv", "", "labels: found no label"),
        ("a.yaml", "甲: 乙\n", "a.yaml: labels: found a mapping (key: value), expected a list"),
        ("a.yaml", "", "a.yaml: labels: found nothing, expected a list"),
        ("a.yaml", "- 甲\n- NO\n", "a.yaml:2: labels, item 2: found NO, expected a text"),
        ("a.yaml", "- [甲\n", "job.yaml:5: labels: a.yaml:2:1: not valid YAML"),
        ("a.yaml", "b.txt\n", 'a.yaml: labels: found "b.txt", expected a list'),
    ],
)
def test_bad_label_files_name_their_own_lines(folder: Path, name: str, content: str | bytes, message: str) -> None:
    """The fault lies in the file of labels, so that is what the message names."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (found,) = refusal(folder, f'"{name}"')
    assert message in found
