"""Going back to a snapshot: the one owner of a rewind, from the loss to the stream's next epoch.

The order makes a crash at any step harmless:

1. What is about to be done is announced durably.
2. Sinks take back output that will be given again.
3. The stream is cut, so that its next epoch is the first one after the snapshot.
4. The announcement is removed.

A start that finds an announcement does steps 2 to 4 again (:func:`finish_rewind`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.chaos.faults import reach
from tether.core.ids import Epoch, epoch_before
from tether.engine.query.catching_up import CatchUp, may_stay, must_be_restored
from tether.engine.recovery.lost import LostStateError
from tether.policies.recovery import FROM_SNAPSHOT
from tether.protocols.rewind import plan_rewind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.core.graph import SlotId
    from tether.engine.ports import Stream
    from tether.engine.query.runner import Runner
    from tether.protocols.rewind import RewindPlan


class Rewinder:
    """Takes a lane back to its newest complete snapshot.

    Args:
        runner: The lane.
        stream: Gives the input, as it is now; it must be possible to read it again.
    """

    def __init__(self, runner: Runner[Any], stream: Callable[[], Stream]) -> None:
        self._runner, self._stream = runner, stream
        self._cuts_differ = False
        """Whether the source was seen to cut its rows into other epochs when it was read again."""

    def check_rows(self, epoch: Epoch) -> None:
        """While slots catch up with others that stayed, check that an epoch has its original rows.

        Raises:
            LostStateError: The epoch has other rows, so the states that stayed cannot be used any more.
        """
        behind = self._runner.catching_up.now
        if behind is None or epoch > behind.through:
            return
        if self._stream().rows_of(epoch) != behind.rows[epoch]:
            self._cuts_differ = True
            raise LostStateError(
                f"The stream was cut into other epochs when it was read again from epoch {epoch} on.",
                why="The source has no limit for an epoch, or its files have changed.",
                do="Nothing: the whole query goes back. With a limit, as maxFilesPerTrigger, only "
                "slots that must would do so.",
            )

    def rewind(self, epoch: Epoch, why: str) -> None:
        """Go back to the newest complete snapshot; the host has stopped, and can start again then.

        Args:
            epoch: The epoch that could not be run.
            why: What was lost.
        """
        runner, stream = self._runner, self._stream()
        plan = self._plan(epoch)
        stream.check(plan.read_from)
        catch_up = None
        if plan.partial:
            back = frozenset(each.slot for each in plan.restore)
            rows = {
                number: stream.rows_of(number)
                for number in map(Epoch, range(plan.read_from, epoch))
            }
            catch_up = CatchUp(back, epoch_before(epoch), rows)
        stream.announce(plan.read_from)
        reach(runner.plan.settings.faults, "during-rewind", -1, epoch)
        # Epochs that are run again only to catch up give no output.
        finish_rewind(stream, plan.void_from if catch_up is None else epoch)
        if runner.books.keeper is not None:
            runner.books.keeper.give_up(why, epoch)
        self._forget_later(epoch_before(plan.read_from), catch_up)
        runner.books.reports.add(
            "rewound",
            why,
            epoch,
            snapshot=plan.read_from - 1,
            read_from=plan.read_from,
            epochs_again=epoch - plan.read_from,
            slots=len(plan.restore),
            stayed=len(plan.keep),
        )

    def _plan(self, epoch: Epoch) -> RewindPlan:
        runner = self._runner
        operators, graph = runner.books.operators.values(), runner.plan.settings.graph
        # After a second loss while slots catch up, slots are at different epochs, so all go back. So do
        # they with copies: seats are placed again, and slots that stay would not be found in theirs.
        alone = runner.catching_up.now is None and not self._cuts_differ and may_stay(operators)
        alone = alone and runner.copies is None
        lost = self._lost_slots(epoch) if alone else frozenset(graph.slots)
        snapshot = runner.books.newest_snapshot(epoch)
        durable = epoch_before(runner.books.first_epoch) if snapshot is None else snapshot.epoch
        return plan_rewind(graph, FROM_SNAPSHOT, lost, epoch, durable=durable)

    def _lost_slots(self, epoch: Epoch) -> frozenset[SlotId]:
        """Slots that must be restored; found by probing all slots."""
        runner, graph = self._runner, self._runner.plan.settings.graph
        every = frozenset(graph.slots)
        try:
            there = frozenset(runner.cluster.ask(runner.orders, "probe", epoch - 1))
        except Exception:  # executors are dying: it is not known which slots are left
            return every
        return must_be_restored(graph, runner.books.operators.values(), every - there) or every

    def _forget_later(self, epoch: Epoch, catch_up: CatchUp | None) -> None:
        """Forget everything after ``epoch``; slots restore its snapshot when they run.

        Args:
            epoch: The snapshot's.
            catch_up: Which slots do so, where not all.
        """
        runner, books = self._runner, self._runner.books
        runner.cluster.forget_reports()  # of epochs that will be run again
        books.lineages.distrust(books.operators.values(), catch_up)
        runner.catching_up.begin(catch_up)
        if catch_up is not None:
            runner.committer.go_back(epoch)
            return
        runner.committer.resume(epoch)
        books.clocks.reset()
        books.resume(epoch)


def finish_rewind(stream: Stream, given_again: Epoch | None = None) -> None:
    """Carry out an announced rewind: of this driver, or of an earlier one that died in the middle of it.

    Args:
        stream: The query's input and output.
        given_again: First epoch whose output will be given again; by default, as after a crash, the
            first that is read again.
    """
    read_from = stream.announced()
    if read_from is None:
        return
    stream.take_back(read_from if given_again is None else given_again)
    stream.go_back(read_from)
    stream.done()
