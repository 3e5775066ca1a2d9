"""A conformance check for objects of a user's own that are to be state."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Generic, TypeVar

from tether.core.errors import BadValueError
from tether.state.objects import StateObject
from tether.state.slot import SlotState
from tether.testing import laws
from tether.testing.laws import broken

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound=StateObject)

_ROUNDING = 1e-9


def check_state(
    factory: Callable[[], T],
    change: Callable[[T, random.Random], object],
    *,
    distance: Callable[[bytes, bytes], float] | None = None,
    increasing: bool = False,
    seed: int = 0,
    schedules: int = 20,
    steps: int = 12,
) -> None:
    """Try whether a class with the three methods of ``StateObject`` keeps the laws of a state.

    It takes objects through random schedules of changes, backups, rollbacks and recoveries, and checks
    after each step what the error bound rests on: the divergence is a distance that is never too small,
    backing up and recovering lose nothing, rolling back is exact (AF-Stream 2019, §3.3 to §3.5).

    Args:
        factory: Makes a new object, the same every time.
        change: Changes an object, taking all chance from the ``random.Random`` given.
        distance: The true distance between the states of two images, by brute force; without it a
            divergence that is too small by the same factor everywhere cannot be found.
        increasing: Whether the divergence is declared to grow only, between backups.
        seed: Of the first schedule; each further one has the next.
        schedules: Number of schedules.
        steps: Changes in each.

    Raises:
        LawBrokenError: Which law was broken, with which seed.

    Example:
        >>> import struct
        >>> class Clock:
        ...     ticks = 0
        ...     def state_divergence(self, backup):
        ...         return abs(self.ticks - struct.unpack("<q", backup)[0])
        ...     def backup_state(self):
        ...         return struct.pack("<q", self.ticks)
        ...     def recover_state(self, image):
        ...         (self.ticks,) = struct.unpack("<q", image)
        >>> def tick(clock, random):
        ...     clock.ticks += random.randint(1, 5)
        >>> check_state(Clock, tick, increasing=True)
    """
    for number in range(seed, seed + schedules):
        schedule = _Schedule(factory, change, distance, number)
        schedule.object_alone(steps)
        schedule.object_in_a_slot(steps, increasing=increasing)


class _Schedule(Generic[T]):
    """One random schedule."""

    def __init__(
        self,
        factory: Callable[[], T],
        change: Callable[[T, random.Random], object],
        distance: Callable[[bytes, bytes], float] | None,
        seed: int,
    ) -> None:
        self._factory, self._change, self._distance = factory, change, distance
        self._seed = seed
        self._draw = random.Random(seed)  # noqa: S311 - a schedule that can be repeated
        self._who = type(factory()).__name__

    def _expect(self, kept: bool, law: str, detail: str) -> None:
        if not kept:
            raise broken(self._who, law, self._seed, detail)

    def _step(self, changed: T) -> None:
        # Its own source of chance, so that what a change draws does not move the schedule.
        self._change(changed, random.Random(self._draw.getrandbits(64)))  # noqa: S311

    def _divergence(self, of: T, backup: bytes) -> float:
        told = of.state_divergence(backup)
        try:
            value = float(told)
        except (TypeError, ValueError):
            value = math.nan
        self._expect(value >= 0, laws.DISTANCE, f"It gave {told!r}.")
        again = float(of.state_divergence(backup))
        self._expect(value == again, laws.FUNCTION, f"Asked twice it gave {value}, then {again}.")
        return value

    def _image(self, of: T) -> bytes:
        image = of.backup_state()
        self._expect(isinstance(image, bytes), laws.IMAGE, f"It gave {type(image).__name__}.")
        self._expect(image == of.backup_state(), laws.IMAGE, "Asked twice it gave other bytes.")
        return image

    def _copy(self, image: bytes, dirt: int = 0) -> T:
        made = self._factory()
        for _ in range(dirt):
            self._step(made)
        made.recover_state(image)
        return made

    # The object's own methods

    def object_alone(self, steps: int) -> None:
        """Images of a walk, and all distances among some of them."""
        walker = self._factory()
        first = self._image(walker)
        self._expect(
            first == self._image(self._factory()),
            laws.ROUND_TRIP,
            "Two new objects have different images: a slot that lost all starts from another state.",
        )
        images = [first]
        for _ in range(steps):
            self._step(walker)
            images.append(self._image(walker))
            self._round_trip(walker, images[-1])
        for _ in range(steps):
            self._distances([self._draw.choice(images) for _ in range(3)])

    def _round_trip(self, walker: T, image: bytes) -> None:
        own = self._divergence(walker, image)
        self._expect(own == 0, laws.DISTANCE, f"It gave {own} for the image just taken.")
        copy = self._copy(image, dirt=self._draw.randint(0, 2))
        self._expect(
            self._image(copy) == image,
            laws.ROUND_TRIP,
            "An object that recovered gives another image than the one it recovered from.",
        )
        copy.recover_state(image)
        self._expect(self._image(copy) == image, laws.IDEMPOTENT, "The second one changed it.")

    def _distances(self, images: list[bytes]) -> None:
        a, b, c = images
        objects = [self._copy(image) for image in images]
        ab, bc, ac = (
            self._divergence(objects[0], b),
            self._divergence(objects[1], c),
            self._divergence(objects[0], c),
        )
        other = self._copy(a, dirt=2)
        again = self._divergence(other, b)
        self._expect(
            _near(ab, again),
            laws.FUNCTION,
            f"Two objects of the same image are {ab} and {again} from one backup.",
        )
        back = self._divergence(objects[1], a)
        self._expect(_near(ab, back), laws.SYMMETRY, f"There it is {ab}, back it is {back}.")
        self._expect(
            ac <= (ab + bc) * (1 + _ROUNDING) + _ROUNDING,
            laws.TRIANGLE,
            f"Directly {ac}, but {ab} + {bc} by way of a third state.",
        )
        if self._distance is not None:
            true = self._distance(a, b)
            self._expect(
                ab >= true * (1 - _ROUNDING), laws.NEVER_TOO_SMALL, f"It gave {ab}, not {true}."
            )

    # The object as Tether uses it

    def object_in_a_slot(self, steps: int, *, increasing: bool) -> None:
        """Epochs with exports, rollbacks and recoveries."""
        state = SlotState.heap()
        handle = state.object("checked", self._factory(), increasing=increasing)
        durable = self._image(self._factory())
        for epoch in range(steps):
            before = self._image(handle.value)
            state.begin(epoch)
            self._step(handle.value)
            if self._draw.random() < 0.3:
                state.rollback()
                now = self._image(handle.value)
                self._expect(now == before, laws.ROLLBACK, "The image is another one.")
                continue
            target = self._draw.choice([0.0, 0.5, 1.0, 2.0]) * self._divergence_in(
                state, increasing
            )
            export = handle.export(target)
            if export.batches:
                durable = export.batches[0].column("image")[0].as_py()
            left = self._divergence(handle.value, durable)
            detail = f"The target was {target}, and {left} is left."
            self._expect(left <= target, laws.WITHIN, detail)
            state.commit(epoch)
            self._recover(durable, handle.value, target)

    def _divergence_in(self, state: SlotState, increasing: bool) -> float:
        try:
            return state.divergence()
        except BadValueError as error:
            law = laws.INCREASING if increasing else laws.DISTANCE
            raise broken(self._who, law, self._seed, str(error)) from error

    def _recover(self, durable: bytes, live: T, target: float) -> None:
        fresh = SlotState.heap()
        lost = fresh.object("checked", self._factory())
        lost.value.recover_state(durable)
        lost.value.recover_state(durable)
        left = self._divergence(live, self._image(lost.value))
        detail = f"The live state is {left} from what a recovery gives, with a target of {target}."
        self._expect(left <= target * (1 + _ROUNDING), laws.WITHIN, detail)


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
