"""The second door: a bound for the state of plain Spark SQL queries, by one setting."""

from tether.sql.progress import StateBound, bound
from tether.sql.settings import Bound, Bounded, bounded, builder
from tether.sql.story import Storyteller

__all__ = ["Bound", "Bounded", "StateBound", "Storyteller", "bound", "bounded", "builder"]
