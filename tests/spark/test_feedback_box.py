"""Feedback that waits at the driver: lost within L, told, delivered once; over any deaths of drivers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tether
from tether.backup.commits import CommitRecord
from tether.backup.objects import ObjectStore
from tether.core.errors import BackupUnreadableError
from tether.core.placement import Placement
from tether.engine.query.feedback_box import FeedbackBox
from tether.engine.query.ledger import Ledger
from tether.engine.writing.items import pack_items, unpack_items

if TYPE_CHECKING:
    from tether.backup.history import CommitHistory

AHEAD, BEHIND = ("ahead", 0), ("behind", 0)
_stores = iter(range(1 << 30))


def operator(name: str, policy: Any, receiver: str | None = None) -> Any:
    return SimpleNamespace(name=name, feedback_to=receiver, policy=policy, placement=Placement())


class PartOfLoop:
    """The commits of one part of the query: its operators, its log, how far it has come."""

    def __init__(self) -> None:
        self.store = ObjectStore(f"memory://feedback-{next(_stores)}")
        self.lock = self.store.lock("test")
        self.committed = -1

    def history(self) -> CommitHistory:
        return self.store.read_commits().history


class Loop:
    """An operator ahead that gets feedback, one behind that sends it, and a driver that may die.

    Args:
        policy: Of both.
        apart: Whether the two are at different epochs; else every epoch runs through both.
    """

    def __init__(self, policy: Any, *, apart: bool = False) -> None:
        self.policy, self.apart = policy, apart
        self.first = PartOfLoop()
        self.second = PartOfLoop() if apart else self.first
        self.sent: dict[int, list[int]] = {}
        self.used: dict[int, list[int]] = {}
        self.told: list[Any] = []
        self.restart()

    def restart(self, policy: Any = None) -> None:
        """A new driver, which knows only what is durable."""
        self.policy = policy or self.policy
        self.ahead = operator("ahead", self.policy)
        self.behind = operator("behind", self.policy, "ahead")
        self.box = FeedbackBox(apart=self.apart)
        if self.apart:
            last = self.second.history().last_epoch
            self.second.committed = min(self.first.committed, -1 if last is None else last)
            self._resume(self.first, [self.ahead])
            self._resume(self.second, [self.behind])
        else:
            self._resume(self.first, [self.ahead, self.behind])

    def _resume(self, part: PartOfLoop, operators: list[Any]) -> None:
        self.told += self.box.resume(part.store, part.history(), operators, part.committed)

    def run_ahead(self, epoch: int, *, dies: str = "") -> None:
        self._run(self.first, [self.ahead], epoch, {AHEAD: self._takes(epoch)}, dies)

    def run_behind(self, epoch: int, items: int) -> None:
        self._run(self.second, [self.behind], epoch, {BEHIND: self._sends(epoch, items)}, "")

    def epoch(self, items: int, *, dies: str = "") -> None:
        """One epoch of both, at one pace."""
        epoch = self.first.committed + 1
        statuses = {AHEAD: self._takes(epoch), BEHIND: self._sends(epoch, items)}
        self._run(self.first, [self.ahead, self.behind], epoch, statuses, dies)

    def _takes(self, epoch: int) -> Any:
        waiting = self.box.waiting("ahead")
        items = unpack_items(waiting.items) if waiting else ()
        self.used[epoch] = [row for batch in items for row in batch["item"].to_pylist()]
        given = waiting.epoch if waiting else -1
        return SimpleNamespace(epoch=epoch, feedback=b"", feedback_epoch=given)

    def _sends(self, epoch: int, items: int) -> Any:
        self.sent[epoch] = [1000 * epoch + number for number in range(items)]
        batch = pa.RecordBatch.from_pydict({"item": self.sent[epoch]})
        packed = pack_items([batch]) if items else b""
        return SimpleNamespace(epoch=epoch, feedback=packed, feedback_epoch=-1)

    def _run(
        self, part: PartOfLoop, operators: list[Any], epoch: int, statuses: Any, dies: str
    ) -> None:
        if dies == "before the record":
            return
        ids = {"epoch": epoch, "query_id": "q", "run_id": "r"}
        entries = self.box.save(part.store, operators, statuses, **ids)
        last = part.history().last_epoch
        if entries or part is not self.first or (last is not None and last >= epoch):
            part.store.append_commit(CommitRecord(epoch=epoch, run="r", slots=entries))
        if dies == "before Spark commits":
            return
        self.box.deliver(operators, statuses)
        part.committed = epoch

    def stop(self) -> None:
        """In good order."""
        for part, operators in (
            [(self.first, [self.ahead]), (self.second, [self.behind])]
            if self.apart
            else [(self.first, [self.ahead, self.behind])]
        ):
            if part.committed >= 0:
                nothing = SimpleNamespace(epoch=part.committed, feedback=b"", feedback_epoch=-1)
                statuses = {(one.name, 0): nothing for one in operators}
                ids = {"epoch": part.committed, "query_id": "q", "run_id": "r"}
                entries = self.box.save(part.store, operators, statuses, **ids, flush=True)
                record = CommitRecord(epoch=part.committed, run="r", slots=entries, amends=True)
                part.store.append_commit(record)

    def missing(self) -> int:
        """Items that were sent, and that neither were used in a committed epoch nor wait."""
        used = self.used_items()
        assert len(used) == len(set(used)), "an item was given twice"
        waiting = self.box.waiting("ahead")
        batches = unpack_items(waiting.items) if waiting else ()
        there = {row for batch in batches for row in batch["item"].to_pylist()}
        sent = {
            item for e, items in self.sent.items() if e <= self.second.committed for item in items
        }
        return len(sent - set(used) - there)

    def used_items(self) -> list[int]:
        return [i for e, items in self.used.items() if e <= self.first.committed for i in items]

    def bound(self) -> Any:
        ledger = Ledger("behind", 1, self.policy, Placement())
        ledger.note_feedback(*self.box.told("behind"))
        return ledger.bound()


def test_what_a_driver_that_dies_takes_with_it_is_told_and_halves_l() -> None:
    loop = Loop(tether.Approximate(10, max_lost_items=20))
    for death in range(1, 8):
        for _ in range(3):
            loop.epoch(items=4)
        assert loop.bound().items_at_risk <= 10 / 2 ** (death - 1)
        loop.restart()
        assert loop.missing() <= loop.bound().items_lost <= 20
    assert loop.missing() > 0
    assert loop.bound().items_lost == 10 + 5  # 4 at a time: above l = 2 they are saved at once
    assert [loss.items for loss in loop.told] == [10, 5]


def test_without_a_budget_for_items_none_is_lost() -> None:
    for policy in (tether.Approximate(10), tether.MiniBatch()):
        loop = Loop(policy)
        for _ in range(4):
            loop.epoch(items=3)
            loop.restart()
        assert (loop.missing(), loop.bound().items_lost, loop.told) == (0, 0, [])


def test_a_stop_in_good_order_loses_none() -> None:
    loop = Loop(tether.Approximate(10, max_lost_items=1000))
    for _ in range(3):
        loop.epoch(items=5)
        loop.stop()
        loop.restart()
    assert (loop.missing(), loop.bound().items_lost) == (0, 0)


def test_an_exact_policy_still_tells_what_was_lost_before_it() -> None:
    loop = Loop(tether.Approximate(10, max_lost_items=40))
    loop.epoch(items=15)
    loop.restart(tether.MiniBatch())
    loop.epoch(items=15)
    loop.restart()
    assert (loop.missing(), loop.bound().items_lost) == (15, 20)


def test_a_loop_that_never_leaves_anything_unsaved_is_charged_nothing() -> None:
    loop = Loop(tether.Approximate(10, max_lost_items=8))
    for _ in range(3):
        loop.epoch(items=5)  # above l = 4: saved at once
        loop.restart()
    assert (loop.missing(), loop.bound().items_lost) == (0, 0)


def test_of_a_policy_without_backups_nobody_knows_how_many_are_lost() -> None:
    box = FeedbackBox()
    sender = operator("behind", tether.NoTolerance(), "ahead")
    (loss,) = box.resume_without_account([sender], 4)
    assert loss.items == math.inf
    ledger = Ledger("behind", 1, tether.NoTolerance(), Placement())
    ledger.note_feedback(*box.told("behind"))
    assert ledger.bound().items_lost == math.inf


@pytest.mark.parametrize("policy", [tether.MiniBatch(), tether.Approximate(10)])
def test_feedback_that_cannot_be_read_back_is_no_secret(policy: Any) -> None:
    loop = Loop(policy)
    for _ in range(3):
        loop.epoch(items=2)
    (newest,) = loop.first.history().chain("behind.feedback", 0, 3)
    loop.first.store.drop([newest.frame])
    if policy.budget.max_state_error:
        loop.restart()
        assert loop.missing() == 2
        assert loop.bound().items_lost == math.inf
    else:
        with pytest.raises(BackupUnreadableError, match="Feedback of 'behind'"):
            loop.restart()


DEATH = st.sampled_from(["", "", "before the record", "before Spark commits", "after all", "stop"])


@given(
    lost=st.sampled_from([0, 3, 8, 30]),
    life=st.lists(st.tuples(st.integers(0, 6), DEATH), max_size=25),
)
def test_at_one_pace_all_that_is_missing_is_told(lost: int, life: list[tuple[int, str]]) -> None:
    loop = Loop(tether.Approximate(10, max_lost_items=lost))
    for items, death in life:
        loop.epoch(items, dies=death)
        if death == "stop":
            loop.stop()
        if death:
            loop.restart()
        assert loop.missing() <= loop.bound().items_lost <= lost


@given(
    lost=st.sampled_from([0, 3, 8, 30]),
    life=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), DEATH), max_size=25),
)
def test_at_two_paces_too(lost: int, life: list[tuple[int, int, str]]) -> None:
    """The operator ahead runs an epoch; the one behind then makes up for some of its own."""
    loop = Loop(tether.Approximate(10, max_lost_items=lost), apart=True)
    for items, steps, death in life:
        loop.run_ahead(loop.first.committed + 1, dies=death)
        for _ in range(steps):
            if loop.second.committed < loop.first.committed:
                loop.run_behind(loop.second.committed + 1, items)
        if death == "stop":
            loop.stop()
        if death:
            loop.restart()
        assert loop.missing() <= loop.bound().items_lost <= lost
