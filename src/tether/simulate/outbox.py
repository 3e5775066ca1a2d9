"""The sending end of a channel: ``core.item_sender`` carried out, with the items themselves."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tether.protocols.item_sender import (
    ItemsAcked,
    ItemsOffered,
    ReceiverBack,
    SenderEvent,
    SenderState,
    SendItems,
    send,
)
from tether.simulate.items import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.state.segment import Array


class Outbox:
    """Holds what was sent until it is acknowledged; holds back what γ does not allow yet.

    Args:
        deliver: Puts a message on the line.
        receiver: Number of the slot at the other end; None for a sink.
        wake: Called after every acknowledgement.
    """

    def __init__(
        self,
        deliver: Callable[[Outbox, Message], None],
        receiver: int | None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self._deliver, self._wake = deliver, wake
        self.receiver = receiver
        self._broken = False
        self._gamma = 0.0
        self.state = SenderState()
        self._offered: deque[Message] = deque()
        self._held: deque[Message] = deque()

    @property
    def broken(self) -> bool:
        """Whether the sender has died, so that nothing arrives from it any more."""
        return self._broken

    def break_off(self) -> None:
        """The sender has died."""
        self._broken = True

    def limit(self, gamma: float) -> None:
        """At most this number of unacknowledged items may be at risk from now on."""
        self._gamma = gamma

    @property
    def settled(self) -> bool:
        """Whether all offered items are accepted, so that their maker may drop them."""
        return not self._offered and self.state.accepted == self.state.sent

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._offered and not self._held

    def offer(self, name: str, first: int, items: Array, window_end: float | None = None) -> None:
        """Send these as soon as γ allows it."""
        if items.shape[1]:
            self._offered.append(Message(name, first, items, 0, window_end))
            self._push()

    def acknowledge(self, upto: int) -> None:
        """The receiver has everything up to this number of ours."""
        self._take(ItemsAcked(upto=upto))
        while self._held and self._held[0].upto <= self.state.acked:
            self._held.popleft()
        self._push()
        if self._wake is not None:
            self._wake()

    def resend(self) -> None:
        """The receiver is back after a loss: send again what it has not acknowledged."""
        if any(isinstance(one, SendItems) for one in self._take(ReceiverBack())):
            for message in self._held:
                self._deliver(self, message)

    def _push(self) -> None:
        while self._offered:
            message = self._offered.popleft()
            size = int(message.items.shape[1])
            sent = self.state.sent
            self._take(ItemsOffered(count=size))
            going = self.state.sent - sent
            if going < size:
                rest = message._replace(first=message.first + going, items=message.items[:, going:])
                self._offered.appendleft(rest)
            if not going:
                return
            message = message._replace(items=message.items[:, :going], upto=self.state.sent)
            self._held.append(message)
            self._deliver(self, message)

    def _take(self, event: SenderEvent) -> tuple[object, ...]:
        self.state, asked = send(self.state, event, self._gamma)
        return asked
