"""The page in a real, headless Chromium: on a phone and a desk, in light and dark, offline."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from batchzs.report.page import render
from tests.builders import odd_folder
from tests.made_outputs import make_output
from tests.report.test_report_page import HOSTILE, HOSTILE_LABELS, made_up_truth, report_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCREENS = {"phone": (360, 740), "desk": (1400, 900)}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")

#: The contrast of every text with what lies behind it, by WCAG's formula; those below what it asks for.
POOR_CONTRAST = """() => {
  const channel = value => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4 };
  const numbers = colour => colour.match(/[0-9.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = numbers(getComputedStyle(element).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const inPicture = element.closest("svg") !== null;
    const [one, two] = [luminance(numbers(inPicture ? style.fill : style.color)), luminance(behind(element))];
    const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (contrast < 4.5) poor.push([walker.currentNode.data.trim().slice(0, 40), contrast]);
  }
  return poor;
}"""

#: Boxes that reach beyond the screen and lie in nothing that scrolls by itself.
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter(element =>
  element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".scroll, pre, .skip, svg")
).map(element => element.outerHTML.slice(0, 80))"""


#: Gives every element that holds nothing but Chinese a number, and lists their tags.
MARK_CHINESE = r"""() => {
  const chinese = [...document.querySelectorAll("svg text, bdi")].filter(element =>
    /^[\u4e00-\u9fff]+$/.test(element.textContent));
  chinese.forEach((element, place) => element.setAttribute("data-place", place));
  return chinese.map(element => element.tagName);
}"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything that a page can have, some of it hostile."""
    from dataclasses import replace

    folder = odd_folder(tmp_path_factory.mktemp("page"))
    splits = ({"shape": "planned", "batch_tokens": 4000, "limit_tokens": 2000},)
    made = make_output(
        folder,
        HOSTILE * 3,
        bad={3: ("bad_record", "新闻.csv:4: " + "y" * 400), 9: ("non_finite", "")},
        labels=[*HOSTILE_LABELS, "科技", "财经新闻与市场评论以及更多内容"],
        num_tokens=[len(text) or 1 for text in HOSTILE * 3],
        shard_rows=5,
        num_done=7,
        shard_changes={1: {"splits": splits, "finished_at": "2026-11-30T05:01:00+00:00"}},
        record_changes={"num_tasks": 3},
    )
    path = folder / "报告 #1?.html"
    path.write_text(render(replace(report_of(made), truth=made_up_truth())), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages; what it would like to look up by itself is switched off."""
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*quiet, "--no-first-run"])
        yield browser
        browser.close()


@pytest.fixture(params=[(screen, scheme) for screen in SCREENS for scheme in ("light", "dark")], ids="-".join)
def opened(request: pytest.FixtureRequest, browser: Browser, page_file: Path) -> Iterator[Page]:
    """The page, opened; anything that it asks for or complains of is a failure."""
    screen, scheme = request.param
    width, height = SCREENS[screen]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=True, is_mobile=screen == "phone"
    )
    page = context.new_page()
    troubles: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    for details in page.query_selector_all("details"):
        details.evaluate("element => { element.open = true }")
    yield page
    assert troubles == []
    assert requests == [page_file.as_uri()]
    context.close()


def test_it_fits_and_can_be_read(opened: Page) -> None:
    """No sideways scrolling of the page, with everything unfolded; every text stands out from its ground."""
    assert opened.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert opened.evaluate(TOO_WIDE) == []
    assert opened.evaluate(POOR_CONTRAST) == []
    assert opened.evaluate("document.scripts.length") == 0


def test_it_follows_the_colour_scheme(opened: Page) -> None:
    """Dark on request, pictures too."""
    is_dark = opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground, ink = opened.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('svg text')).fill]"
    )
    brightness = [sum(map(float, colour[4:-1].split(",")[:3])) for colour in (ground, ink)]
    assert (brightness[0] < brightness[1]) == is_dark


def test_a_screen_reader_is_told_what_pictures_show(opened: Page) -> None:
    """The tree that assistive technology gets: headings, named pictures, tables."""
    tree = opened.locator("body").aria_snapshot()
    assert 'heading "Labels and scores" [level=2]' in tree
    assert 'img "Bar chart of rows by label, 8 labels. The most frequent: ' in tree
    assert 'table "Rows by label"' in tree
    assert "This run is not finished." in tree


def test_chinese_is_drawn_by_a_font_that_has_it(opened: Page) -> None:
    """Names in pictures and in words; a font without Chinese would draw boxes."""
    if not subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=False).stdout:
        pytest.skip("there is no Chinese font: apt-get install fonts-noto-cjk")
    session = opened.context.new_cdp_session(opened)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    marked = opened.evaluate(MARK_CHINESE)
    assert {"text", "BDI"} <= set(marked)
    for place in range(len(marked)):
        node = session.send("DOM.querySelector", {"nodeId": root, "selector": f'[data-place="{place}"]'})["nodeId"]
        fonts: list[dict[str, Any]] = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        assert all("CJK" in font["familyName"] for font in fonts), fonts


def test_bars_names_do_not_leave_their_picture(opened: Page) -> None:
    """Room for names and figures is reckoned, not measured: it is enough with real fonts."""
    outside = opened.evaluate("""() => [...document.querySelectorAll("svg text")].filter(element => {
      const own = element.getBoundingClientRect(), all = element.closest("svg").getBoundingClientRect();
      return own.width && (own.left < all.left - 2 || own.right > all.right + 2 || own.bottom > all.bottom + 2);
    }).map(element => element.textContent)""")
    assert outside == []
