"""Planners on random topologies (PPA 2016 §VI-C, fig. 14), on all cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.core.errors import TetherError
from tether.planning import Specification, Topology, random_topology
from tether.planning.model import model_of
from tether.planning.optimum import Optimum
from tether.planning.planners import PLANNERS
from tether.planning.trees import tree_count

if TYPE_CHECKING:
    from tether.planning.generate import Structure
    from tether.planning.model import Model

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


SECONDS = 5.0
"""So long the best plan is looked for. Where it is not found, all plans are tried; where there are too
many, the bound is taken, which makes the ratio too small rather than too large."""
MOST_TRIED = 25
"""Slots of a topology all of whose plans are tried, at most."""
AT_ONCE = 1 << 16


class Small(NamedTuple):
    """Structure-aware plans to the best there are."""

    ratios: list[float]
    to_bound: int
    """How many of them are ratios to a bound."""
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
    known = [one for one in found if one is not None]
    ratios = [ratio for one in known for ratio in one.ratios]
    return Small(ratios, sum(one.to_bound for one in known), len(found) - len(known))


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


def best_of_all(model: Model, copies: int) -> float:
    """The best value of all plans of so many copies, by trying each.

    Example:
        >>> best_of_all(model_of(random_topology(SMALL[0], 1)), 0)
        0.0
    """
    best, bits = 0.0, np.arange(model.size)[:, None]
    for first in range(0, 1 << model.size, AT_ONCE):
        plans = np.arange(first, min(first + AT_ONCE, 1 << model.size))
        plans = plans[np.bitwise_count(plans) == copies]
        if len(plans):
            best = max(best, float(model.values((plans >> bits & 1).astype(bool)).max()))
    return best


def _to_optimum(work: tuple[int, int]) -> Small | None:
    at, seed = work
    topology = random_topology(SMALL[at], seed)
    model = model_of(topology)
    if tree_count(model) > MOST_TREES:
        return None
    aware, optimum = PLANNERS["structure-aware"](topology, model), Optimum(model, SECONDS)
    ratios, to_bound = [], 0
    for share in SHARES:
        copies = int(share * model.size + 1e-9)
        try:
            best = model.value(optimum.best(copies))
        except TetherError:
            tried = model.size <= MOST_TRIED
            best = best_of_all(model, copies) if tried else optimum.bound(copies)
            to_bound += not tried
        if best > 0:
            ratios.append(model.value(aware.choose(copies)) / best)
    return Small(ratios, to_bound, 0)
