"""What slots are told: the program of an operator for one epoch, made from the driver's books."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.ids import NEVER, Epoch, Slot, each_slot, epoch_before
from tether.engine.messages import SlotControl
from tether.engine.slot.program import Program

if TYPE_CHECKING:
    from tether.backup.opening import StoreAddress
    from tether.engine.messages import Purpose
    from tether.engine.operators import QueryOperator, QuerySettings
    from tether.engine.query.catching_up import CatchingUp
    from tether.engine.query.copies import Copies
    from tether.engine.query.lane import Books
    from tether.engine.slot.program import HeldStore


class SlotOrders:
    """Makes the programs of a lane's operators.

    Args:
        books: The books of the lane.
        catching_up: Which slots are behind the others, if any.
        settings: What holds for the whole query.
        address: How slots reach the backup store.
        copies: Copies of slots, where there are any.
    """

    def __init__(
        self,
        books: Books,
        catching_up: CatchingUp,
        settings: QuerySettings,
        address: StoreAddress | HeldStore | None,
        copies: Copies | None = None,
    ) -> None:
        self._copies = copies
        self._books, self._catching_up = books, catching_up
        self._settings, self._address = settings, address

    def program(
        self, operator: str, epoch: Epoch, turn: int, purpose: Purpose = "epoch", table: str = ""
    ) -> Program:
        """What the slots of an operator are told; see :class:`tether.engine.ports.Orders`."""
        one = self._books.operators[operator]
        return Program(
            control=self._control(one, epoch, turn, purpose, table),
            operator=one.blob,
            policy=one.policy,
            placement=one.placement,
            store=self._address,
            output_schema=one.output_arrow,
            faults=self._settings.faults,
            feedback_schema=one.feedback_arrow,
            window=one.window,
            event_time=one.event_time,
            drops_event_time=one.drops_event_time,
        )

    def _control(
        self, one: QueryOperator, epoch: Epoch, turn: int, purpose: Purpose, table: str
    ) -> SlotControl:
        books, settings, name = self._books, self._settings, one.name
        sent = books.feedback.waiting(name) if purpose == "epoch" else None
        behind = self._catching_up.now
        return SlotControl(
            query=books.ids.query,
            run=books.ids.run,
            operator=name,
            slots=one.slots,
            epoch=epoch,
            first_epoch=books.first_epoch,
            fingerprint=one.digest,
            lineages=(
                books.lineages.readable(name, epoch)
                if purpose == "read"
                else books.lineages.expected(name)
            ),
            turn=turn,
            purpose=purpose,
            read_table=table,
            arena_scope=settings.arena_scope,
            arena_dir=settings.arena_dir,
            feedback=sent.items if sent else b"",
            feedback_epoch=sent.epoch if sent else NEVER,
            clock=books.clocks.now(name),
            snapshot=books.keeper.barrier if books.keeper is not None else None,
            log_end=books.log.end if books.log is not None else None,
            accept_damage=settings.accept_damage,
            in_doubt=self._whole_images(one, epoch, purpose),
            divergences=books.ledgers[name].divergences(epoch_before(epoch)),
            kept=behind.kept(name, one.slots) if behind else frozenset(),
            kept_version=behind.through if behind else NEVER,
            arena=books.aside.arena,
            after=books.aside.after if purpose == "epoch" else None,
            start=books.aside.start,
            stale=books.aside.stale(name),
            skipped=books.aside.skipped(name),
            seats=None if self._copies is None else self._copies.seats(name),
        )

    def _whole_images(self, one: QueryOperator, epoch: Epoch, purpose: Purpose) -> frozenset[Slot]:
        """Slots whose next backup must be a whole image, because earlier backups may lack state."""
        aside = self._books.aside
        if aside.arena and not aside.records and purpose == "flush":
            return frozenset(
                each_slot(one.slots)
            )  # earlier backups are those of the run that the twin replaces
        return self._books.in_doubt(one, epoch)
