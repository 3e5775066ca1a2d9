"""How one slot takes part in a snapshot (ABS 2015, Algorithms 1 and 2).

A barrier parts the items of a channel into those before the snapshot and those after. A slot that
has a channel's barrier stops taking from that channel until all its regular channels have brought
theirs; so its state then holds all that came before the barriers, and nothing after. It copies its
state, sends the barrier on, and takes from all channels again. Where feedback channels lead in, it
logs what they bring until they bring the barrier too: these are the items that were in flight in
the cycle, and with them the part is whole. Without feedback no items are kept.

**Where this is not the paper.** Algorithm 2 never blocks a feedback channel. If slots are wired so
that the barrier can come back to a slot by another slot's way before the slot has copied its own
state, items from after the snapshot would get into the copy. So any channel is blocked whose
barrier comes before the copy is made. It cannot block for ever: the copy waits for regular channels
alone. Barriers have numbers, so one that belongs to a snapshot given up is known and passed over.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tether.core.errors import TetherError
from tether.core.graph import Channel  # noqa: TC001 - msgspec reads the annotations at run time


class AlignmentError(TetherError):
    """The runtime broke a rule that snapshots rest on; going on could give a wrong answer."""

    code = "alignment"


class SlotAlignment(msgspec.Struct, frozen=True, kw_only=True):
    """Where a slot stands in a snapshot."""

    over: int = -1
    """Newest snapshot that the slot has finished or given up; older barriers mean nothing."""
    number: int | None = None
    """The snapshot that is under way."""
    marked: frozenset[Channel] = frozenset()
    """Channels that have brought its barrier."""
    copied: bool = False
    """Whether the state has been copied and the barrier sent on."""

    @property
    def blocked(self) -> frozenset[Channel]:
        """Channels that nothing may be taken from now."""
        return frozenset() if self.copied else self.marked


class BarrierCame(msgspec.Struct, frozen=True, kw_only=True, tag="barrier-came"):
    """A channel has brought the barrier of a snapshot."""

    channel: Channel
    number: int


class ItemsCame(msgspec.Struct, frozen=True, kw_only=True, tag="items-came"):
    """A channel has brought items, all between two barriers."""

    channel: Channel


class SnapshotGivenUp(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot-given-up"):
    """The coordinator has abandoned this snapshot and all before it."""

    number: int


AlignmentEvent = BarrierCame | ItemsCame | SnapshotGivenUp


class BlockChannel(msgspec.Struct, frozen=True, kw_only=True, tag="block-channel"):
    """Take nothing from this channel until it is unblocked."""

    channel: Channel


class UnblockChannels(msgspec.Struct, frozen=True, kw_only=True, tag="unblock-channels"):
    """Take from all channels again."""


class CopyState(msgspec.Struct, frozen=True, kw_only=True, tag="copy-state"):
    """Hold fast what the state is now; to write it may take its time."""

    number: int


class ForwardBarrier(msgspec.Struct, frozen=True, kw_only=True, tag="forward-barrier"):
    """Send the barrier on all outputs, after all that was sent so far and before what follows."""

    number: int


class LogItems(msgspec.Struct, frozen=True, kw_only=True, tag="log-items"):
    """These items were in flight: keep a copy for the snapshot under way."""

    channel: Channel


class ProcessItems(msgspec.Struct, frozen=True, kw_only=True, tag="process-items"):
    """Process these items."""

    channel: Channel


class WritePart(msgspec.Struct, frozen=True, kw_only=True, tag="write-part"):
    """Make the copy and the logged items durable; in the background, if the policy lets it."""

    number: int


class DropCopy(msgspec.Struct, frozen=True, kw_only=True, tag="drop-copy"):
    """Forget the copy and the logged items of a snapshot given up."""

    number: int


AlignmentInstruction = (
    BlockChannel
    | UnblockChannels
    | CopyState
    | ForwardBarrier
    | LogItems
    | ProcessItems
    | WritePart
    | DropCopy
)
_Step = tuple[SlotAlignment, tuple[AlignmentInstruction, ...]]


def align(state: SlotAlignment, event: AlignmentEvent, inputs: frozenset[Channel]) -> _Step:
    """Take one event in; give the new state and what must be done, each before the next.

    Guarantee: the copies of one number in all slots, with the logged items, are a state that the
    graph could have been in at one moment, with just these items in flight; and no slot is ever
    blocked by a snapshot that was given up.

    Args:
        state: The slot's.
        event: What happened.
        inputs: All channels into the slot, feedback included.

    Example:
        >>> from tether.core.graph import SlotId
        >>> ways = [Channel(SlotId("map", n), SlotId("sum", 0)) for n in range(2)]
        >>> fresh = SlotAlignment()
        >>> waiting, asked = align(fresh, BarrierCame(channel=ways[0], number=1), frozenset(ways))
        >>> waiting.blocked == {ways[0]}
        True
        >>> _, asked = align(waiting, BarrierCame(channel=ways[1], number=1), frozenset(ways))
        >>> [type(step).__name__ for step in asked[1:]]
        ['CopyState', 'ForwardBarrier', 'UnblockChannels', 'WritePart']
    """
    if isinstance(event, BarrierCame):
        return _barrier(state, event, inputs)
    if isinstance(event, SnapshotGivenUp):
        return _give_up(state, event.number)
    if event.channel in state.blocked:
        raise AlignmentError(
            f"Items of a blocked channel reached {event.channel.receiver}.",
            why=f"Snapshot {state.number} is being aligned there.",
            do="Please report it: the runtime must hold such items back.",
        )
    process = ProcessItems(channel=event.channel)
    if state.copied and event.channel.feedback and event.channel not in state.marked:
        return state, (LogItems(channel=event.channel), process)
    return state, (process,)


def _barrier(state: SlotAlignment, event: BarrierCame, inputs: frozenset[Channel]) -> _Step:
    number = event.number
    if number <= state.over or (state.number is not None and number < state.number):
        return state, ()
    asked: list[AlignmentInstruction] = []
    if state.number is not None and number > state.number:
        # Somebody upstream has gone on to a newer one: the older can never become complete.
        state, dropped = _give_up(state, state.number)
        asked += dropped
    state = replace(state, number=number, marked=state.marked | {event.channel})
    if not state.copied:
        asked.append(BlockChannel(channel=event.channel))
    if not state.copied and all(way in state.marked for way in inputs if not way.feedback):
        state = replace(state, copied=True)
        asked += [CopyState(number=number), ForwardBarrier(number=number), UnblockChannels()]
    if state.copied and state.marked >= inputs:
        asked.append(WritePart(number=number))
        state = SlotAlignment(over=number)
    return state, tuple(asked)


def _give_up(state: SlotAlignment, number: int) -> _Step:
    over = max(state.over, number)
    if state.number is None or state.number > number:
        return replace(state, over=over), ()
    asked: list[AlignmentInstruction] = []
    if state.copied:
        asked.append(DropCopy(number=state.number))
    elif state.marked:
        asked.append(UnblockChannels())
    return SlotAlignment(over=over), tuple(asked)
