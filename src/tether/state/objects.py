"""Any Python object as state, by three methods of its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state.arrow import byte_strings
from tether.state.header import (
    ALL_ENTRIES,
    DRIFT,
    DURABLE,
    IN_FLIGHT,
    LIVE,
    NO_PART,
    PENDING_PART,
    Phase,
)
from tether.state.images import FRESH, Images
from tether.state.primitive import FULL, Export, Primitive, tagged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.state.place import Place


@runtime_checkable
class StateObject(Protocol):
    """The methods that an object needs to be state: AF-Stream's three interfaces (2019, §3.3).

    ``StateDivergence``, ``BackupState`` and ``RecoverState`` of the paper (table 7), with one
    difference: Tether keeps the last backup, and hands it to ``state_divergence``. So the object need
    not keep a copy, and the distance is right after a rollback, a recovery, and in a process that has
    only just attached.
    """

    def state_divergence(self, backup: bytes) -> float:
        """Distance between this state and the one of an image; a number of at least 0.

        ``backup`` is what ``backup_state`` gave at the last backup; before the first, what it gives
        for a new object.
        """

    def backup_state(self) -> bytes:
        """The whole state as bytes; the same bytes for the same state. Must not change it."""

    def recover_state(self, image: bytes) -> None:
        """Become the state of an image, in place, whatever the state was."""


T = TypeVar("T", bound=StateObject)


class Object(Primitive, Generic[T]):
    """An object of the user's own class, backed up as a whole image.

    Made by ``SlotState.object``. The object lives in this process; at the end of every epoch its image
    is stored in the arena, where the next process finds it. Rolling back gives the object the
    image of the epoch before. It is the same Python object all the time.

    Costs, each epoch: one or two calls of ``backup_state``, a copy of its image if that has changed, and
    a few calls of ``state_divergence``. A backup is always the whole image. So it suits states of
    up to some megabytes; larger ones belong into the other primitives. It is the only primitive for
    which code of the user's interprets stored bytes: take care that ``recover_state`` can not be
    made to run code (no pickle) where others can write the backup directory.

    Example:
        >>> import struct
        >>> from tether.state import SlotState
        >>> class Mean:
        ...     def __init__(self):
        ...         self.count, self.total = 0, 0.0
        ...     def state_divergence(self, backup):
        ...         return abs(self.count - struct.unpack("<qd", backup)[0])
        ...     def backup_state(self):
        ...         return struct.pack("<qd", self.count, self.total)
        ...     def recover_state(self, image):
        ...         self.count, self.total = struct.unpack("<qd", image)
        >>> state = SlotState.heap()
        >>> mean = state.object("mean", Mean())
        >>> state.begin(0)
        >>> mean.value.count, mean.value.total = 2, 7.0
        >>> mean.divergence()
        2.0
        >>> state.rollback(), mean.value.count
        (True, 0)
    """

    kind = "object"

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        super().__init__(place, spec)
        self._object: T | None = None
        self._fresh = b""
        self._images = Images(place)
        self._shown = FRESH
        """The word of the image that the object was given or gave last."""

    @staticmethod
    def plan(name: str, kind: str, *, increasing: bool) -> dict[str, Any]:
        """An object's description in the form that is stored."""
        return {
            "kind": Object.kind,
            "name": name,
            "type": kind,
            "divergence": "own",
            "increasing": increasing,
        }

    def describe(self) -> dict[str, Any]:
        """Kind, class and divergence as plain values."""
        return dict(self.spec)

    def bind(self, new: T) -> None:
        """Use a new object for this state: it is given the stored image.

        Raises:
            BadValueError: It lacks one of the three methods, or an epoch is being applied to another.
        """
        if new is self._object:
            return
        if not isinstance(new, StateObject):
            raise BadValueError(
                f"The state {self.name!r} of type {type(new).__name__} cannot be backed up.",
                why="It lacks state_divergence, backup_state or recover_state.",
                do="Give the class these methods; see docs/state.md.",
            )
        if self._object is not None and self.place.applying:
            raise BadValueError(
                f"The state {self.name!r} is being changed by another object.",
                do="Declare it once, in setup.",
            )
        self._object = new
        self._fresh = self._image()
        self._shown = FRESH
        self.refresh()

    @property
    def value(self) -> T:
        """The object: change it within an epoch only."""
        if self._object is None:
            raise BadValueError(
                f"The state {self.name!r} has no object yet.",
                why="It was found in the arena, where only its image is.",
                do="Declare it with state.object(name, new_object) first.",
            )
        return self._object

    def _image(self) -> bytes:
        image = self.value.backup_state()
        if not isinstance(image, (bytes, bytearray, memoryview)):
            raise BadValueError(
                f"backup_state of {self.name!r} gave {type(image).__name__}.",
                why="Only bytes can be stored.",
                do="Encode the state, as with msgspec or struct.",
            )
        return bytes(image)

    def _stored(self, word: int) -> bytes:
        return self._fresh if word == FRESH else self._images.read(word)

    # Distance

    def divergence(self, *, exact: bool = False) -> float:
        """The object's own divergence; between epochs as of the last commit. 0 if not tracked.

        Raises:
            BadValueError: It says NaN or less than 0, or less than before although no backup was
                made and it was declared as increasing.
        """
        del exact  # the object's own value is the only one
        page = self.place.page
        if not self.place.track:
            return 0.0
        if not self.place.applying:
            return float(page.floats[DRIFT])
        return self._measured(page.words[DURABLE])

    def _measured(self, durable: int) -> float:
        told = self.value.state_divergence(self._stored(durable))
        try:
            distance = float(told)
        except (TypeError, ValueError):
            distance = math.nan
        if math.isnan(distance) or distance < 0:
            raise BadValueError(
                f"state_divergence of {self.name!r} gave {told!r}.",
                why="A distance is a number of at least 0; with another the bound cannot be kept.",
                do="Mend state_divergence; tether.testing.check_state helps to find the case.",
            )
        page = self.place.page
        before = page.floats[DRIFT]
        unsaved = durable == page.words[DURABLE] == page.saved(DURABLE)
        if self.spec["increasing"] and unsaved and distance < before:
            raise BadValueError(
                f"state_divergence of {self.name!r} fell from {before} to {distance}.",
                why="No backup was made meanwhile, and it was declared as increasing.",
                do="Count from the backup's image, or declare it without increasing=True.",
            )
        return distance

    def dirty_entries(self) -> int:
        """1 if the object differs from the backup."""
        words = self.place.page.words
        if not self.place.track:
            return 0
        if self._object is None or not self.place.applying:
            return int(words[LIVE] != words[DURABLE])
        # Ask for the distance first: an image is needed only if it is 0.
        return int(self.divergence() > 0 or self._image() != self._stored(int(words[DURABLE])))

    # Backups

    def export(self, target: float, rounding: float = 0.0) -> Export:
        """Take the image out if the divergence exceeds ``target``; it is then durable."""
        del rounding
        self._check_target(target)
        export, word = self._taken(target, always=False)
        if export.batches:
            self.place.page.words[DURABLE] = word
        return export

    def export_full(self, rounding: float = 0.0) -> Export:
        """Take the image out."""
        del rounding
        self.place.stamp()
        self._expect_none_pending()
        export, word = self._taken(0.0, always=True)
        self.place.page.words[DURABLE] = word
        return export

    def begin_export(self, target: float) -> Export:
        """Take out what ``export`` would, but count it as durable only when it is settled."""
        self._check_target(target)
        export, word = self._taken(target, always=False)
        if export.batches:
            self.place.page.words[IN_FLIGHT] = word
            self.place.page.words[PENDING_PART] = ALL_ENTRIES
        return export

    def settle_export(self) -> None:
        """Count what ``begin_export`` took out as durable."""
        self.place.stamp()
        words = self.place.page.words
        if words[PENDING_PART]:
            words[DURABLE] = words[IN_FLIGHT]
            words[PENDING_PART] = words[IN_FLIGHT] = NO_PART

    def abandon_export(self) -> None:
        """Forget what ``begin_export`` took out."""
        self.place.stamp()
        words = self.place.page.words
        words[PENDING_PART] = words[IN_FLIGHT] = NO_PART

    def _taken(self, target: float, *, always: bool) -> tuple[Export, int]:
        words = self.place.page.words
        before = self.divergence()
        if not always and target > 0 and before <= target:
            return Export([], 0, 0.0, before, full=False), FRESH
        image = self._image()
        word = int(words[DURABLE])
        if image == self._stored(word):
            if not always:  # the backup holds exactly this image, whatever the distance is
                return Export([], 0, 0.0, 0.0, full=False), word
        else:
            word = self._images.write(image)
        after = self._measured(word)
        if after > 0:
            raise BadValueError(
                f"state_divergence of {self.name!r} gave {after} for its own image.",
                why="The distance of a state to itself is 0; else no backup could bring it down.",
                do="Mend state_divergence; tether.testing.check_state helps to find the case.",
            )
        column = byte_strings(image, np.array([0, len(image)]))
        batch = tagged(pa.RecordBatch.from_pydict({"image": column}), FULL)
        return Export([batch], 1, before, 0.0, full=True), word

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take a backed-up image as both live and durable."""
        self.place.expect(Phase.RESTORING)
        words = self.place.page.words
        for batch in batches:
            if batch.schema.names != ["image"] or batch.num_rows != 1:
                raise BackupUnreadableError(
                    f"A backup of object {self.name!r} does not fit it.",
                    why=f"Its columns are {batch.schema.names}, with {batch.num_rows} rows.",
                    do="Restore with the program that wrote the backup.",
                )
            image = batch.column("image")[0].as_py()
            self.value.recover_state(image)
            self._shown = words[LIVE] = words[DURABLE] = self._images.write(image)

    # Epochs

    def create(self) -> None:
        """Nothing to set up: without an image it is that of a new object."""

    def begin(self) -> None:
        """Give up images that a rollback can no longer need."""
        self._images.sweep()

    def begin_step(self) -> None:
        """It does not tell what has changed."""

    def commit(self) -> None:
        """Store the object's image in the arena."""
        if self._object is None:
            return  # only its image is in the arena, so it cannot have changed
        page = self.place.page
        if self.place.track:
            page.floats[DRIFT] = self._measured(page.words[DURABLE])
        image = self._image()
        for word in (int(page.words[LIVE]), int(page.words[DURABLE])):
            if image == self._stored(word):
                page.words[LIVE] = self._shown = word
                return
        page.words[LIVE] = self._shown = self._images.write(image)

    def undo(self) -> None:
        """Give the object the image from the beginning of the epoch."""
        self._show(self.place.page.saved(LIVE))

    def unstamp(self) -> None:
        """Nothing is stamped."""

    def refresh(self) -> None:
        """Give the object what another process has made of it."""
        if self._shown != self.place.page.words[LIVE]:
            self._show(int(self.place.page.words[LIVE]))

    def _show(self, word: int) -> None:
        if self._object is not None:
            self._object.recover_state(self._stored(word))
            self._shown = word
