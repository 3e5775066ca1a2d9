"""Main and its twin in one process: the protocol of :mod:`tether.protocols.take_over`, step by step.

Spark's driver does this with two streams and threads (:mod:`tether.spark.running.meanwhile`). Here it
happens at once, between two epochs (:mod:`tether.local.take_over`). The twin runs a fixed number of
epochs for each one of main.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import Epoch, epoch_after
from tether.engine.query.following import topology_now
from tether.engine.query.going_on import go_on_without, snapshot_before, who_is_there
from tether.engine.recovery.lost import LostStateError
from tether.local.take_over import LocalTakeOver
from tether.planning.missing import fidelity_without
from tether.protocols import take_over as to

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.engine.query.aside import Missing
    from tether.engine.query.runner import Runner
    from tether.local.cluster import Feed, LocalCluster
    from tether.planning.topology import Topology


class LocalMeanwhile:
    """What a query in one process does between a loss and the take-over of its twin.

    Args:
        how: What lost slots do until the take-over.
        pace: Epochs of the twin for each one of main.
        open_twin: Makes a twin that starts from the snapshot of an epoch.
        feed: The rows of an epoch.
        swap: Called with the run that is the query from now on.
    """

    def __init__(
        self,
        how: Missing,
        pace: int,
        *,
        open_twin: Callable[[int, Epoch], Runner[LocalCluster]],
        feed: Callable[[Epoch], Feed],
        swap: Callable[[Runner[LocalCluster]], None],
    ) -> None:
        self._how, self._pace = how, pace
        self._feed, self._swap = feed, swap
        self._take_over = LocalTakeOver(open_twin, self._swapped)
        self._topology: Topology | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return self._take_over.protocol.phase == "whole"

    @property
    def unfinished(self) -> bool:
        """Whether a driver that died has left a note."""
        return self._take_over.note is not None

    @property
    def twin(self) -> Runner[LocalCluster] | None:
        """The twin, where there is one."""
        return self._take_over.twin

    @property
    def snapshot(self) -> Epoch | None:
        """Twins start from the snapshot of this epoch."""
        note = self._take_over.note
        return None if note is None else note.snapshot

    def fidelity(self, main: Runner[LocalCluster]) -> float:
        """Output fidelity of main's rows, from 0 to 1."""
        if self.whole:
            return 1.0
        return fidelity_without(main.plan.settings.graph, main.books.aside.missing, self._topology)

    def resume(self, main: Runner[LocalCluster], epoch: Epoch) -> None:
        """A driver was restarted before an epoch: continue as the note says."""
        self._take_over.resume(snapshot_before(main, epoch), epoch)
        if self.unfinished and self._take_over.protocol.phase != "over":
            main.books.aside.go_on_without((), self._how)
        self._obey()

    def go_on(self, main: Runner[LocalCluster], epoch: Epoch, why: str) -> None:
        """Continue without slots of main that are lost, with copies where there are any."""
        if self.whole:
            self._topology = topology_now(main)
        snapshot = snapshot_before(main, epoch)
        lost = go_on_without(main, who_is_there(main, epoch), epoch, why, self._how)
        if self.whole:
            main.books.reports.add("tentative", why, epoch, slots=len(lost), snapshot=snapshot)
        self._take_over.tell(to.Lost(epoch=epoch, snapshot=snapshot))
        self._obey()

    def ended(self, epoch: Epoch) -> None:
        """Main has finished an epoch: let the twin run some."""
        self._take_over.tell(to.MainEnded(epoch=epoch))
        self._obey()
        ran = 0
        while not self.whole and self._twin_epoch():
            ran += 1
            # Once main is held, it begins no further epoch until the twin has reached the same epoch.
            if ran >= self._pace and self._take_over.protocol.phase == "tentative":
                break

    def _twin_epoch(self) -> bool:
        """Let the twin run its next epoch; False if it has none to run."""
        self._hold_if_asked()
        state, twin = self._take_over.protocol, self._take_over.twin
        if twin is None or state.twin is None or state.twin >= state.main:
            return False
        epoch = epoch_after(state.twin)
        try:
            twin.run(self._feed(epoch), epoch)
        except LostStateError:
            self._take_over.lost(state.twins)
        else:
            self._take_over.tell(to.TwinEnded(epoch=epoch, twin=state.twins))
        self._obey()
        self._hold_if_asked()
        return True

    def _hold_if_asked(self) -> None:
        """Report at once that main is held: it is always between two epochs when the twin runs."""
        state = self._take_over.protocol
        if state.phase == "holding" and state.stopped is None:
            self._take_over.tell(to.MainHeld(epoch=state.main))
            self._obey()

    def _obey(self) -> None:
        while self._take_over.asked:
            self._take_over.obey()

    def _swapped(self, twin: Runner[LocalCluster], epoch: Epoch) -> None:
        twin.books.reports.add("taken-over", "the twin has caught up", epoch)
        self._swap(twin)
