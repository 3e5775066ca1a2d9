"""When slots are to be spread again: executors have joined, and the slots sit on the others.

A slot stays where it is while its executor lives. When that dies its slots go to the ones that are
left, and stay there, so a replacement that Spark starts would be idle for the rest of the query. A
planned move mends this between two epochs: all state is made durable, so that nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import SparkContext


class Spreading:
    """Looks at executors before every epoch.

    It answers yes at most once for a set of executors: Spark decides where slots go, and if it has put
    two on one executor again, it would do so the next time too.

    Example:
        >>> spreading = Spreading()
        >>> [spreading.wanted(3, [["a", "a", "b"]]) for _ in range(3)]
        [False, True, False]
    """

    def __init__(self) -> None:
        self._executors = -1
        self._asked = False

    def wanted(self, executors: int, places: Iterable[list[str]]) -> bool:
        """Whether to spread the slots again now.

        Args:
            executors: How many there are; they must be as many as the last time, for when one has
                just joined others may be about to.
            places: For each operator, the executors of its slots.
        """
        if executors != self._executors:
            self._executors, self._asked = executors, False
            return False
        if self._asked or not any(is_lopsided(executors, slots) for slots in places):
            return False
        self._asked = True
        return True


def is_lopsided(executors: int, places: Iterable[str]) -> bool:
    """Whether an executor holds at least two slots more than another one.

    Example:
        >>> is_lopsided(3, ["a", "a", "b"]), is_lopsided(2, ["a", "a", "b"])
        (True, False)
    """
    held = Counter(places)
    if not held:
        return False
    least = min(held.values()) if len(held) >= executors else 0
    return max(held.values()) - least >= 2


def live_executors(context: SparkContext) -> frozenset[str]:
    """Addresses of the executors that are alive, the driver's own among them.

    It takes only a few calls to the JVM, whatever the number of executors, because it is needed in every
    epoch.
    """
    addresses: str = context._jsc.sc().getExecutorMemoryStatus().keySet().mkString(",")
    return frozenset(addresses.split(","))
