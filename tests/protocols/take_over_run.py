"""A query, its twin and a sink, on simulated epochs: any schedule, any losses, a crash at any step.

A state is the tuple of epochs that were applied to it. The answer of epoch x is right if it was given
from exactly the epochs 0 to x. Decisions are those of ``tether.protocols.take_over``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tether.protocols import take_over as to
from tether.protocols import take_over_steps as steps

if TYPE_CHECKING:
    from collections.abc import Callable

State = tuple[int, ...]


def upto(epoch: int) -> State:
    """The right state at the end of an epoch."""
    return tuple(range(epoch + 1))


@dataclass
class Sink:
    """What a reader has been given, by epoch: stable answers, each once, and tentative ones."""

    stable: dict[int, State] = field(default_factory=dict)
    tentative: dict[int, State] = field(default_factory=dict)
    newest: int = -1
    """The epoch that was given last."""
    in_doubt: int | None = None
    """That epoch when the driver died: unless it was noted before, it may come again."""

    def give(self, epoch: int, answer: State) -> None:
        """A stable answer: in order, once, and right."""
        again = epoch in self.stable
        assert not again or epoch == self.in_doubt, f"the stable answer of {epoch} came twice"
        assert not again or self.stable[epoch] == answer, f"a stable answer of {epoch} was changed"
        assert answer == upto(epoch), f"a wrong answer of {epoch} was called stable"
        assert epoch == 0 or epoch - 1 in self.stable, (
            f"the stable answer before {epoch} is missing"
        )
        self.stable[epoch], self.newest = answer, epoch
        self.tentative.pop(epoch, None)

    def guess(self, epoch: int, answer: State) -> None:
        """A tentative answer: never where a stable one has been."""
        assert epoch not in self.stable, f"the stable answer of {epoch} was withdrawn"
        self.tentative[epoch] = answer


@dataclass
class World:
    """One query with its durable facts, and what runs now."""

    strategy: to.Strategy
    snapshot_every: int
    step: Callable[[to.TakeOver, to.Event], Any] = steps.step
    resumed: Callable[..., Any] = steps.resumed
    sink: Sink = field(default_factory=Sink)
    # durable
    note: to.Note | None = None
    complete: tuple[int, State] = (-1, ())
    committed: int = -1
    # running
    protocol: to.TakeOver = field(init=False)
    asked: deque[Any] = field(default_factory=deque)
    main: State = ()
    twin: State | None = None
    saved: State | None = None
    held: bool = False
    losses: int = 0

    def __post_init__(self) -> None:
        self.protocol = to.TakeOver(strategy=self.strategy)

    def tell(self, event: to.Event) -> None:
        """Something happened."""
        self.protocol, asked = self.step(self.protocol, event)
        self.asked.extend(asked)

    # ---- what can happen ------------------------------------------------------------------------

    def run_main(self) -> None:
        """Main runs its next epoch, if nothing holds it."""
        if self.held or self.protocol.phase == "noting":
            return
        epoch = self.committed + 1
        self.main = (*self.main, epoch)
        if self.protocol.kind(epoch) == "stable":
            self.sink.give(epoch, self.main)
        else:
            assert self.note is not None, "tentative rows without a durable note"
            self.sink.guess(epoch, self.main)
        self.committed = epoch
        whole = self.protocol.phase == "whole"
        if whole and epoch - self.complete[0] >= self.snapshot_every:
            assert self.main == upto(epoch), "a wrong state became a snapshot"
            self.complete = (epoch, self.main)
        self.tell(to.MainEnded(epoch=epoch))

    def run_twin(self) -> None:
        """The twin runs an epoch that main has cut."""
        last = self.protocol.twin
        if self.twin is None or last is None or last >= self.committed:
            return
        if any(isinstance(one, to.SaveTwin | to.WriteNote) for one in self.asked):
            return  # what it was asked for, and what it has given, must be done and durable first
        epoch = last + 1
        self.twin = (*self.twin, epoch)
        if self.protocol.speaks(epoch):
            self.sink.give(epoch, self.twin)
        self.tell(to.TwinEnded(epoch=epoch, twin=self.protocol.twins))

    def obey(self) -> None:
        """Carry out the next instruction."""
        if not self.asked:
            return
        one = self.asked.popleft()
        if isinstance(one, to.WriteNote):
            self.note = one.note
            self.tell(to.Noted(note=one.note))
        elif isinstance(one, to.StartTwin):
            assert one.snapshot == self.complete[0]
            self.twin = self.complete[1]
        elif isinstance(one, to.EndTwin):
            self.twin = self.saved = None
        elif isinstance(one, to.HoldMain):
            self.held = True
            self.tell(to.MainHeld(epoch=self.committed))
        elif isinstance(one, to.SaveTwin):
            self.saved = self.twin
            self.tell(to.TwinSaved(epoch=one.epoch, twin=one.twin))
        elif isinstance(one, to.RecordTakeOver):
            assert self.saved == upto(one.epoch), "a wrong state took over"
            assert one.epoch == self.committed, "main and twin are not at the same epoch"
            self.complete = (one.epoch, self.saved)
            self.tell(to.Recorded(epoch=one.epoch))
        elif isinstance(one, to.SwapIn):
            assert self.twin is not None
            self.main, self.twin, self.saved = self.twin, None, None
        elif isinstance(one, to.RemoveNote):
            self.note = None
            self.tell(to.NoteRemoved())
        elif isinstance(one, to.ReleaseMain):
            self.held = False

    def lose_main(self) -> None:
        """Slots of main lose their state: they go on from the newest snapshot."""
        taking_over = any(isinstance(one, to.SwapIn) for one in self.asked)
        if self.held or taking_over or self.committed <= self.complete[0]:
            return
        self.losses += 1
        self.main = self.complete[1]
        self.tell(to.Lost(epoch=self.committed + 1, snapshot=self.complete[0]))

    def lose_twin(self) -> None:
        """The twin's executor dies."""
        if self.twin is None or any(isinstance(one, to.SwapIn) for one in self.asked):
            return
        self.losses += 1
        if self.protocol.phase == "recording":
            return  # what it has saved is durable: nothing of it is needed any more
        self.twin = None
        self.tell(to.TwinLost(twin=self.protocol.twins))

    def crash(self) -> None:
        """The driver dies; another one starts from what is durable."""
        self.losses += 1
        self.sink.in_doubt = self.sink.newest
        self.asked.clear()
        self.twin = self.saved = None
        self.held = False
        note, complete = self.note, self.complete
        self.main = complete[1]  # all that was resident is gone
        self.protocol, asked = self.resumed(
            note, complete[0], self.committed + 1, strategy=self.strategy
        )
        self.asked.extend(asked)
        lost = self.committed > complete[0] and self.protocol.phase == "whole"
        if lost:
            self.tell(to.Lost(epoch=self.committed + 1, snapshot=complete[0]))

    def settle(self, epochs: int) -> None:
        """No more failures: let everything run to its end."""
        goal = self.committed + epochs
        for _ in range(50 * (epochs + 10) + 10 * self.committed):
            while self.asked:
                self.obey()
            self.run_twin()
            if self.committed < goal:
                self.run_main()
            elif self.protocol.phase == "whole":
                return
        raise AssertionError(f"it never became whole again: {self.protocol}")
