"""The page in a real Chromium: it loads, goes on, and fits, whatever there is to show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.ui.scenes import made_up

from tether.observe import running
from tether.observe.facts import CopyNow, GatewayNow, Standing
from tether.observe.story import Event
from tether.ui import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.testing.feeds import MadeUpQuery
    from tether.ui import Page

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 60_000


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> MadeUpQuery:
    monkeypatch.setattr(running, "_feeds", [])
    made = made_up(24)
    running.enlist(made.feed)
    return made


@pytest.fixture
def served(query: MadeUpQuery) -> Iterator[Page]:
    with serve(port=0, quiet=True, drills=True) as page:
        yield page


class Tab:
    """A page that is open, and what it complained of."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.complaints: list[str] = []
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console",
            lambda said: said.type == "error" and self.complaints.append(said.text),
        )
        self.asked: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        self.page.locator(".strip[aria-label]").wait_for()

    def close(self) -> None:
        self.context.close()

    def shows(self, text: str | re.Pattern[str], where: str = "body") -> None:
        self.page.locator(where).filter(has_text=text).first.wait_for()

    def fits(self) -> bool:
        return bool(
            self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
        )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_every_screen_fits_and_complains_of_nothing(
    browser: Any, served: Page, size: dict[str, int], theme: str
) -> None:
    tab = Tab(browser, served.address, viewport=size, color_scheme=theme)
    assert tab.page.locator("html").get_attribute("data-theme") == theme
    tab.shows("stable, within its bound", "#state")
    tab.shows(re.compile(r"of 4,000"), ".hero")
    tab.shows("#1", ".failures")
    tab.page.locator(".chart canvas").nth(3).wait_for()
    assert tab.page.locator(".chart[role=img][aria-label]").count() == 4
    assert tab.fits()
    tab.page.goto(f"{served.address}#/slot/count/3")
    tab.shows("count / slot 3", ".screen-title")
    tab.page.locator(".chart canvas").wait_for()
    assert tab.fits()
    tab.page.goto(f"{served.address}#/failure/1")
    tab.shows("Failure #1", ".screen-title")
    tab.shows("slots had to be restored", ".story")
    assert tab.fits()
    assert tab.complaints == []
    assert all(url.startswith(served.address) for url in tab.asked)
    tab.close()


def test_it_goes_on_live(browser: Any, served: Page, query: MadeUpQuery) -> None:
    tab = Tab(browser, served.address, viewport=WIDE)
    tab.shows("epoch 79", "#clock")
    before = tab.page.locator("#spent").inner_text()
    query.fail(1)
    query.epoch()
    tab.shows("epoch 80", "#clock")
    tab.shows("#2", ".failures")
    assert tab.page.locator("#spent").inner_text() != before
    query.feed.take(
        Standing(
            at=1.0,
            copies=(CopyNow(operator="count", slot=1, executor="executor 2", lag=3),),
            gateways=(
                GatewayNow(name="sensors", pending=9, max_pending=10, unacked=1, max_unacked=4),
            ),
        )
    )
    tab.shows("3 epochs", "section:has(h2:text('Copies'))")
    tab.shows("9 of 10", "section:has(h2:text('Gateway windows'))")
    assert tab.complaints == []
    tab.close()


def test_it_says_what_is_missing_and_how_far_its_correction_is(
    browser: Any, served: Page, query: MadeUpQuery
) -> None:
    tab = Tab(browser, served.address, viewport=PHONE)
    assert tab.page.locator(".missing").is_hidden()
    since = {"missing_since": query.at - 20, "missing_from": 61}
    query.epoch(state="tentative", fidelity=0.92, tentative_rows=48_213, **since)
    tab.shows("tentative, fidelity 92 %", "#state")
    tab.shows("since epoch 61", ".missing")
    tab.shows("made from 92 %", ".missing")
    tab.shows("48,213 tentative rows to be corrected", ".missing")
    bar = tab.page.locator(".missing [role=progressbar]")
    assert bar.is_hidden()  # no twin yet
    query.epoch(state="healing", behind=40, seconds_left=20.0, **since)
    tab.shows("40 epochs to go, about 20 s left", ".missing")
    query.epoch(state="healing", behind=10, seconds_left=5.0, **since)
    tab.shows("10 epochs to go", ".missing")
    assert bar.get_attribute("aria-valuenow") == "75"
    assert tab.fits()
    query.feed.event(Event(at=query.at, epoch=82, what="taken-over", cause="caught up"))
    query.epoch()
    tab.page.locator(".missing").wait_for(state="hidden")
    tab.shows("the twin took over", "#story")
    assert tab.complaints == []
    tab.close()


def test_it_survives_a_restart_and_says_when_the_query_is_gone(
    browser: Any, query: MadeUpQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(port=0, quiet=True) as page:
        port = int(page.address.rsplit(":", 1)[1].strip("/"))
        tab = Tab(browser, page.address, viewport=WIDE)
        query.feed.close("failed", "the disk is full")
        tab.shows("The query has failed: the disk is full", "#gone")
        tab.shows("failed", "#state")
        again = made_up(24, run="second", fails=False)
        running.enlist(again.feed)
        tab.shows("stable, nothing lost", "#state")
        assert tab.page.locator("#gone").is_hidden()
    # The driver itself dies; a new one answers on the same port.
    tab.shows("Nobody answers", "#gone")
    with serve(port=port, quiet=True):
        again.epoch()
        tab.page.locator("#gone").wait_for(state="hidden")
        tab.shows("epoch 80", "#clock")
    tab.close()


@pytest.mark.parametrize("slots", [1, 1000])
def test_one_slot_and_a_thousand(browser: Any, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_feeds", [])
    running.enlist(made_up(slots, fails=slots > 1).feed)
    with serve(port=0, quiet=True) as page:
        tab = Tab(browser, page.address, viewport=PHONE)
        tab.shows(f"{slots:,} slot", "#slots")
        assert tab.page.locator("#slots tbody tr").count() == min(slots, 8)
        assert tab.fits()
        assert tab.complaints == []
        tab.close()


def test_by_keyboard_alone(browser: Any, served: Page) -> None:
    tab = Tab(browser, served.address, viewport=WIDE)
    keys = tab.page.keyboard
    keys.press("s")
    tab.page.locator(".strip:focus").wait_for()
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    keys.press("Enter")
    tab.page.locator(".screen-title").filter(has_text="count / slot").wait_for()
    keys.press("Escape")
    tab.page.locator(".hero").wait_for()
    keys.press("f")
    tab.shows("Failure #1", ".screen-title")
    keys.press("o")
    keys.press("?")
    tab.page.locator("#keys[open]").wait_for()
    keys.press("Escape")
    tab.page.locator("#keys").wait_for(state="hidden")
    # Everything that can be pressed is reached by Tab, in the order of the page, and is seen to be.
    tab.page.reload()  # Tab begins at the top
    tab.page.locator(".strip[aria-label]").wait_for()
    tab.shows("#1", ".failures")
    pressable = "a[href], button, select, [tabindex='0']"
    wanted = tab.page.locator(pressable).evaluate_all(
        "all => all.filter((one) => one.checkVisibility()).map((one) => one.id || one.textContent)"
    )
    reached = []
    for _ in wanted:
        keys.press("Tab")
        reached.append(
            tab.page.evaluate(
                "(() => { const one = document.activeElement, ring = getComputedStyle(one);"
                " return [one.id || one.textContent, ring.outlineStyle]; })()"
            )
        )
    assert [name for name, _ in reached] == wanted
    assert {ring for _, ring in reached} == {"solid"}
    tab.close()


def test_a_drill_asks_twice(browser: Any, served: Page, query: MadeUpQuery) -> None:
    killed: list[int] = []

    def drill() -> str:
        killed.append(1)
        return "Killed a Python worker."

    query.feed.offer({"drill": drill})
    tab = Tab(browser, served.address, viewport=WIDE)
    button = tab.page.locator("[data-action=drill]")
    button.click()
    tab.page.locator("#ask .no").click()
    tab.shows("Left alone", ".buttons output")
    assert killed == []
    button.click()
    tab.page.locator("#ask .yes").click()
    tab.shows("Killed a Python worker.", ".buttons output")
    assert killed == [1]
    tab.close()
