"""What the live page costs: the browser that shows it, and the driver that feeds and serves it.

Epochs of a query that never ran, five a second with a thousand slots each, go through the feed as a
driver's do: reports of slots, figures and the bound of all, files beside the backups, the page. The
browser is Debian's Chromium, headless, its processes' time summed up. The driver's share is what its
process takes with all of it, less what the same process takes to make the reports alone.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from bench.harness import Goal, environment, say
from tether.backup.frames import FrameRef
from tether.core.amplification import amplification_of
from tether.core.ids import GENESIS, Epoch, Failures, Slot
from tether.core.placement import Placement
from tether.engine.messages import SlotStatus, WrittenFrame
from tether.engine.query.ledger import Ledger
from tether.observe.operator_feed import OperatorFeed
from tether.policies.approximate import Approximate

SLOTS, PACE = 1000, 0.2
BUDGET = 100_000.0
WARM_UP = 8.0
"""Seconds that do not count; Chromium and the page are up by then."""


class Reporter:
    """Makes the reports of a thousand slots, epoch by epoch, as a driver's ledger would have them."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.policy, self._epoch = Approximate(BUDGET), -1
        self._theta = BUDGET / 2 / SLOTS
        self._divergence = np.zeros(SLOTS)
        self.ledger = Ledger("count", SLOTS, self.policy, Placement(copies=SLOTS))

    def epoch(self) -> tuple[int, list[Any], list[list[SlotStatus]]]:
        """One epoch's glimpses and statuses."""
        self._epoch += 1
        self._divergence += self._random.random(SLOTS) * self._theta / 10
        full = self._divergence > self._theta
        self._divergence[full] = self._theta / 2
        statuses = {}
        for slot, (far, wrote) in enumerate(
            zip(self._divergence.tolist(), full.tolist(), strict=True)
        ):
            frame = None
            if wrote:
                ref = FrameRef(f"slots/count/{slot}/{self._epoch}.log", 0, 52_000, 0)
                frame = WrittenFrame(
                    ref=ref,
                    kind="partial",
                    cause="theta",
                    entries=2_000,
                    carried=self._theta / 2,
                    divergence_before=self._theta,
                    divergence_after=far,
                    seconds=0.004,
                )
            statuses[Slot(slot)] = SlotStatus(
                operator="count",
                slot=Slot(slot),
                epoch=Epoch(self._epoch),
                turn=self._epoch,
                attempt="a",
                executor=f"executor {slot % 16}",
                lineage=GENESIS,
                failures=Failures(0),
                losses=Failures(0),
                policy_state=b"",
                under="terms",
                theta=self._theta,
                divergence=far,
                exact=False,
                rows_in=20_000,
                rows_out=4_000,
                resident_bytes=9_000_000,
                rolled_back=False,
                frame=frame,
                recovery=None,
                seconds={"process": 0.1},
                changed=4_000,
            )
        self.ledger.note(statuses)
        return self._epoch, [self.ledger.glimpse()], [self.ledger.newest()]


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    at_start = environment(seed, os.getloadavg()[0])
    seconds = 30.0 if quick else 90.0
    program = shutil.which(os.environ.get("TETHER_CHROMIUM", "chromium"))
    say("page: what making the reports takes by itself")
    alone, late_alone = _driver(seed, WARM_UP + 10, feed=False)
    say("page: with feed, files and page" + (", and a browser" if program else ""))
    used, late, browser = _served(seed, seconds, program)
    goals = [
        Goal("page.browser_core", "<=", 0.2, browser, "no Chromium here, or no Playwright"),
        Goal("page.driver_share", "<=", 0.03, max(0.0, used - alone)),
    ]
    result = {
        "contender": "tether: the live page, 1,000 slots, 5 epochs a second",
        "workload": {"slots": SLOTS, "epochs_a_second": 1 / PACE, "seconds": seconds},
        "repeats": int(seconds / PACE),
        "median_ms": round(late, 2),
        "spread_ms": [round(late_alone, 2), round(late, 2)],
        "answer_checked": False,
        "detail": {
            "driver_cores_reports_alone": round(alone, 4),
            "driver_cores_with_page": round(used, 4),
            "browser_cores": browser,
            "times_in_ms": "how long handing an epoch to the feed held the driver up, median",
        },
    }
    return {
        "experiment": "page",
        "environment": at_start,
        "results": [result],
        "goals": [goal.plain() for goal in goals],
    }


def _driver(seed: int, seconds: float, *, feed: bool, into: str = "") -> tuple[float, float]:
    """Run epochs at their pace; cores used, and milliseconds that a hand-over takes."""
    reporter = Reporter(seed)
    told = None
    if feed:
        told = OperatorFeed(
            {"count": (reporter.policy, SLOTS)},
            amplification_of({"count": 1.0}, {}),
            shared=True,
            entries=frozenset({"count"}),
            ends=frozenset({"count"}),
            backup=(into, {}),
            run="bench",
        )
        told.begin("bench-page", "a thousand slots")
    held: list[float] = []
    counted = 0.0
    began, cpu, warm = time.monotonic(), time.process_time(), False
    due = began
    while time.monotonic() - began < seconds:
        if not warm and time.monotonic() - began > WARM_UP:
            # From here on: the first bound of all slots, and the browser's first look, are over.
            warm, counted, cpu = True, time.monotonic(), time.process_time()
        epoch, glimpses, statuses = reporter.epoch()
        if told is not None:
            at = time.perf_counter()
            told.epoch(Epoch(epoch), PACE, glimpses, statuses)
            held.append((time.perf_counter() - at) * 1e3)
        due += PACE
        time.sleep(max(0.0, due - time.monotonic()))
    used = (time.process_time() - cpu) / (time.monotonic() - (counted if warm else began))
    if told is not None:
        told.end("stopped")
    return used, statistics.median(held) if held else 0.0


def _served(seed: int, seconds: float, program: str | None) -> tuple[float, float, float | None]:
    from tether.ui import serve  # noqa: PLC0415 - an extra

    with (
        tempfile.TemporaryDirectory(prefix="tether-bench-") as into,
        serve(quiet=True, port=0) as page,
    ):
        watching = threading.Thread(target=lambda: None)
        cores: list[float] = []
        if program is not None:
            import subprocess  # noqa: PLC0415

            # A process of its own: what Playwright takes is not the driver's.
            command = [
                sys.executable,
                "-m",
                "bench.page",
                page.address,
                program,
                str(seconds - WARM_UP - 4),
            ]
            watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

            def read() -> None:
                told, _ = watcher.communicate()
                cores.extend(float(line) for line in told.split())

            watching = threading.Thread(target=read)
        watching.start()
        used, late = _driver(seed, seconds, feed=True, into=into)
        watching.join(60)
    return used, late, cores[0] if cores else None


def watch(address: str, program: str, seconds: float) -> float:
    """Open the page in a browser; cores that its processes use once it is up."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - for tests and benchmarks only

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(address)
        tab.locator(".strip[aria-label]").wait_for(timeout=60_000)
        time.sleep(2)  # it has drawn everything for the first time
        processes = [
            one
            for one in psutil.Process().children(recursive=True)
            if "chrom" in one.name().lower()
        ]

        def used() -> float:
            total = 0.0
            for one in processes:
                try:
                    times = one.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                total += times.user + times.system
            return total

        before, began = used(), time.monotonic()
        time.sleep(seconds)
        cores = (used() - before) / (time.monotonic() - began)
        browser.close()
    return cores


if __name__ == "__main__":
    print(watch(sys.argv[1], sys.argv[2], float(sys.argv[3])))
