"""An input stream of an operator as arrays: what flows from its senders to its receivers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.planning.wiring import pairs, substream_rates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tether.planning.topology import Link, Topology
    from tether.planning.wiring import Floats, Ints

    Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Stream:
    """What one operator sends to another.

    Every array over substreams is in the order of ``pairs``, in which the substreams of a receiver
    lie together, and also those of a sender. Where the link is full, all receivers get the same mix,
    so there is one entry for each sender instead.

    Methods take a row for each slot and a column for each case that is looked at.
    """

    link: Link
    senders: Ints
    """Sender of each substream."""
    receivers: Ints
    """Receiver of each substream; if full, all receivers."""
    mix: Floats
    """Part of its receiver's stream that a substream is (the weights of PPA 2016 eq. 1)."""
    weight: Floats
    """Part of each receiver's whole input that this stream is (the weights of eq. 3)."""
    by_receiver: Ints
    """Position at which each receiver's substreams begin; unused if the stream is full."""
    by_sender: Ints
    """Position at which each sender's substreams begin; unused if the stream is full."""
    sending: Ints
    """The senders, each once."""
    receiving: Ints
    """The receivers, each once."""
    full: bool = False
    """Whether every sender sends to every receiver."""

    def renumbered(self, numbers: Ints) -> Stream:
        """The same stream where slots have other numbers."""
        return replace(
            self,
            senders=numbers[self.senders],
            receivers=numbers[self.receivers],
            sending=numbers[self.sending],
            receiving=numbers[self.receiving],
        )

    def received(self, survival: Floats) -> Floats:
        """Part of the stream that still comes to each receiver (eq. 1); one row in all if full."""
        if self.full:
            mixed: Floats = self.mix[None, :] @ survival[self.senders]
            return mixed
        if len(self.receiving) == len(self.senders):
            return survival[self.senders]  # one-to-one and split: one sender each
        parts = survival[self.senders] * self.mix[:, None]
        result: Floats = np.add.reduceat(parts, self.by_receiver, axis=0)
        return result

    def sent(self, worth: Floats) -> Floats:
        """What each sender's output is worth through this stream.

        Args:
            worth: What each receiver's stream is worth; rows of the receivers only.
        """
        if self.full:
            shared: Floats = self.mix[:, None] * worth.sum(axis=0)
            return shared
        each = worth[self.receivers - self.receivers[0]] * self.mix[:, None]
        result: Floats = np.add.reduceat(each, self.by_sender, axis=0)
        return result

    def total(self, amounts: NDArray[Any]) -> NDArray[Any]:
        """The senders' amounts, added up for each receiver; a single column."""
        if self.full:
            return np.repeat(amounts[self.senders].sum(keepdims=True), len(self.receivers))
        result: NDArray[Any] = np.add.reduceat(amounts[self.senders], self.by_receiver)
        return result

    def to_each(self) -> list[list[tuple[int, float]]]:
        """The senders of each receiver, with their part of the stream."""
        every = list(zip(self.senders.tolist(), self.mix.tolist(), strict=True))
        if self.full:
            return [every] * len(self.receivers)
        ends = [*self.by_receiver.tolist()[1:], len(every)]
        return [every[a:b] for a, b in zip(self.by_receiver.tolist(), ends, strict=True)]

    def any_sender(self, flags: Flags) -> Flags:
        """Whether any sender of each receiver has its flag set; one row in all if full."""
        if self.full:
            return np.logical_or.reduce(flags[self.senders], axis=0, keepdims=True)
        result: Flags = np.logical_or.reduceat(flags[self.senders], self.by_receiver, axis=0)
        return result

    def any_receiver(self, flags: Flags) -> Flags:
        """Whether any receiver of each sender has its flag set; one row in all if full."""
        if self.full:
            return np.logical_or.reduce(flags[self.receivers], axis=0, keepdims=True)
        result: Flags = np.logical_or.reduceat(flags[self.receivers], self.by_sender, axis=0)
        return result

    def least_sender(self, amounts: Ints) -> Ints:
        """The least of the senders' amounts, for each receiver; a single column."""
        if self.full:
            return np.full(len(self.receivers), amounts[self.senders].min())
        result: Ints = np.minimum.reduceat(amounts[self.senders], self.by_receiver)
        return result

    def least_receiver(self, amounts: Ints) -> Ints:
        """The least of the receivers' amounts, given for these alone, for each sender."""
        if self.full:
            return np.full(len(self.senders), amounts.min())
        each = amounts[self.receivers - self.receivers[0]]
        result: Ints = np.minimum.reduceat(each, self.by_sender)
        return result

    def best_sender(self, scores: Floats) -> Ints:
        """For each receiver the sender of the highest score, the first of equals."""
        if self.full:
            best = self.senders[np.argmax(scores[self.senders])]
            return np.full(len(self.receivers), best)
        return _best(self.senders, scores, self.by_receiver)

    def best_receiver(self, scores: Floats) -> Ints:
        """For each sender the receiver of the highest score, the first of equals."""
        if self.full:
            best = self.receivers[np.argmax(scores[self.receivers])]
            return np.full(len(self.senders), best)
        return _best(self.receivers, scores, self.by_sender)


def stream_of(
    topology: Topology, link: Link, starts: dict[str, int], rates: Floats, weight: Floats
) -> Stream:
    """The stream of a link.

    Args:
        topology: The topology.
        link: One of its links.
        starts: Number of the first slot of each operator.
        rates: Rows per second out of each sender.
        weight: See ``Stream``.
    """
    first, last = starts[link.source], starts[link.target]
    if topology.is_full(link):
        # A sender spreads its rows over all receivers by the same shares: the mix is one for all.
        senders = first + np.arange(len(rates))
        receivers = last + np.arange(topology.node(link.target).slots)
        one = np.zeros(1, np.int64)
        return Stream(
            link, senders, receivers, normal(rates), weight, one, one, senders, receivers, full=True
        )
    senders, receivers = pairs(topology, link)
    by_receiver = np.flatnonzero(np.diff(receivers, prepend=-1))
    by_sender = np.flatnonzero(np.diff(senders, prepend=-1))
    flows = np.split(substream_rates(topology, link, rates), by_receiver[1:])
    return Stream(
        link=link,
        senders=first + senders,
        receivers=last + receivers,
        mix=np.concatenate([normal(part) for part in flows]),
        weight=weight,
        by_receiver=by_receiver,
        by_sender=by_sender,
        sending=first + senders[by_sender],
        receiving=last + receivers[by_receiver],
    )


def normal(amounts: Floats) -> Floats:
    """Amounts as parts of their sum along the first axis.

    What carries nothing at present is taken as if all its parts were equal: then it has a loss like
    any other, and a plan is still the better the more of it lives.

    Example:
        >>> normal(np.array([3.0, 1.0])).tolist(), normal(np.zeros(2)).tolist()
        ([0.75, 0.25], [0.5, 0.5])
    """
    largest = amounts.max(axis=0)
    # Divided by the largest first, for the sum of huge or tiny rates could leave the range of floats.
    scaled = np.where(largest > 0, amounts / np.where(largest > 0, largest, 1.0), 1.0)
    result: Floats = scaled / scaled.sum(axis=0)
    return result


def _best(slots: Ints, scores: Floats, begins: Ints) -> Ints:
    """The slot of the highest score in each group, the first of equals."""
    groups = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(slots)))
    order = np.lexsort((-scores[slots], groups))
    return slots[order[begins]]
