"""Carries out, in one process, what :mod:`tether.protocols.take_over` asks for, step by step.

Who drives it chooses when: :mod:`tether.local.meanwhile` obeys at once, the simulator
(:mod:`tether.simulate.twins`) may let a driver die between any two instructions.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, assert_never

from tether.core.errors import BackupError
from tether.engine.query.twin import record_twin, save_twin
from tether.protocols import take_over as to
from tether.protocols.take_over_steps import resumed, step

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.core.ids import Epoch
    from tether.engine.ports import Statuses
    from tether.engine.query.runner import Runner
    from tether.local.cluster import LocalCluster


class LocalTakeOver:
    """The protocol's state, its note, and the twin.

    Args:
        open_twin: Makes a twin of a number that starts from the snapshot of an epoch.
        swap: Called with the run that is the query from now on, and the epoch at whose end.
        strategy: How main and twin share the cluster.
    """

    def __init__(
        self,
        open_twin: Callable[[int, Epoch], Runner[LocalCluster]],
        swap: Callable[[Runner[LocalCluster], Epoch], None],
        strategy: to.Strategy = "delay",
    ) -> None:
        self._open_twin, self._swap, self._strategy = open_twin, swap, strategy
        self.note: to.Note | None = None
        """Outlives the driver, as a file would."""
        self.protocol = to.TakeOver(strategy=strategy)
        self.asked: deque[to.Instruction] = deque()
        """What is still to be done, in this order."""
        self.twin: Runner[LocalCluster] | None = None
        """The twin, where there is one."""
        self._saved: Statuses = {}

    def resume(self, complete: Epoch, next_epoch: Epoch) -> None:
        """The driver died, and with it all but the note: go on with what that says.

        Args:
            complete: Epoch of the newest complete snapshot.
            next_epoch: The epoch that the restarted query begins with.
        """
        self.protocol, asked = resumed(self.note, complete, next_epoch, strategy=self._strategy)
        self.asked, self.twin, self._saved = deque(asked), None, {}

    def tell(self, event: to.Event) -> None:
        """Something happened."""
        self.protocol, asked = step(self.protocol, event)
        self.asked.extend(asked)

    def obey(self) -> to.Instruction:
        """Carry out the next instruction, and give it. Only the driver can hold main, or release it."""
        match one := self.asked.popleft():
            case to.WriteNote(note=note):
                self.note = note
                self.tell(to.Noted(note=note))
            case to.StartTwin(twin=number, snapshot=snapshot):
                self.twin = self._open_twin(number, snapshot)
            case to.EndTwin():
                self.twin = None
            case to.SaveTwin(epoch=at, twin=number):
                self._save(at, number)
            case to.RecordTakeOver(epoch=at):
                record_twin(self._running, at, self._saved)
                self.tell(to.Recorded(epoch=at))
            case to.SwapIn(epoch=at):
                self._swap(self._running, at)
                self.twin = None
            case to.RemoveNote():
                self.note = None
                self.tell(to.NoteRemoved())
            case to.HoldMain() | to.ReleaseMain():
                pass  # the caller runs main, and does both
            case _:
                assert_never(one)
        return one

    @property
    def _running(self) -> Runner[LocalCluster]:
        assert self.twin is not None
        return self.twin

    def _save(self, epoch: Epoch, number: int) -> None:
        try:
            self._saved = save_twin(self._running, epoch)
        except BackupError:
            self.lost(number)
        else:
            self.tell(to.TwinSaved(epoch=epoch, twin=number))

    def lost(self, number: int) -> None:
        """The twin of this number cannot go on."""
        self.twin = None
        self.tell(to.TwinLost(twin=number))
