"""Planners on random topologies (PPA 2016 §VI-C, fig. 14), on all cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from tether.core.errors import TetherError
from tether.planning import Specification, Topology, random_topology
from tether.planning.model import model_of
from tether.planning.optimum import Optimum
from tether.planning.planners import PLANNERS
from tether.planning.trees import tree_count

if TYPE_CHECKING:
    from tether.planning.generate import Structure

SHARES = (0.1, 0.2, 1 / 3, 0.5, 0.7)
"""Parts of the slots that may be copied."""
SPECIFICATIONS = {
    "workload: uniform": Specification(skew=0.0),
    "workload: Zipf 0.1": Specification(skew=0.1),
    "slots: 1 to 5": Specification(skew=0.1, slots=(1, 5)),
    "slots: 6 to 10": Specification(skew=0.1, slots=(6, 10)),
    "links: structured": Specification(skew=0.1),
    "links: full": Specification(skew=0.1, structure="full"),
    "joins: none": Specification(skew=0.1, structure="general"),
    "joins: half": Specification(skew=0.1, structure="general", joins=0.5),
}
"""The paper's four comparisons: two kinds of topologies each, of 5 to 10 operators."""
STRUCTURES: tuple[Structure, ...] = ("structured", "full", "general")
SMALL = [
    Specification(operators=(4, 6), slots=(1, 5), skew=0.1, structure=structure, joins=joins)
    for structure, joins in product(STRUCTURES, (0.0, 0.5))
]
MOST_TREES = 3_000
"""Topologies of more complete trees are not solved to the optimum here; nearly none of those have."""


class Compared(NamedTuple):
    """What two planners reach with a part of the slots copied."""

    specification: str
    structured: bool
    share: float
    aware: float
    greedy: float


class Small(NamedTuple):
    """Structure-aware plans to the best there are."""

    ratios: list[float]
    left_out: int


def against_greedy(seeds: list[int]) -> list[Compared]:
    """Both planners on a topology of each specification and seed."""
    work = [(name, seed) for name in SPECIFICATIONS for seed in seeds]
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        return [one for some in pool.imap(_compared, work) for one in some]


def against_optimum(seeds: list[int]) -> Small:
    """Structure-aware plans to the optimum, on a topology of each small specification and seed."""
    work = [(at, seed) for at in range(len(SMALL)) for seed in seeds]
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        found = list(pool.imap(_to_optimum, work))
    known = [ratios for ratios in found if ratios is not None]
    return Small([one for ratios in known for one in ratios], len(found) - len(known))


def seconds_of_large(slots: int, seed: int) -> float:
    """Time of a structure-aware plan for a third of the slots, without the bound."""
    topology = _large(slots, seed)
    model = model_of(topology)
    began = time.monotonic()
    PLANNERS["structure-aware"](topology, model).choose(slots // 3)
    return time.monotonic() - began


def _large(slots: int, seed: int) -> Topology:
    """A topology with exactly this number of slots, and the paper's numbers of operators."""
    each = Specification(
        operators=(8, 10), slots=(slots // 14, slots // 7), skew=0.1, structure="general", joins=0.5
    )
    for at in range(10_000):
        topology = random_topology(each, seed * 10_000 + at)
        if abs(len(topology.slots) - slots) <= slots // 100:
            return topology
    raise AssertionError(f"no topology of {slots} slots was drawn")


def _compared(work: tuple[str, int]) -> list[Compared]:
    name, seed = work
    specification = SPECIFICATIONS[name]
    topology = random_topology(specification, seed)
    model = model_of(topology)
    aware, greedy = (PLANNERS[one](topology, model) for one in ("structure-aware", "greedy"))
    found = []
    for share in SHARES:
        copies = int(share * model.size + 1e-9)
        reached = (model.value(planner.choose(copies)) for planner in (aware, greedy))
        structured = specification.structure == "structured"
        found.append(Compared(name, structured, share, *reached))
    return found


def _to_optimum(work: tuple[int, int]) -> list[float] | None:
    at, seed = work
    topology = random_topology(SMALL[at], seed)
    model = model_of(topology)
    if tree_count(model) > MOST_TREES:
        return None
    aware, optimum = PLANNERS["structure-aware"](topology, model), Optimum(model)
    ratios = []
    for share in SHARES:
        copies = int(share * model.size + 1e-9)
        try:
            best = model.value(optimum.best(copies))
        except TetherError:
            return None
        if best > 0:
            ratios.append(model.value(aware.choose(copies)) / best)
    return ratios
