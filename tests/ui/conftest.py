"""A real browser for the tests of the page, where there is one."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def chromium() -> str | None:
    """Where Chromium is: Debian's, or what TETHER_CHROMIUM says."""
    names = (os.environ.get("TETHER_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    program = chromium()
    if program is None:
        pytest.skip("no Chromium here: install Debian's chromium, or set TETHER_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        # No sandbox: containers and root have none to give; only our own page is opened.
        running = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()
