"""A stand-in for Spark in this process: the shipped runtime runs on it as it is, and fast.

What is real: everything of Tether, from ``tether.stream(…).start(…)`` to the slot's task, with its
arenas, backup store, commit log, ledger and faults. What is played: the little of Spark that they ask
for. So a test can run a whole query, kill its tasks, its executors and its driver, and look at it
after every epoch, in a tenth of a second and without Java.

- ``session``: the session and its accumulators.
- ``frames``: rows that are computed when an action asks for them, as often as one asks.
- ``tasks``: attempts of a task, in this process, or in one that can be killed.
- ``executors``: processes that stand for executors: resident state can die with them.
- ``streams``: a source cut into known epochs, Spark's two logs, and the handle of a query.
- ``subscribed``: exchanges united into one stream, at a time of one's own.
"""

from tether.testing.inprocess.session import LocalSession
from tether.testing.inprocess.streams import EpochSource

__all__ = ["EpochSource", "LocalSession"]
