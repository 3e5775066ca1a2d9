"""The feed of a query of operators: its driver hands reports over, the rest is done off its path."""

from __future__ import annotations

import contextlib
import importlib.metadata
import time
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.errors import TetherError
from tether.core.ids import Epoch
from tether.observe.backstage import Backstage
from tether.observe.facts import OperatorFacts, QueryFacts
from tether.observe.feed import Feed
from tether.observe.feed_log import FeedLog
from tether.observe.figures import FigureMaker, Reports, policy_words
from tether.observe.reading import FeedReader
from tether.observe.running import enlist

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tether.core.amplification import Amplification
    from tether.engine.messages import SlotStatus
    from tether.engine.query.ledger import Glimpse
    from tether.observe.facts import CopyNow, Ending, Fact, GatewayNow
    from tether.observe.story import Event
    from tether.policies.policy import Policy


class OperatorFeed:
    """Takes what the driver of a query has to tell.

    Args:
        policies: Policy and number of slots of each operator, by name, upstream ones first.
        amplification: How errors spread between them.
        shared: Whether they share one budget.
        entries: Operators that take in the query's rows.
        ends: Operators that give its rows.
        backup: Where backups are, with the file system's options; None: the feed is in memory only.
    """

    def __init__(
        self,
        policies: Mapping[str, tuple[Policy, int]],
        amplification: Amplification,
        *,
        shared: bool,
        entries: frozenset[str],
        ends: frozenset[str],
        backup: tuple[str, Mapping[str, Any]] | None,
        run: str,
    ) -> None:
        self._policies, self._run, self._backup = policies, run, backup
        self._shared, self._entries, self._ends = shared, entries, ends
        self._facts: QueryFacts | None = None
        self._log = FeedLog(*backup, run, lambda: self._facts) if backup else None
        self.feed = Feed(self._log)
        self._maker = self._maker_of(amplification)
        self._stage = Backstage(self._log.flush if self._log else None)
        self._healing: Callable[[], Mapping[str, Any] | None] = lambda: None
        """Says what is missing from the answer, and how far its correction has come; None: nothing
        is. ``fidelity``; of a twin that is under way ``epochs_behind`` and ``seconds_left``; of
        what is missing ``since``, ``since_epoch``, ``tentative_rows``, ``oldest_tentative``."""

    def _maker_of(self, amplification: Amplification) -> FigureMaker:
        first = next(iter(self._policies.values()))[0]
        budget = first.budget if self._shared else None
        return FigureMaker(list(self._policies), amplification, budget, self._entries, self._ends)

    def resized(
        self, policies: Mapping[str, tuple[Policy, int]], amplification: Amplification
    ) -> None:
        """Operators have other numbers of slots from now on."""
        self._policies = policies
        maker = self._maker_of(amplification)
        if self._facts is None:
            return
        slots = {name: number for name, (_, number) in policies.items()}
        operators = tuple(
            msgspec.structs.replace(one, slots=slots[one.name]) for one in self._facts.operators
        )
        facts = self._facts = msgspec.structs.replace(self._facts, operators=operators)

        def change() -> None:
            self._maker = maker
            self.feed.take(facts)

        self._stage.do(change)

    def show_healing(self, healing: Callable[[], Mapping[str, Any] | None]) -> None:
        """Ask ``healing`` after each epoch what is missing from the query; it gives None for nothing."""
        self._healing = healing

    def begin(self, query_id: str, name: str | None) -> None:
        """Spark has named the query."""
        told = {one: policy_words(policy.describe()) for one, (policy, _) in self._policies.items()}
        alike = len(set(told.values())) == 1
        self._facts = QueryFacts(
            at=time.time(),
            id=query_id,
            run=self._run,
            name=name or " → ".join(self._policies),
            door="operators",
            policy=next(iter(told.values())) if alike else "one for each operator",
            operators=tuple(
                OperatorFacts(name=one, slots=slots, policy=told[one])
                for one, (_, slots) in self._policies.items()
            ),
            version=importlib.metadata.version("tether"),
        )
        facts = self._facts
        self._stage.do(self._recall)
        self._stage.do(lambda: self.feed.take(facts))
        enlist(self.feed)

    def _recall(self) -> None:
        """Go on with what earlier runs of the query have kept: a page shows all of its life."""
        if self._backup is not None:
            with contextlib.suppress(TetherError):  # a history that cannot be read is not missed
                FeedReader(self._backup[0], dict(self._backup[1]) or None, self.feed).look()

    def tell(self, event: Event) -> None:
        """An event of the story."""
        self._stage.do(lambda: self.feed.event(event), must=event.what != "backup")

    def epoch(
        self,
        epoch: Epoch,
        seconds: float,
        glimpses: Sequence[Glimpse],
        statuses: Sequence[Sequence[SlotStatus]],
    ) -> None:
        """An epoch is done."""
        reports = Reports(time.time(), epoch, seconds, glimpses, statuses)
        self._stage.do(lambda: self._take(reports))

    def note(self, fact: Fact) -> None:
        """Anything else that the feed knows."""
        self._stage.do(lambda: self.feed.take(fact))

    def gateways(self, gateways: tuple[GatewayNow, ...]) -> None:
        """The windows of the gateways that the query reads, as they are now."""
        self._stage.do(lambda: self._stand(gateways=gateways))

    def copies(self, copies: tuple[CopyNow, ...]) -> None:
        """Where slots with copies run, as they are now."""
        self._stage.do(lambda: self._stand(copies=copies))

    def _stand(self, **changed: object) -> None:
        before = self.feed.standing
        now = msgspec.structs.replace(before, **changed)
        if now != before:
            self.feed.take(msgspec.structs.replace(now, at=time.time()))

    def _take(self, reports: Reports) -> None:
        figures = self._maker.figures(reports)
        missing = self._healing()
        if missing:
            behind = missing.get("epochs_behind")
            figures = msgspec.structs.replace(
                figures,
                state="tentative" if behind is None else "healing",
                fidelity=float(missing.get("fidelity", 1.0)),
                behind=int(behind or 0),
                seconds_left=missing.get("seconds_left"),
                missing_since=missing.get("since"),
                missing_from=missing.get("since_epoch", -1),
                tentative_rows=missing.get("tentative_rows", 0),
                oldest_tentative=missing.get("oldest_tentative"),
            )
        self.feed.take(figures)
        slots = self._maker.slots(reports)
        if slots is not None:
            self.feed.take(slots)

    def end(self, how: Ending, why: str = "") -> None:
        """The run is over; returns when the feed is durable, or after a few seconds."""
        if self._facts is None:
            return
        self._stage.do(lambda: self.feed.close(how, why))
        if self._log is not None:
            log = self._log
            self._stage.do(lambda: log.flush(last=True))
        self._stage.finish(10.0)
