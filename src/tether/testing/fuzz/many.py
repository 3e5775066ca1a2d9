"""Many random programs, some at a time."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING

from tether.testing.fuzz.building import build
from tether.testing.fuzz.running import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tether.testing.fuzz.running import Outcome


def outcomes(seeds: Iterable[int], until: float | None, jobs: int) -> Iterator[tuple[int, Outcome]]:
    """Programs of some seeds, as they are done.

    Args:
        seeds: Those; there may be no end of them.
        until: When to begin no more, by the monotonic clock; None for no end.
        jobs: How many at a time.
    """
    seeds = iter(seeds)
    with ProcessPoolExecutor(jobs) as pool:
        running: dict[Future[Outcome], int] = {}
        more = True
        while more or running:
            while more and len(running) < 2 * jobs:
                seed = next(seeds, None)
                more = seed is not None and (until is None or time.monotonic() < until)
                if more and seed is not None:
                    running[pool.submit(_run, seed)] = seed
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                yield running.pop(each), each.result()


def _run(seed: int) -> Outcome:
    return run(build(seed))
