"""One system with one setting: what scenario files name by an id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.course import Course
    from bench.harness import Measurement

Kind = Literal["tether", "spark", "peer", "limit"]


@dataclass(frozen=True)
class Contender:
    """One system with one setting.

    Args:
        label: Its name in reports.
        kind: ``limit`` keeps no durable state: what the others try to be close to.
        run: One run over a course.
        small: Whether it gets the smaller course.
    """

    label: str
    kind: Kind
    run: Callable[[Course], Measurement]
    small: bool = False

    def __call__(self, course: Course) -> Measurement:
        """Run once."""
        return self.run(course.small if self.small else course)
