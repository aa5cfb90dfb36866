"""The page: nothing in it acts, nothing is loaded, and it says what is there and what is not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from batchzs.escape import json_line
from batchzs.finished import open_run
from batchzs.report.contents import Report, gather, report_to_json
from batchzs.report.page import render
from batchzs.report.shown import fitted, shown, width_em
from batchzs.report.truth_section import TruthSection
from batchzs.truth.metrics import CalibrationBin, Confusion, LabelMetrics, PrecisionThreshold, TruthReport
from tests.builders import odd_folder
from tests.made_outputs import MadeOutput, make_output

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = [
    "</script><script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "</style><style>*{display:none}",
    "a\u202etxt.exe\u2066b",
    "NUL\0here \x1b[2J",
    "half \ud800 of a character",
    "x" * 5_000,
    "央行降息\r\n第二行\n\n第四行",
    "<!-- <![CDATA[ -->",
    "\u2028line\u2029paragraph\x85",
    "&amp;&lt;\"'`=",
    "{{ 7 * 7 }}{% raw %}",
    "\ufffe\uffff",
    "https://example.org/?a=1&b=2",
]
HOSTILE_LABELS = ["</script><b>", '体"育\\\'"', "{{9*9}}", "]]>&lt;", "a\u202eb", "datum.value+1"]
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Outline(HTMLParser):
    """What stands in a page, and whether its tags close in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag."""
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An SVG element that is closed at once."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """It closes what was opened last."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep the words."""
        if "style" not in self._open:
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all tags of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]


def report_of(made: MadeOutput, num_shown: int = 20) -> Report:
    """Look at an output."""
    return gather(open_run(made.paths.output), num_shown)


def hostile_output(folder: Path) -> MadeOutput:
    """An output whose texts, labels, reasons, names and records try to break the page."""
    evil = "<b onclick=alert(1)>\u202e"
    splits = ({"shape": evil, "batch_tokens": 4000, "limit_tokens": 2000},)
    return make_output(
        folder,
        HOSTILE,
        bad={3: ("bad_record", f"{evil}:3: found"), 8: ("bad_record", evil), 9: ("non_finite", "")},
        labels=HOSTILE_LABELS,
        shard_rows=5,
        shard_changes={1: {"splits": splits, "host": evil, "device_name": evil, "device": evil, "path": evil}},
        record_changes={"batchzs_version": evil, "test_hook": {"stand_in": True}, "num_tasks": 2},
    )


def test_nothing_in_a_page_acts(tmp_path: Path) -> None:
    """Whatever texts, labels, names and records hold: no tag, attribute or character of theirs gets through."""
    page = render(report_of(hostile_output(odd_folder(tmp_path))))
    outline = Outline(page)
    kinds = {tag for tag, _ in outline.tags}
    assert not kinds & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "link",
        "base",
        "form",
        "input",
        "b",
        "image",
        "use",
    }
    assert len(outline.of("style")) == 1
    for tag, attributes in outline.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert all(
            value is None or value.startswith("#") for name, value in attributes.items() if name in {"href", "src"}
        )
    assert not re.search(
        "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]", page
    )
    page.encode("utf-8")
    for text in (HOSTILE[0], HOSTILE[1], "{{ 7 * 7 }}{% raw %}", "</script><b>", "https://example.org/?a=1&b=2"):
        assert text in outline.text
    assert "4,700 more characters" in outline.text
    assert "a\\u202etxt.exe\\u2066b" in outline.text


def test_nothing_is_loaded(tmp_path: Path) -> None:
    """No address but the names of SVG's vocabularies, and the page forbids itself to load anything."""
    page = render(report_of(make_output(tmp_path, ["央行降息", "股市"])))
    vocabularies = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\"'<> ]+", page)) == vocabularies
    assert not re.search(r"@import|url\((?!#)", page)
    (policy,) = (one for one in Outline(page).of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert str(policy["content"]).startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_pictures_are_sound_svg(tmp_path: Path) -> None:
    """Each one parses as XML, hostile labels included, is silent for screen readers, and has text as text."""
    page = render(report_of(hostile_output(tmp_path)))
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) > 8
    words = []
    for picture in pictures:
        root = ET.fromstring(picture)  # noqa: S314 - our own picture
        assert root.attrib["aria-hidden"] == "true"
        assert "width" not in root.attrib
        words += [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {'体"育\\\'"', "{{9*9}}", "]]>&lt;"} <= set(words)
    assert "datum.value+1" in " ".join(filter(None, words))


@pytest.mark.parametrize("num_labels", [1, 3, 70, 300])
def test_what_a_screen_reader_gets(tmp_path: Path, num_labels: int) -> None:
    """A language, a title, headings without gaps, named pictures, tables with headed columns and rows."""
    labels = [f"标签{place}" for place in range(num_labels)]
    outline = Outline(render(report_of(make_output(tmp_path, [f"第{row}条" for row in range(40)], labels=labels))))
    assert outline.of("html") == [{"lang": "en"}]
    assert len(outline.of("title")) == 1
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in zip(outline.headings, outline.headings[1:], strict=False))
    named = [attributes for _, attributes in outline.tags if attributes.get("role") == "img"]
    assert len(named) == len(outline.of("svg"))
    assert all(attributes["aria-label"] for attributes in named)
    assert all(attributes.get("scope") in {"col", "row"} for attributes in outline.of("th"))
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {str(one["href"])[1:] for one in outline.of("a")}
    assert targets <= set(ids)
    assert {"lang": "zh"} in outline.of("bdi")
    assert len(outline.of("svg")) < 50  # however many labels


def test_an_unfinished_run_says_so_first(tmp_path: Path) -> None:
    """What is there is reported, and that it is not all."""
    outline = Outline(render(report_of(make_output(tmp_path, [f"第{row}条" for row in range(30)], num_done=2))))
    assert "This run is not finished. The report covers the 2 of 3 shards" in " ".join(outline.text.split())
    assert "of 30, 66.7 %" in outline.text


@pytest.mark.parametrize(
    "shape",
    [
        {"multi_label": True},
        {"threshold": 0.9},
        {"output__scores": "none", "output__logits": False},
        {"labels": ["科技"]},
        {"output__scores": 2, "output__prefix": "zs_"},
    ],
    ids=str,
)
def test_pages_of_every_shape(tmp_path: Path, shape: dict[str, Any]) -> None:
    """None of them breaks the page."""
    Outline(render(report_of(make_output(tmp_path, [f"第{row}条" for row in range(12)], **shape))))


def test_a_page_about_nothing(tmp_path: Path) -> None:
    """Before the first shard, and of an input without rows."""
    for name, texts, done in (("early", ["甲"] * 5, 0), ("none", [], None)):
        folder = tmp_path / name
        folder.mkdir()
        outline = Outline(render(report_of(make_output(folder, texts, num_done=done))))
        assert "Nothing is scored" in outline.text
        assert "Best score" not in outline.text  # an empty picture


def test_an_input_that_is_gone(tmp_path: Path) -> None:
    """Positions are shown without texts, and why."""
    made = make_output(tmp_path, ["央行降息", "股市"])
    (tmp_path / "输入 [1].jsonl").unlink()
    report = report_of(made)
    assert [row.text for row in report.aggregates.least_certain] == [None, None]
    text = Outline(render(report)).text
    assert "央行" not in text
    assert "are not shown: " in text
    assert "cannot be read any more" in text


def test_no_text_at_all(tmp_path: Path) -> None:
    """With 0 rows the page holds no text of the input."""
    assert "央行" not in render(report_of(make_output(tmp_path, ["央行降息", "股市"]), 0))


def test_the_size_does_not_grow_with_rows(tmp_path: Path) -> None:
    """Fifty times the rows make a page that is hardly larger."""
    sizes = []
    for num_rows in (100, 5_000):
        folder = tmp_path / str(num_rows)
        folder.mkdir()
        texts = [f"第{row}条" for row in range(num_rows)]
        sizes.append(len(render(report_of(make_output(folder, texts, shard_rows=num_rows)))))
    assert sizes[1] < sizes[0] * 1.3


def made_up_truth() -> TruthSection:
    """A truth section, its numbers made up."""
    report = TruthReport(
        num_rows=100,
        num_unknown=3,
        num_given=94,
        num_correct=90,
        labels=(LabelMetrics("科技", 50, 52, 46), LabelMetrics("体育", 50, 40, 40), LabelMetrics("财经", 0, 2, 0)),
        confusions=(
            Confusion("科技", "科技", 46),
            Confusion("体育", "体育", 40),
            Confusion("体育", "科技", 6),
            Confusion("体育", None, 4),
            Confusion("科技", "财经", 2),
            Confusion("科技", None, 2),
        ),
        calibration=(
            CalibrationBin(0.0, 0.5, 0, None, None),
            CalibrationBin(0.5, 0.6, 30, 0.55, 0.5),
            CalibrationBin(0.9, 1.0, 70, 0.93, 0.97),
        ),
        calibration_error=0.043,
    )
    return TruthSection("topic", report, 0.95, PrecisionThreshold(0.95, 0.7321, 0.951, 83, 0.83))


def test_the_confusion_of_labels() -> None:
    """A line for each true label, a column for each given one, and the rows without a label last."""
    assert made_up_truth().confusion() == [[46, 0, 2, 2], [6, 40, 0, 4], [0, 0, 0, 0]]


def test_labels_held_against_the_truth(tmp_path: Path) -> None:
    """Accuracy, precision and recall, confusion, calibration, and the threshold for a wanted precision."""
    report = replace(report_of(make_output(tmp_path, ["甲", "乙"])), truth=made_up_truth())
    text = " ".join(Outline(render(report)).text.split())
    for words in ("accuracy90.0 %", "threshold for 95 % precision0.7321", "95.1 % right, of 83.0 % of the rows"):
        assert words.replace(" ", "") in text.replace(" ", "")
    assert "科技88.5%92.0%" in text.replace(" ", "")
    truth = made_up_truth()
    unreachable = replace(truth, wanted=0.99, threshold=None, report=replace(truth.report, calibration=()))
    assert "no threshold reaches it" in render(replace(report, truth=unreachable))


def test_the_truth_of_many_labels(tmp_path: Path) -> None:
    """The confusion table keeps thirty of them and puts the rest together."""
    labels = tuple(LabelMetrics(f"标签{place}", 2, 2, 1) for place in range(300))
    confusions = tuple(Confusion(label.name, label.name, 1) for label in labels)
    truth = replace(made_up_truth(), report=replace(made_up_truth().report, labels=labels, confusions=confusions))
    page = render(replace(report_of(make_output(tmp_path, ["甲", "乙"])), truth=truth))
    assert "others" in Outline(page).text
    assert len(page) < 400_000


def test_as_json(tmp_path: Path) -> None:
    """The numbers as one line of JSON, hostile texts included, that reads back."""
    report = replace(report_of(hostile_output(tmp_path)), truth=made_up_truth())
    line = json_line(report_to_json(report))
    assert not set(line) & set("\n\x1b\u202e\u2028")
    back = json.loads(line)
    assert (back["num_rows"], back["statuses"]["ok"], back["state"]) == (14, 11, "finished")
    assert back["truth"]["accuracy"] == 0.9
    assert HOSTILE[0] in {row["text"] for row in back["least_certain"]}


def test_texts_are_cut_and_fitted() -> None:
    """A cut says how much is left out; a name fits the room that it is given."""
    assert shown("x" * 301).endswith("x… (1 more characters)")
    assert shown("x" * 300) == "x" * 300
    for name in ("国际财经新闻要闻", "sports and more", "", "体a育b"):
        assert width_em(fitted(name, 4)) <= max(4.0, 1.0)
