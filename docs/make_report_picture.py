"""Take the picture of a report that README shows: a desk in the light and a phone in the dark, in headless Chromium.

    batchzs report out/news && python docs/make_report_picture.py out/news/report.html docs/report.png

Needs `chromium` and a Chinese font on the system (CONTRIBUTING.md says how), and the development extra.
"""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright

#: Both screens beside each other.
BOTH = """<!DOCTYPE html><style>
body {{ margin: 0; padding: 20px; display: flex; gap: 20px; background: #d5dbe5; }}
img {{ border-radius: 10px; box-shadow: 0 2px 12px #0004; }}
</style><img src="data:image/png;base64,{desk}"><img src="data:image/png;base64,{phone}">"""


def take_picture(page: Path, picture: Path) -> None:
    """Show a page in both sizes and keep the picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )

        def shoot(width: int, scheme: Literal["light", "dark"]) -> str:
            screen = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            screen.goto(page.resolve().as_uri())
            return base64.b64encode(screen.screenshot()).decode()

        frame = browser.new_page(viewport={"width": 1500, "height": 840})
        frame.set_content(BOTH.format(desk=shoot(1080, "light"), phone=shoot(360, "dark")))
        frame.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    take_picture(Path(sys.argv[1]), Path(sys.argv[2]))
