"""Feeds of queries that never ran, for the page, its tests and its benchmark: seeded, and plausible.

Divergences grow with the rows, a backup brings a slot back to half of its θ, a failure costs what the
slot had and halves its θ, as under ``tether.Approximate``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tether.core.ids import Epoch
from tether.observe.facts import EpochFigures, OperatorFacts, QueryFacts, SlotsNow
from tether.observe.story import Event

if TYPE_CHECKING:
    from tether.observe.feed import Feed

BYTES_PER_ENTRY = 26.0
ROWS_PER_SLOT = 20_000


class MadeUpQuery:
    """Writes the feed of a query of one operator, epoch by epoch.

    Args:
        feed: Where to.
        slots: Number of slots.
        budget: Θ.
        executors: Number of executors.
        began: Unix seconds of the first epoch.
        pace: Seconds between epochs.
        seed: Of everything random.
        run: Id of the run.

    Example:
        >>> from tether.observe.feed import Feed
        >>> query = MadeUpQuery(Feed(), slots=4, began=0.0)
        >>> for _ in range(30): query.epoch()
        >>> query.fail()
        >>> query.epoch()
        >>> query.feed.failures_after()[0].lost <= query.feed.failures_after()[0].allowed
        True
    """

    def __init__(
        self,
        feed: Feed,
        *,
        slots: int,
        began: float,
        budget: float = 4000.0,
        executors: int = 3,
        pace: float = 0.4,
        seed: int = 1,
        run: str = "made-up",
        name: str = "clicks per page",
    ) -> None:
        self.feed, self.at, self._pace = feed, began, pace
        self._random = np.random.default_rng(seed)
        self._slots, self._budget, self._epoch, self._events = slots, budget, -1, 0
        self._executors = [f"executor {number}" for number in range(executors)]
        self._where = np.arange(slots) % executors
        self._theta = np.full(slots, budget / (2 * slots))
        self._divergence = np.zeros(slots)
        # Slots differ in how fast they change, as keys do.
        self._speed = self._theta * self._random.gamma(2.0, 0.02, slots)
        self._backup_epoch = np.full(slots, -1)
        self._backup_at = np.zeros(slots)
        self._failures = np.zeros(slots, np.int64)
        self._spent, self._written, self._losses = 0.0, 0.0, 0
        policy = f"approximate, max_state_error={budget:g}"
        feed.take(
            QueryFacts(
                at=began,
                id="made-up-query",
                run=run,
                name=name,
                door="operators",
                policy=policy,
                operators=(OperatorFacts(name="count", slots=slots, policy=policy),),
                version="0",
            )
        )

    def _tell(self, **told: object) -> None:
        self._events += 1
        event = Event(at=self.at, epoch=self._epoch, number=self._events, **told)  # type: ignore[arg-type]
        self.feed.event(event)

    def fail(self, executor: int = 0) -> None:
        """An executor dies: the next epoch restores its slots."""
        self._epoch += 1
        self.at += 1.6  # what the pause would be
        struck = np.flatnonzero(self._where == executor)
        for slot in struck.tolist():
            lost = float(self._divergence[slot])
            size = int(self._random.integers(2_000, 60_000))
            self._tell(
                what="recovery",
                cause="no resident state here",
                operator="count",
                slot=slot,
                detail={
                    "bound": lost,
                    "exact": lost == 0,
                    "allowed": float(self._theta[slot]),
                    "theta": float(self._theta[slot]) / 2,
                    "executor": self._executors[(executor + 1) % len(self._executors)],
                    "backup_epoch": int(self._backup_epoch[slot]),
                    "bytes": size * 26,
                    "entries": size,
                    "seconds": {
                        "find": 0.004 + 0.004 * self._random.random(),
                        "read": 0.03 + 0.03 * self._random.random(),
                        "apply": 0.015 + 0.02 * self._random.random(),
                        "finish": 0.002,
                    },
                },
            )
            self._spent += lost
        self._theta[struck] /= 2
        self._divergence[struck] = 0
        self._failures[struck] += 1
        self._losses += len(struck)
        self._epoch -= 1

    def epoch(self, **told: Any) -> None:
        """One epoch: rows come in, divergences grow, some slots back up.

        Args:
            told: Figures that are told otherwise, as of an answer that is tentative.
        """
        self._epoch += 1
        self.at += self._pace * (0.9 + 0.2 * self._random.random())
        wave = 1 + 0.35 * np.sin(self._epoch / 40)
        rows = self._random.poisson(ROWS_PER_SLOT * wave, self._slots)
        self._divergence += self._speed * wave * (0.5 + self._random.random(self._slots))
        full = np.flatnonzero(self._divergence > self._theta)
        entries = (rows[full] * 0.3).astype(int)
        for slot, size in zip(full.tolist(), entries.tolist(), strict=True):
            self._tell(
                what="backup",
                cause="theta",
                operator="count",
                slot=slot,
                detail={"bytes": int(size * BYTES_PER_ENTRY), "entries": size},
            )
        self._divergence[full] = self._theta[full] * 0.5
        self._backup_epoch[full], self._backup_at[full] = self._epoch, self.at
        at_risk = float(self._divergence.sum())
        backups = Counter({"theta": len(full)}) if len(full) else Counter[str]()
        written = {"theta": int(entries.sum() * BYTES_PER_ENTRY)} if len(full) else {}
        if len(full) and self._epoch % 50 == 49:
            backups["compaction"] += 1
            written["compaction"] = int(ROWS_PER_SLOT * BYTES_PER_ENTRY)
        self._written += sum(written.values())
        figures = EpochFigures(
            at=self.at,
            epoch=Epoch(self._epoch),
            seconds=0.8 * self._pace,
            rows_in=int(rows.sum()),
            rows_out=int(rows.sum() * 0.22),
            promised=self._budget,
            spent=self._spent,
            at_risk=at_risk,
            worst=self._spent + at_risk,
            left=max(0.0, self._budget - self._spent),
            backups=dict(backups),
            backup_bytes=written,
            changed=int(rows.sum() * 0.22),
            entry_bytes=BYTES_PER_ENTRY if self._written else 0.0,
            resident_bytes=self._slots * 9_400_000,
            fullness=float((self._divergence / self._theta).max()),
            losses=self._losses,
        )
        self.feed.take(msgspec.structs.replace(figures, **told))
        self._losses = 0
        self.feed.take(self.slots_now(rows.tolist()))

    def slots_now(self, rows: list[int]) -> SlotsNow:
        """All slots as they are."""
        return SlotsNow(
            at=self.at,
            epoch=Epoch(self._epoch),
            operator=[0] * self._slots,
            slot=list(range(self._slots)),
            divergence=list(self._divergence.round(3).tolist()),
            theta=list(self._theta.tolist()),
            executor=self._where.tolist(),
            backup_epoch=self._backup_epoch.tolist(),
            backup_at=self._backup_at.round(3).tolist(),
            failures=self._failures.tolist(),
            rows=rows,
            resident_bytes=[9_400_000] * self._slots,
            executors=self._executors,
        )
