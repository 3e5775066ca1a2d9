"""The second door: a bound for the state of plain Spark SQL queries, by one setting."""

from typing import Any

from tether.sql.checkpoints import overlapped_checkpoints
from tether.sql.progress import StateBound, bound
from tether.sql.replay import Rewound, rewind
from tether.sql.settings import Bound, Bounded, bounded, builder, server_settings

__all__ = [
    "Bound",
    "Bounded",
    "Rewound",
    "StateBound",
    "Storyteller",
    "bound",
    "bounded",
    "builder",
    "overlapped_checkpoints",
    "rewind",
    "server_settings",
]


def __getattr__(name: str) -> Any:
    # The listener is a class of PySpark's, and the rest works without PySpark.
    if name == "Storyteller":
        from tether.sql.story import Storyteller  # noqa: PLC0415

        return Storyteller
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
