"""Sets of slots made complete: with all that feeds them, and all through which they are heard.

A slot without a whole tree around it adds nothing to the output (PPA 2016 §IV-C1). What is missing is
found by going from each slot to its best sender and its best receiver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tether.planning.model import Model, Part
    from tether.planning.streams import Flags, Stream
    from tether.planning.wiring import Floats, Ints


class Completion:
    """Completes many sets of slots at once.

    Args:
        model: The model.
        as_sender: What decides which of several senders is chosen, for each slot.
        as_receiver: The same for receivers.
    """

    def __init__(self, model: Model, as_sender: Floats, as_receiver: Floats) -> None:
        self._model, self._as_sender, self._as_receiver = model, as_sender, as_receiver
        self._out: dict[str, list[Stream]] = {part.name: [] for part in model.parts}
        self._senders: dict[Stream, Ints] = {}
        self._receivers: dict[Stream, Ints] = {}
        for part in model.parts:
            for stream in part.streams:
                self._out[stream.link.source].append(stream)
                self._senders[stream] = stream.best_sender(as_sender)
                self._receivers[stream] = stream.best_receiver(as_receiver)

    def complete(self, seeds: Flags, alive: Flags) -> Flags:
        """What must live beside a plan so that the seeds are of use; the seeds included.

        Args:
            seeds: Sets of slots.
            alive: The plan so far, of which every slot is of use: one flag for each slot.
        """
        chosen = seeds & ~alive[:, None]
        for part in self._model.parts:
            self._find_receivers(part, chosen, alive)
        for part in reversed(self._model.parts):
            self._find_senders(part, chosen, alive)
        return chosen

    def _find_receivers(self, part: Part, chosen: Flags, alive: Flags) -> None:
        """Choose a receiver for every chosen slot that has none."""
        streams = self._out[part.name]
        if not streams or self._model.ends[part.slots.start]:
            return
        there = chosen | alive[:, None]
        heard = np.logical_or.reduce(
            np.broadcast_arrays(*(stream.any_receiver(there) for stream in streams))
        )
        receivers = [self._receivers[stream] for stream in streams]
        _choose(chosen, part, heard, receivers, self._as_receiver)

    def _find_senders(self, part: Part, chosen: Flags, alive: Flags) -> None:
        """Choose a sender for every chosen slot that lacks one: of each stream, or of any."""
        there = chosen | alive[:, None]
        fed = [stream.any_sender(there) for stream in part.streams]
        senders = [self._senders[stream] for stream in part.streams]
        if part.correlated:
            for has, best in zip(fed, senders, strict=True):
                _choose(chosen, part, has, [best], self._as_sender)
        elif fed and not part.outside.any():
            any_fed = np.logical_or.reduce(np.broadcast_arrays(*fed))
            _choose(chosen, part, any_fed, senders, self._as_sender)


def completions(model: Model, importance: Floats) -> tuple[Completion, Completion]:
    """Two ways to complete a set: with the most important slots, or with what they bring per copy.

    Args:
        model: The model.
        importance: What each slot is worth.
    """
    senders, receivers = _copies_needed(model)
    return (
        Completion(model, importance, importance),
        Completion(model, importance / senders, importance / receivers),
    )


def _copies_needed(model: Model) -> tuple[Ints, Ints]:
    """Slots of the smallest tree that ends at each slot, and of the smallest rest of one from it on."""
    before = np.ones(model.size, np.int64)
    for part in model.parts:
        least = [stream.least_sender(before) for stream in part.streams]
        if least and not part.outside.any():
            before[part.slots] += (np.sum if part.correlated else np.min)(least, axis=0)
    behind = np.full(model.size, model.size)
    for part in reversed(model.parts):
        least = [stream.least_sender(before) for stream in part.streams]
        behind[part.slots] = np.where(model.ends[part.slots], 0, behind[part.slots]) + 1
        for stream, own in zip(part.streams, least, strict=True):
            others = np.sum(least, axis=0) - own if part.correlated else 0
            rest = stream.least_receiver(behind[part.slots] + others)
            behind[stream.sending] = np.minimum(behind[stream.sending], rest)
    return before, behind


def _choose(chosen: Flags, part: Part, served: Flags, choices: list[Ints], scores: Floats) -> None:
    """For every chosen slot that is not served, add the best of its choices."""
    rows, columns = np.nonzero(chosen[part.slots] & ~served)
    offered = np.array(choices)
    best = offered[np.argmax(scores[offered], axis=0), np.arange(offered.shape[1])]
    chosen[best[rows], columns] = True
