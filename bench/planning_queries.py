"""The paper's two queries with slots lost: what is left of the answer, and what the plan promised.

PPA 2016 §VI-B. All slots without a copy are lost at once and stay lost; the rest goes on. After a whole
window the answers are compared with those of a run without failures.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tether.algorithms.paper_queries import incident_steps, partitionings, top_k_steps
from tether.algorithms.top_k import accuracy
from tether.core.graph import Edge, Graph, Node
from tether.data import DataFolder, incident_reports, locations
from tether.planning import internal_completeness, measured_rates, plan, topology_of
from tether.testing.local import LocalPipeline, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.results import ResultLog
    from tether.algorithms.paper_queries import Step
    from tether.planning import Topology

    Epoch = dict[str, pa.Table]

SERVERS, URLS, K = 64, 20_000, 100
LOCALITY = 0.9
"""Part of a page's requests that go to its own server; the log itself is not public any more."""


class Query(NamedTuple):
    """A query, its input, and what of its answers is compared."""

    steps: Callable[[], list[Step]]
    epochs: Callable[[int, int], Iterator[Epoch]]
    answer: Callable[[list[pa.Table]], list[set[Any]]]
    """Sets of which each is compared with that of the run without failures."""
    warm_up: int
    """Epochs until a window holds nothing from before the failure."""
    assumed: str


class Point(NamedTuple):
    """A plan, and what became of the answer."""

    planner: str
    copies: int
    predicted: float
    """Fidelity of the plan; completeness, where the plan was made for that."""
    accuracy: float


def fidelity_against_answers(query: str, *, quick: bool, seed: int, log: ResultLog) -> list[Point]:
    """For each planner and number of copies: what was promised, what was measured."""
    asked = QUERIES[query]
    epochs = list(asked.epochs(asked.warm_up + (12 if quick else 30), seed))
    truth, reports = _run(asked, epochs, set())
    topology = _topology(asked.steps(), reports)
    slots = {(slot.operator, slot.slot) for slot in topology.slots}
    numbers = range(1, len(slots) + 1, 3 if quick else 1)
    found = []
    known: dict[frozenset[Any], float] = {}
    for planner in ("structure-aware", "dynamic-programming", "greedy", "completeness"):
        for copies in numbers:
            chosen, promised = _planned(topology, planner, copies)
            if chosen not in known:
                lost = slots - chosen
                measure = partial(_accuracy, asked, epochs, lost, truth)
                # Plans are the same every time, so their number names a run.
                known[chosen] = log.once(query, len(known), measure)["accuracy"]
            found.append(Point(planner, copies, round(promised, 4), round(known[chosen], 4)))
    return found


def _accuracy(
    query: Query, epochs: list[Epoch], lost: set[Any], truth: list[set[Any]]
) -> dict[str, float]:
    answers, _ = _run(query, epochs, lost)
    each = [accuracy(a, t) for a, t in zip(answers, truth, strict=True) if t]
    return {"accuracy": statistics.fmean(each)}


def _planned(topology: Topology, planner: str, copies: int) -> tuple[frozenset[Any], float]:
    from tether.core.errors import BadValueError  # noqa: PLC0415

    aim: dict[str, Any] = {"planner": planner}
    if planner == "completeness":
        aim = {"metric": "completeness"}
    elif planner == "dynamic-programming":
        aim = {"planner": "optimal"}  # it finds the same plans, and those of larger topologies
    try:
        chosen = plan(topology, copies, bound=False, **aim)
    except BadValueError:
        return frozenset(), 0.0  # fewer copies than the smallest tree
    alive = frozenset((slot.operator, slot.slot) for slot in chosen.copied)
    if planner == "completeness":
        return alive, internal_completeness(topology, alive)
    return alive, chosen.fidelity


def _run(
    query: Query, epochs: list[Epoch], lost: set[Any]
) -> tuple[list[set[Any]], list[dict[str, Any]]]:
    """The answers of a run in which slots are lost from the start, and what its slots reported."""
    stages = [Stage(step.operator, step.key, step.slots, step.inputs) for step in query.steps()]
    pipeline = LocalPipeline(stages)
    pipeline.silence(lost)
    given, reports = [], []
    for rows in epochs:
        given.append(pipeline.run(rows))
        reports += pipeline.slots()
    return query.answer(given[query.warm_up :]), reports


def _topology(steps: list[Step], reports: list[dict[str, Any]]) -> Topology:
    names = {step.operator.name for step in steps}
    edges = [
        Edge(name, step.operator.name) for step in steps for name in step.inputs if name in names
    ]
    nodes = tuple(Node(step.operator.name, step.slots) for step in steps)
    graph = Graph(nodes, tuple(edges))
    folding = {"slice_counts", "window_counts"} & names
    return topology_of(
        graph,
        rates=measured_rates(graph, reports, folding=folding),
        correlated=[step.operator.name for step in steps if step.operator.joins],
        partitionings=partitionings(steps),  # type: ignore[arg-type]
    )


def _requests(epochs: int, seed: int, locality: float = LOCALITY) -> Iterator[Epoch]:
    """Requests to the servers of a web site, ten seconds an epoch, at the rates of a real one."""
    random = np.random.default_rng([seed, 11])
    shares = np.arange(1, SERVERS + 1) ** -0.5
    home = random.choice(SERVERS, URLS, p=shares / shares.sum())
    popular = np.cumsum(np.arange(1, URLS + 1) ** -0.8)
    for epoch, rate in enumerate(_rates(epochs, seed)):
        url = np.searchsorted(popular / popular[-1], random.random(rate))
        elsewhere = random.random(rate) > locality
        server = np.where(elsewhere, random.integers(0, SERVERS, rate), home[url])
        time = 10.0 * epoch + 10.0 * np.sort(random.random(rate))
        yield {"requests": pa.table({"time": time, "server": server, "url": url})}


def _rates(epochs: int, seed: int) -> list[int]:
    """Rows of each epoch: those of the World Cup's site on 30 June 1998, or much like them."""
    folder = DataFolder()
    if folder.has("worldcup98_rate"):
        counts = folder.request_rate().rows["count"].to_numpy()
        day = counts[60 * 24 * 61 : 60 * 24 * 62]
    else:
        hours = np.linspace(0, 24, 1440, endpoint=False)
        noise = np.random.default_rng([seed, 12]).lognormal(sigma=0.2, size=1440)
        day = 50_000 * (1.2 + np.sin((hours - 10) / 24 * 2 * np.pi)) * noise
    picked = day[:: len(day) // epochs][:epochs]
    return [int(rows) for rows in 20_000 * picked / picked.mean()]


def _traffic(epochs: int, seed: int) -> Iterator[Epoch]:
    options = {"users": 20_000, "segments": 1_000, "seed": seed}
    for rows, reports in zip(
        locations(epochs, rate=2_000, **options),
        incident_reports(epochs, **options),
        strict=True,
    ):
        yield {"locations": rows, "reports": reports}


def _all_jams(answers: list[pa.Table]) -> list[set[Any]]:
    """All incidents of the run together: there are few in an epoch."""
    return [{one for rows in answers for one in rows["incident"].to_pylist()}]


def _top(answers: list[pa.Table]) -> list[set[Any]]:
    return [set(rows["url"].to_pylist()) for rows in answers]


QUERIES = {
    "q1": Query(
        lambda: top_k_steps(k=K),
        _requests,
        _top,
        warm_up=6,
        assumed=f"{LOCALITY:.0%} of a page's requests go to a server of its own",
    ),
    "q1-spread": Query(
        lambda: top_k_steps(k=K),
        lambda epochs, seed: _requests(epochs, seed, locality=0.0),
        _top,
        warm_up=6,
        assumed="all servers get the same requests, so that any of them is a sample of the others",
    ),
    "q2": Query(
        lambda: incident_steps(window=120),
        _traffic,
        _all_jams,
        warm_up=12,
        assumed="users by Zipf 0.5, as the paper; an incident slows traffic with probability 1/2",
    ),
}
