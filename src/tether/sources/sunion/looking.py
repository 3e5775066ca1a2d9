"""The inputs of a subscription as they are now, and the epoch that can be cut from them."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from tether.backup.objectio import ObjectFolder
from tether.core.errors import BackupError, BackupUnreadableError
from tether.protocols.consistency import (
    Handling,
    Look,
    Manager,
    Release,
    Switch,
    complete_before,
    manage,
)
from tether.sources.exchange.following import GIVEN_UP_AFTER, Follower, fetch
from tether.sources.exchange.gateway_index import GatewayIndex, begun
from tether.sources.exchange.gateway_input import (
    GatewayInput,  # noqa: TC001 - msgspec reads annotations
)
from tether.sources.exchange.lease import LeaseAddress  # noqa: TC001 - msgspec reads annotations
from tether.sources.exchange.log import ExchangeAddress  # noqa: TC001 - msgspec reads annotations
from tether.sources.exchange.readers import note_reader
from tether.sources.exchange.view import ReplicaView
from tether.sources.sunion.offsets import Offset, Taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.sources.exchange.entries import Entry
    from tether.sources.exchange.log import ExchangeLog

_log = logging.getLogger(__name__)
FIRST_LOOK = 10.0
"""Seconds that a query which starts waits for a store, or a bounded one for a gateway, to answer."""
SKEW_TOLD = 1.0
"""Seconds by which a writer's clock must be ahead of ours to be told."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a subscription was asked for; it travels as one option of the data source."""

    inputs: tuple[tuple[ExchangeAddress, ...], ...]
    reader: str
    bucket: int
    handling: Handling
    kinds: bool
    """Whether rows tell their kind: tentative ones are asked for."""
    places: bool
    """Whether rows tell where they come from."""
    partitions: int
    retain: int
    row_schema: str
    columns: tuple[str, ...]
    replicated: tuple[bool, ...]
    unit: Literal["microseconds", "integer"]
    operators: bool = False
    """Whether operators with state read it, under a policy that keeps the two kinds apart."""
    lease: LeaseAddress | None = None
    """Where replicas of this query agree who corrects its answers first."""
    gateways: tuple[GatewayInput | None, ...] = ()
    """For each input the gateway that its rows are at, where they are at one; empty: no input is."""

    def gateway(self, number: int) -> GatewayInput | None:
        """The gateway that an input's rows are at."""
        return self.gateways[number] if self.gateways else None


class Inputs:
    """Views of all replicas of all inputs, and the manager's next step.

    Args:
        spec: The subscription.
        patience: Seconds that a look waits for a store that does not answer at once; by default a
            tenth of what rows wait.
        first_patience: Seconds that the first look waits, which reads all that has come before.
        given_up_after: Seconds after which it is asked anew.
    """

    def __init__(
        self,
        spec: Spec,
        patience: float | None = None,
        first_patience: float = FIRST_LOOK,
        given_up_after: float = GIVEN_UP_AFTER,
    ) -> None:
        self._spec = spec
        self._patience = min(1.0, spec.handling.wait / 10) if patience is None else patience
        self._first_patience = first_patience
        self.logs: list[list[ExchangeLog]] = [[a.open() for a in each] for each in spec.inputs]
        self._views: list[list[ReplicaView]] | None = None
        self._limit: list[list[int]] | None = None
        self._told: set[tuple[int, int]] = set()
        self._lease = None if spec.lease is None else spec.lease.open()
        self._indexes: dict[int, GatewayIndex] = {}
        # A directory is read as it is looked at; a store may hang.
        self._followers = {
            log.url: Follower(log, given_up_after)
            for logs in self.logs
            for log in logs
            if isinstance(log.folder, ObjectFolder)
        }

    def begin(self) -> Offset:
        """The offset before everything that is there; the reader is known from here on."""
        low = tuple(tuple(log.first() for log in logs) for logs in self.logs)
        for log, number in self._each(low):
            self._note(log, number)
        manager = Manager(following=(0,) * len(self.logs))
        return Offset(manager=manager, low=low, bucket=self._spec.bucket)

    def note(self, low: tuple[tuple[int, ...], ...]) -> None:
        """Say in every exchange what this reader may still need."""
        for log, number in self._each(low):
            follower = self._followers.get(log.url)
            if follower is None:
                self._note(log, number)
            else:
                follower.note(partial(self._note, log, number))

    def stop_here(self, start: Offset) -> None:
        """What comes later than now is not looked at any more."""
        self._extend_indexes()
        for index in self._indexes.values():
            index.await_look(FIRST_LOOK)
        views = self._look(start, seconds=self._first_patience)
        self._limit = [[view.next for view in of_one] for of_one in views]

    def next(self, start: Offset, now: float) -> Offset:
        """The end of the next epoch; the start itself where there is nothing to give yet."""
        self._extend_indexes()
        views = self._look(start, now)
        waiting = [
            each
            for replicas in views
            for view in replicas
            for each in view.waiting(start.manager.stable)
        ]
        look = Look(
            now=now,
            inputs=tuple(tuple(view.known() for view in replicas) for replicas in views),
            waiting=tuple(waiting),
        )
        manager, asked = manage(start.manager, self._in_turn(start, look), self._spec.handling)
        for each in asked:
            if isinstance(each, Switch):
                url = self.logs[each.input][each.replica].url
                _log.warning("Input %d is read from %s from now on.", each.input, url)
        release = next((each for each in asked if isinstance(each, Release)), None)
        if release is None:
            return start
        taken = []
        for number, replica in enumerate(release.replicas):
            view = views[number][replica]
            first = view.needed_from(release.first)
            taken.append(Taken(replica=replica, first=first, end=view.next))
        low = tuple(
            tuple(view.needed_from(manager.stable) for view in replicas) for replicas in views
        )
        return Offset(
            manager=manager,
            low=low,
            kind=release.kind,
            first=release.first,
            end=release.end,
            bucket=self._spec.bucket,
            taken=tuple(taken),
            given=start.given + (release.kind == "stable"),
            clocks={
                url: round(ahead, 1) for url, ahead in self.skew().items() if ahead > SKEW_TOLD
            },
        )

    def _in_turn(self, start: Offset, look: Look) -> Look:
        """Say in a look whether it is this query's turn to correct answers, if it has replicas."""
        if self._lease is None:
            return look
        manager = start.manager
        if manager.ahead == manager.stable:
            self._lease.release()
            return look
        if complete_before(look) <= manager.stable or self._lease.hold():
            return look
        return msgspec.structs.replace(look, postponed=True)

    def entries(self, number: int, taken: Taken) -> list[Entry]:
        """The entries of an input that an epoch looks at."""
        if self._views is not None:
            found = self._views[number][taken.replica].between(taken.first, taken.end)
            if found is not None:
                return found
        return list(self.logs[number][taken.replica].entries(taken.first, taken.end))

    def stop(self) -> None:
        """Look no more, where that is done in the background."""
        for index in self._indexes.values():
            index.stop()
        self._indexes.clear()

    def skew(self) -> dict[str, float]:
        """Seconds by which each writer's clock is ahead of ours at least; see ``ReplicaView``."""
        return {
            log.url: view.ahead_by
            for logs, views in zip(self.logs, self._views or [], strict=False)
            for log, view in zip(logs, views, strict=True)
            if view.ahead_by is not None
        }

    # ---- inside --------------------------------------------------------------------------------------

    def _each(self, low: tuple[tuple[int, ...], ...]) -> Iterator[tuple[ExchangeLog, int]]:
        for logs, numbers in zip(self.logs, low, strict=True):
            yield from zip(logs, numbers, strict=True)

    def _note(self, log: ExchangeLog, number: int) -> None:
        try:
            note_reader(log, self._spec.reader, number)
        except BackupError as error:
            # It then keeps more than it must, until the next note.
            _log.warning("%s does not know how far it was read: %s", log.url, error)

    def _extend_indexes(self) -> None:
        """Inputs that are gateways are looked at from the first epoch on."""
        for number, source in enumerate(self._spec.gateways):
            if source is None or number in self._indexes:
                continue
            if (index := begun(source, self.logs[number][0])) is not None:
                self._indexes[number] = index

    def _look(
        self, start: Offset, now: float = float("inf"), seconds: float | None = None
    ) -> list[list[ReplicaView]]:
        """All that is there, from what was seen before; of a store what comes within some seconds."""
        if self._views is None:
            size, seconds = self._spec.bucket, self._first_patience
            self._views = [[ReplicaView(size, first) for first in lows] for lows in start.low]
        for number, (logs, views) in enumerate(zip(self.logs, self._views, strict=True)):
            for replica, (log, view) in enumerate(zip(logs, views, strict=True)):
                view.forget_below(start.low[number][replica])
                more = True
                while more:
                    more = self._take(log, view, now, (number, replica), seconds)
                    # An input that is still being read is not silent: at first all is read.
                    more &= seconds is not None
        return self._views

    def _take(
        self,
        log: ExchangeLog,
        view: ReplicaView,
        now: float,
        at: tuple[int, int],
        seconds: float | None,
    ) -> bool:
        """Take in what has come; give whether there may be more."""
        number, replica = at
        end = self._limit[number][replica] if self._limit is not None else None
        follower = self._followers.get(log.url)
        if follower is None:
            found = fetch(log, view.next, end)
        else:
            found = follower.next(view.next, end, self._patience if seconds is None else seconds)
        for entry in found.entries:
            view.take(entry, min(now, 2**53))
        if isinstance(found.error, BackupUnreadableError):
            if len(self.logs[number]) == 1:
                raise found.error
            _log.error("A replica of input %d is left out: %s", number, found.error)
        elif found.error is not None:
            # It may be reached again; until then it is an input that is silent.
            _log.warning("Input %d cannot be reached: %s", number, found.error)
        if view.ahead_by is not None and view.ahead_by > SKEW_TOLD and at not in self._told:
            self._told.add(at)
            _log.warning(
                "The clock of the writer of %s is at least %.1f s ahead of this machine's. Where tuple "
                "times come from that clock, rows of other inputs wait that much less for it.",
                log.url,
                view.ahead_by,
            )
        return found.more
