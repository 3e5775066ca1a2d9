"""Which slots are worth a copy: plans of partially active replication (PPA 2016).

A copy of every slot costs as much as the query again. Copies of a few, well chosen, keep most of the
output alive while the others are recovered from snapshots. This package is pure: a topology in, a plan
out; nothing here knows of Spark.

    topology    operators, slots, partitionings, rates; ``wiring``, ``streams``: the same as arrays
    reading     topologies from files and from a query's graph; ``rates``: how much flows, from reports
    model       the loss model as a recursion, for many sets of slots at once
    fidelity    output fidelity and internal completeness
    trees       minimal complete trees
    decompose   sub-topologies and units; ``segments``: the trees within a unit
    growing     how the plan of a sub-topology grows; ``steps``, ``complete``: what a step needs and adds
    factors     parts that can be planned apart; ``programme``, ``optimum``: the best plan, the bound
    planners    all of them by name
    plans       plans and curves
    papers      the paper's topologies; ``generate``: random ones; ``picture``: a plan as SVG
"""

from tether.planning.fidelity import information_loss, internal_completeness, output_fidelity
from tether.planning.generate import Specification, random_topology
from tether.planning.picture import draw
from tether.planning.planners import PLANNERS, PlannerName
from tether.planning.plans import Plan, Point, bound_curve, curve, plan
from tether.planning.programme import SolverMissingError
from tether.planning.rates import measured_rates
from tether.planning.reading import read_topology, topology_of
from tether.planning.topology import Inputs, Link, Node, Partitioning, Topology
from tether.planning.trees import complete_trees, count_trees, smallest_tree

__all__ = [
    "PLANNERS",
    "Inputs",
    "Link",
    "Node",
    "Partitioning",
    "Plan",
    "PlannerName",
    "Point",
    "SolverMissingError",
    "Specification",
    "Topology",
    "bound_curve",
    "complete_trees",
    "count_trees",
    "curve",
    "draw",
    "information_loss",
    "internal_completeness",
    "measured_rates",
    "output_fidelity",
    "plan",
    "random_topology",
    "read_topology",
    "smallest_tree",
    "topology_of",
]
