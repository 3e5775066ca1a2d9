"""The same policies and the same state primitives as on Spark, on virtual time.

Where to look: ``scenario`` and ``faults`` say what is simulated, ``report.simulate`` runs it,
``world`` holds the cluster together, ``slot`` and ``recovery`` are what a slot does, ``ledger``
measures every loss against its bound, ``plot`` draws a report. ``epochs`` runs the engine itself on
the query of ``epoch_query``, and ``twins`` a query that goes on after a loss.
"""

from tether.simulate.faults import Fault, draw_faults
from tether.simulate.report import Report, simulate
from tether.simulate.scenario import Scenario, Timing
from tether.simulate.world import World

__all__ = ["Fault", "Report", "Scenario", "Timing", "World", "draw_faults", "simulate"]
