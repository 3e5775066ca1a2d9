"""Schedules of failures for simulated chains, and what must hold of every run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tether.protocols.consistency import Handling
from tether.simulate.available import BUCKET, MemoryLog, Node, Row, Source, truth

WAIT, LAST, DRAIN = 5, 44, 60
"""Ticks: αX, the last tick in which something may fail, and the last of the run."""

ALLOWED = {
    ("stable", "up-failure"),
    ("up-failure", "stabilization"),
    ("up-failure", "stable"),  # the copy was lost, and what it had given was withdrawn
    ("stabilization", "stable"),
    ("stabilization", "up-failure"),
}

spans = st.tuples(st.integers(2, LAST - 12), st.integers(1, 12))


@dataclass(frozen=True)
class Schedule:
    """What fails when: sources s0, s1, s2; A and B read s0 and s1; C reads A or B, and s2."""

    handling: Handling
    sources: tuple[tuple[tuple[int, int], ...], ...] = ((), (), ())
    links: tuple[tuple[str, int, int, int, int], ...] = ()
    """(node, input, replica, start, length)."""
    down: tuple[tuple[str, int, int], ...] = ()
    most: int = field(default=1_000)


handlings = st.builds(
    Handling,
    wait=st.just(float(WAIT)),
    failure=st.sampled_from(["process", "delay"]),
    stabilization=st.sampled_from(["process", "delay", "suspend"]),
    most=st.sampled_from([1, 3, 1_000]),
)


def schedules(longest: int = 12, crashes: bool = True) -> st.SearchStrategy[Schedule]:
    span = st.tuples(st.integers(2, LAST - 12), st.integers(1, longest))
    few = st.lists(span, max_size=4).map(tuple)  # flapping inputs: several short ones
    ends = st.sampled_from(
        [("A", 0, 0), ("A", 1, 0), ("B", 0, 0), ("B", 1, 0), ("C", 0, 0), ("C", 0, 1), ("C", 1, 0)]
    )
    link = st.tuples(ends, span).map(lambda pair: (*pair[0], *pair[1]))
    down = st.tuples(st.sampled_from("ABC"), span).map(lambda pair: (pair[0], *pair[1]))
    return st.builds(
        Schedule,
        handling=handlings,
        sources=st.tuples(few, few, few),
        links=st.lists(link, max_size=4).map(tuple),
        down=st.lists(down, max_size=2).map(tuple) if crashes else st.just(()),
    )


@dataclass
class Run:
    """A finished run."""

    schedule: Schedule
    sources: list[Source]
    nodes: dict[str, Node]
    grown: list[str] = field(default_factory=list)
    """Where stable rows were once given and later not there, or others."""


def run(schedule: Schedule, **options: Any) -> Run:
    """Run a schedule to its end, with all failures healed long before."""
    sources = [Source(f"s{number}", number, cut) for number, cut in enumerate(schedule.sources)]

    def node(name: str, inputs: list[list[MemoryLog]]) -> Node:
        links = [tuple(rest) for at, *rest in schedule.links if at == name]
        down = [(start, length) for at, start, length in schedule.down if at == name]
        return Node(name, inputs, schedule.handling, cut_off=links, down=down, **options)  # type: ignore[arg-type]

    first = [[sources[0].log], [sources[1].log]]
    nodes = {name: node(name, first) for name in "AB"}
    nodes["C"] = node("C", [[nodes["A"].log, nodes["B"].log], [sources[2].log]])
    result = Run(schedule, sources, nodes)
    before: dict[str, list[Row]] = {name: [] for name in nodes}
    for now in range(DRAIN):
        for each in (*sources, *nodes.values()):
            each.tick(now)
        for name, each in nodes.items():
            stable = each.log.stable()
            if stable[: len(before[name])] != before[name]:
                result.grown.append(f"{name} at {now}")
            before[name] = stable
    return result


def problems(run: Run) -> list[str]:
    """Everything that is wrong with a run; DPC 2005 §3.5, properties 1 to 4."""
    found = [f"stable rows were withdrawn: {where}" for where in run.grown]  # property 4
    logs = [source.log for source in run.sources]
    first = truth(logs[:2], DRAIN)
    expected = {"A": first, "B": first, "C": truth([first, logs[2]], DRAIN)}
    for name, node in run.nodes.items():
        stable = node.log.stable()
        if stable != expected[name][: len(stable)]:  # property 2
            found.append(f"{name}: stable rows are doubled, missing or out of order")
        # Property 3; the newest bucket of each node on the way is not complete yet.
        if len([row for row in expected[name] if row[0] < DRAIN - 4 * BUCKET]) > len(stable):
            found.append(f"{name}: not all rows became stable: {len(stable)}")
        found += [f"{name}: {each}" for each in _of_one(node, run.schedule)]
    return found


def _of_one(node: Node, schedule: Schedule) -> list[str]:
    found = []
    seen = node.seen
    if bad := set(itertools.pairwise(seen.phases)) - ALLOWED:
        found.append(f"transitions that are none: {bad}")
    if seen.phases[-1] != "stable":
        found.append(f"it ends in {seen.phases[-1]}")
    if seen.done.count(False) > seen.phases.count("stable"):
        found.append("corrections ended more often than they began")
    tentative = [entry for entry in node.log.written if entry.kind == "tentative"]
    last = max((entry.number for entry in tentative), default=-1)
    if tentative and not any(entry.done for entry in node.log.written[last:]):
        found.append("tentative rows were never declared corrected")
    ends = [release.end for _, release in seen.releases if release.kind == "stable"]
    begins = [release.first for _, release in seen.releases if release.kind == "stable"]
    if ends[:-1] != begins[1:]:
        found.append("stable buckets are not each given once, in order")
    if seen.needless:  # property 1: stable rows where there is a stable tree
        found.append("it went on without an input that a replica had")
    # Rows that could not be reached have waited before they came.
    names = [each[0] for each in (*schedule.down, *schedule.links)]
    down = node.log.name in names
    # Property 1: a tick to notice, and one for each epoch that takes its turn before. A node that may
    # take one bucket only in an epoch is too slow for a long backlog, whatever the protocol says.
    quick = schedule.handling.most > 3 and schedule.handling.stabilization != "suspend"
    if quick and not down and seen.worst_wait > WAIT + 2:
        found.append(f"a row waited {seen.worst_wait} ticks")
    return found
