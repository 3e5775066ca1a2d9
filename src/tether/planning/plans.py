"""Plans: which slots get a copy, and how good the output is if all others are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.core.graph import SlotId  # noqa: TC001 - msgspec reads the annotations at run time
from tether.planning.model import model_of
from tether.planning.optimum import Optimum
from tether.planning.planners import PLANNERS
from tether.planning.programme import SolverMissingError
from tether.planning.topology import one_of
from tether.planning.trees import smallest_tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.planning.model import Metric, Model
    from tether.planning.planners import PlannerName
    from tether.planning.topology import Topology


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A partially active plan (PPA 2016 Def. 2): which slots get a copy.

    Args:
        planner: Who made it.
        allowed: How many copies it could have had. Those that would add nothing are not used.
        copied: The slots that get a copy, in the order of the topology.
        fidelity: Output fidelity, from 0 to 1, if every other slot is lost: the worst that can happen
            to slots without a copy.
        bound: The fidelity that no plan of that many copies surpasses; None if it was not worked out.

    Example:
        >>> Plan(planner="greedy", allowed=1, copied=(), fidelity=0.4, bound=0.5).most_below_best
        0.2
    """

    planner: str
    allowed: int
    copied: tuple[SlotId, ...]
    fidelity: float
    bound: float | None = None

    @property
    def most_below_best(self) -> float | None:
        """The part of the best plan's fidelity that this one lacks at most; None if not known."""
        if self.bound is None:
            return None
        missing = 1.0 - self.fidelity / self.bound if self.bound > 0 else 0.0
        return round(max(0.0, missing), 12)

    def numbers(self, operator: str) -> tuple[int, ...]:
        """Which slots of an operator get a copy."""
        return tuple(sorted(slot.slot for slot in self.copied if slot.operator == operator))


class Point(msgspec.Struct, frozen=True):
    """The fidelity that a planner reaches with a number of copies."""

    copies: int
    fidelity: float


def plan(
    topology: Topology,
    copies: int | None = None,
    *,
    share: float | None = None,
    planner: PlannerName = "structure-aware",
    metric: Metric = "fidelity",
    bound: bool = True,
) -> Plan:
    """Choose the slots that get a copy so that output fidelity is as high as it can be.

    Args:
        topology: The topology.
        copies: How many copies there may be.
        share: The same as a part of the slots, from 0 to 1; rounded down.
        planner: "structure-aware" (PPA 2016 algorithm 5) for any topology; "optimal" for the best plan
            there is, where the topology is small enough (needs the extra ``plan``);
            "dynamic-programming" (1) and "greedy" (2) for comparison; "structured" (3) and "full" (4)
            for topologies of that kind.
        metric: What to make large: output fidelity, or "completeness" for comparison. The plan tells
            its fidelity in any case.
        bound: Whether to work out how far the plan can be from the best one. Without the extra
            ``plan`` it is left out where it needs linear programming.

    Raises:
        BadValueError: The topology's rates are missing, the planner does not fit it, or there are
            fewer copies than slots in the smallest complete tree.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> topology = Topology(
        ...     (Node("parse", 4, rates=(9.0, 3.0, 2.0, 2.0)), Node("count", 2)),
        ...     (Link("parse", "count", "merge"),),
        ... )
        >>> chosen = plan(topology, 3)
        >>> [tuple(slot) for slot in chosen.copied], chosen.fidelity
        ([('parse', 0), ('parse', 1), ('count', 0)], 0.75)
    """
    one_of("planner", planner, tuple(PLANNERS))
    one_of("metric", metric, ("fidelity", "completeness"))
    allowed = _allowed(topology, copies, share)
    model = model_of(topology)
    aim = model if metric == "fidelity" else model_of(topology, metric)
    chosen = PLANNERS[planner](topology, aim).choose(allowed)
    fidelity = model.value(chosen)
    if fidelity <= 0 < allowed and metric == "fidelity":
        _check_enough(topology, allowed, planner)
    most = _bound(model, allowed) if bound else None
    return Plan(
        planner=planner,
        allowed=allowed,
        copied=model.named(chosen),
        fidelity=fidelity,
        bound=None if most is None else max(most, fidelity),
    )


def curve(
    topology: Topology,
    planner: PlannerName = "structure-aware",
    *,
    copies: Iterable[int] | None = None,
) -> tuple[Point, ...]:
    """Fidelity against the number of copies.

    Args:
        topology: The topology.
        planner: As for ``plan``.
        copies: Which numbers of copies; by default all, or about fifty on large topologies.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> topology = Topology((Node("a", 2, rates=(3.0, 1.0)), Node("b")), (Link("a", "b"),))
        >>> [point.fidelity for point in curve(topology)]
        [0.0, 0.0, 0.75, 1.0]
    """
    one_of("planner", planner, tuple(PLANNERS))
    model = model_of(topology)
    numbers = _samples(model.size) if copies is None else copies
    chooser = PLANNERS[planner](topology, model)
    allowed = (_allowed(topology, number, None) for number in numbers)
    return tuple(Point(number, model.value(chooser.choose(number))) for number in allowed)


def bound_curve(topology: Topology, *, copies: Iterable[int] | None = None) -> tuple[Point, ...]:
    """The fidelity that no plan surpasses, against the number of copies.

    Args:
        topology: The topology.
        copies: As for ``curve``.

    Raises:
        SolverMissingError: It takes linear programming, and the extra ``plan`` is not installed.
    """
    model = model_of(topology)
    optimum = Optimum(model)
    numbers = _samples(model.size) if copies is None else copies
    allowed = (_allowed(topology, number, None) for number in numbers)
    return tuple(Point(number, optimum.bound(number)) for number in allowed)


def _allowed(topology: Topology, copies: int | None, share: float | None) -> int:
    """How many copies there may be; never more than slots."""
    if (copies is None) == (share is None):
        raise BadValueError(
            "Either copies or share must be given, not both.",
            do="Say how many copies there may be, or which part of all slots may have one.",
        )
    slots = len(topology.slots)
    if copies is not None:
        return min(slots, count("copies", copies, unit="copies", least=0))
    part = amount("share", share, unit="slots, as a part of all", zero="none", infinite=None)
    if part > 1:
        raise BadValueError(f"share={part:g} is more than all slots.", do="Give at most 1.")
    return int(part * slots + 1e-9)  # 0.7 of 10 slots are 7, whatever floats make of it


def _check_enough(topology: Topology, allowed: int, planner: str) -> None:
    """Tell why there is no output; greedy may miss it even with enough copies."""
    needed = smallest_tree(topology)
    if allowed >= needed and planner == "greedy":
        return
    raise BadValueError(
        f"With {allowed} copies there is no output at all.",
        why=f"The smallest complete tree of the topology has {needed} slots, and only trees whose slots "
        + ("all live make output." if allowed < needed else "are not idle make output."),
        do="Allow more copies, or reduce the operators between source and output.",
    )


def _bound(model: Model, copies: int) -> float | None:
    try:
        return Optimum(model).bound(copies)
    except SolverMissingError:
        return None


def _samples(slots: int) -> list[int]:
    """Numbers of copies from none to all, about fifty at most."""
    step = -(-slots // 50)
    return [*range(0, slots, step), slots]
