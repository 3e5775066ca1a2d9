"""Main and its twin in one process: the protocol of :mod:`tether.protocols.take_over`, step by step.

What Spark's driver does with two streams and threads (:mod:`tether.spark.running.meanwhile`) happens
here between two epochs. The twin runs so many epochs for each one of main.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.ids import Epoch, epoch_after
from tether.engine.query.following import topology_now
from tether.engine.query.going_on import go_on_without, snapshot_before, who_is_there
from tether.engine.query.twin import record_twin, save_twin
from tether.engine.recovery.lost import LostStateError
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
        how: What lost slots do meanwhile.
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
        self._open_twin, self._feed, self._swap = open_twin, feed, swap
        self._protocol = to.TakeOver()
        self.note: to.Note | None = None
        """Outlives the driver, as a file would."""
        self.twin: Runner[LocalCluster] | None = None
        """The twin, where there is one."""
        self._topology: Topology | None = None
        self._saved: Any = {}

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return self._protocol.phase == "whole"

    @property
    def snapshot(self) -> Epoch | None:
        """Twins start from the snapshot of this epoch."""
        return None if self.note is None else self.note.snapshot

    def fidelity(self, main: Runner[LocalCluster]) -> float:
        """Output fidelity of main's rows, from 0 to 1."""
        if self.whole:
            return 1.0
        return fidelity_without(main.plan.settings.graph, main.books.aside.missing, self._topology)

    def resume(self, main: Runner[LocalCluster], epoch: Epoch) -> None:
        """A driver was restarted before an epoch: go on with what the note says."""
        self._protocol, asked = to.resumed(self.note, snapshot_before(main, epoch), epoch)
        self.twin = None
        if self.note is not None and self._protocol.phase != "over":
            main.books.aside.go_on_without((), self._how)
        for one in asked:
            self._obey(one)

    def go_on(self, main: Runner[LocalCluster], epoch: Epoch, why: str) -> None:
        """Slots of main are lost: go on without them, with copies where there are any."""
        if self.whole:
            self._topology = topology_now(main)
        snapshot = snapshot_before(main, epoch)
        lost = go_on_without(main, who_is_there(main, epoch), epoch, why, self._how)
        if self.whole:
            main.books.reports.add("tentative", why, epoch, slots=len(lost), snapshot=snapshot)
        self._tell(to.Lost(epoch=epoch, snapshot=snapshot))

    def ended(self, epoch: Epoch) -> None:
        """Main has come to the end of an epoch: now the twin runs some."""
        self._tell(to.MainEnded(epoch=epoch))
        ran = 0
        while not self.whole and self._twin_epoch():
            ran += 1
            # Once main is held, it begins no further epoch until the twin has come to where it stands.
            if ran >= self._pace and self._protocol.phase == "tentative":
                break

    def _twin_epoch(self) -> bool:
        """Let the twin run its next epoch; False if it has none to run."""
        state = self._protocol
        if state.phase == "holding" and state.stopped is None:
            self._tell(to.MainHeld(epoch=state.main))
            state = self._protocol
        if self.twin is None or state.twin is None or state.twin >= state.main:
            return False
        epoch = epoch_after(state.twin)
        try:
            self.twin.run(self._feed(epoch), epoch)
        except LostStateError:
            self._tell(to.TwinLost(twin=state.twins))
            return True
        self._tell(to.TwinEnded(epoch=epoch, twin=state.twins))
        if self._protocol.phase == "holding" and self._protocol.stopped is None:
            self._tell(to.MainHeld(epoch=self._protocol.main))
        return True

    def _tell(self, event: to.Event) -> None:
        self._protocol, asked = to.step(self._protocol, event)
        for one in asked:
            self._obey(one)

    def _obey(self, one: to.Instruction) -> None:
        match one:
            case to.WriteNote(note=note):
                self.note = note
                self._tell(to.Noted(note=note))
            case to.StartTwin(twin=number, snapshot=snapshot):
                self.twin = self._open_twin(number, snapshot)
            case to.EndTwin():
                self.twin = None
            case to.SaveTwin(epoch=at, twin=number):
                assert self.twin is not None
                self._saved = save_twin(self.twin, at)
                self._tell(to.TwinSaved(epoch=at, twin=number))
            case to.RecordTakeOver(epoch=at):
                assert self.twin is not None
                record_twin(self.twin, at, self._saved)
                self._tell(to.Recorded(epoch=at))
            case to.SwapIn(epoch=at):
                assert self.twin is not None
                self.twin.books.reports.add("taken-over", "the twin has caught up", at)
                self._swap(self.twin)
                self.twin = None
            case to.RemoveNote():
                self.note = None
                self._tell(to.NoteRemoved())
            case to.HoldMain() | to.ReleaseMain():
                pass  # main stands between two epochs whenever the twin runs
