"""Takes pictures of the page: every scene, screen, width and theme, to be looked at by people.

    scripts/run python -m tests.ui.pictures out/            # all of them
    scripts/run python -m tests.ui.pictures --docs          # those in docs/images, anew

Needs Chromium, as the tests do.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import sync_playwright
from tests.ui.conftest import chromium
from tests.ui.scenes import SCENES

from tether.observe import running
from tether.ui import serve

SIZES = {"wide": {"width": 1280, "height": 1000}, "phone": {"width": 390, "height": 844}}
SCREENS = {"": "", "slot": "#/slot/count/0", "failure": "#/failure/1"}


class Shot(NamedTuple):
    """What one picture shows."""

    scene: str
    size: str
    theme: str
    screen: str = ""
    whole: bool = True


DOCS = {
    "page-light": Shot("lossy", "wide", "light", "", whole=False),
    "page-dark": Shot("lossy", "wide", "dark", "", whole=False),
    "page-phone": Shot("lossy", "phone", "light", "", whole=False),
    "page-slot": Shot("lossy", "wide", "light", "slot", whole=True),
    "page-failure": Shot("lossy", "wide", "light", "failure", whole=True),
    "page-healing": Shot("healing", "wide", "light", "", whole=False),
    "page-thousand": Shot("thousand", "wide", "light", "", whole=False),
}
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def take(browser: Any, into: Path, shot: Shot) -> None:
    """Save one picture."""
    running._feeds.clear()
    running.enlist(SCENES[shot.scene]().feed)
    with serve(port=0, quiet=True, drills=True) as page:
        context = browser.new_context(
            viewport=SIZES[shot.size], color_scheme=shot.theme, reduced_motion="reduce"
        )
        tab = context.new_page()
        tab.goto(page.address + SCREENS[shot.screen])
        sign = {
            "": ".chart canvas" if shot.scene != "waiting" else ".hero",
            "slot": ".chart canvas",
        }
        tab.locator(sign.get(shot.screen, ".screen-title")).first.wait_for(timeout=20_000)
        tab.wait_for_timeout(600)  # charts are drawn in the frames after
        tab.screenshot(path=str(into), full_page=shot.whole)
        context.close()


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("into", nargs="?", type=Path)
    parser.add_argument("--docs", action="store_true", help="those in docs/images")
    parser.add_argument("--scene", action="append", choices=list(SCENES))
    parser.add_argument("--size", action="append", choices=list(SIZES))
    parser.add_argument("--theme", action="append", choices=["light", "dark"])
    asked = parser.parse_args()
    if not asked.docs and asked.into is None:
        parser.error("say where to, or --docs")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        if asked.docs:
            for name, shot in DOCS.items():
                take(browser, IMAGES / f"{name}.png", shot)
            return
        asked.into.mkdir(parents=True, exist_ok=True)
        for scene in asked.scene or SCENES:
            for size in asked.size or SIZES:
                for theme in asked.theme or ("light", "dark"):
                    for screen in SCREENS if scene == "lossy" else ("",):
                        name = "-".join(filter(None, (scene, screen, size, theme)))
                        into = asked.into / f"{name}.png"
                        take(browser, into, Shot(scene, size, theme, screen))
        browser.close()


if __name__ == "__main__":
    main()
