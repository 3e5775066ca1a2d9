"""Bad topologies get clear answers; good ones are read from files and from queries."""

from __future__ import annotations

import json
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given

from tether.core.errors import BadValueError
from tether.core.graph import Edge, Graph
from tether.core.graph import Node as Operator
from tether.planning import Link, Node, Topology, output_fidelity, plan, read_topology, topology_of

from .topologies import topologies

TWO = {"operators": [{"name": "a", "slots": 2, "rates": 1.0}, {"name": "b"}]}
LINK = [{"source": "a", "target": "b"}]


def refused(text: str):
    return pytest.raises(BadValueError, match=re.escape(text))


@pytest.mark.parametrize(
    ("nodes", "links", "told"),
    [
        ("", [], "no operators"),
        ("aa", [], "named ['a']"),
        ("ab", ["ab", "ba"], "cycle: a -> b -> a. No operator is left to be the sink"),
        ("abcd", ["ab", "bc", "cb", "cd"], "cycle: b -> c -> b."),
        ("a", ["aa"], "cycle: a -> a"),
        ("ab", ["ac"], "names ['c']"),
        ("ab", ["ab", "ab"], "twice"),
    ],
)
def test_shapes_that_cannot_be(nodes: str, links: list[str], told: str) -> None:
    with refused(told):
        Topology(
            tuple(Node(name, rates=1.0) for name in nodes), tuple(Link(*ends) for ends in links)
        )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"slots": 0}, "slots of 'a'"),
        ({"slots": 1.5}, "slots of 'a'"),
        ({"rates": -1.0}, "is negative"),
        ({"rates": float("nan")}, "NaN"),
        ({"rates": float("inf")}, "infinite"),
        ({"slots": 3, "rates": (1.0, 2.0)}, "2 numbers for 3 slots"),
        ({"selectivity": -0.5}, "is negative"),
        ({"inputs": "both"}, "'both' is not known"),
    ],
)
def test_operators_that_cannot_be(options, told: str) -> None:
    with refused(told):
        Node("a", **options)


@pytest.mark.parametrize(
    ("senders", "receivers", "partitioning", "fits"),
    [
        (2, 2, "one-to-one", True),
        (2, 3, "one-to-one", False),
        (2, 3, "split", True),
        (3, 2, "split", False),
        (3, 2, "merge", True),
        (2, 2, "merge", False),
        (3, 2, "full", True),
        (3, 2, "some", False),
    ],
)
def test_partitionings_fit_the_numbers_of_slots(senders, receivers, partitioning, fits) -> None:
    nodes = (Node("a", senders, rates=1.0), Node("b", receivers))
    if fits:
        Topology(nodes, (Link("a", "b", partitioning),))
        return
    with pytest.raises(BadValueError):
        Topology(nodes, (Link("a", "b", partitioning),))


def test_a_source_without_rates_is_refused_when_they_are_needed() -> None:
    with refused("'a' has no rates"):
        output_fidelity(Topology((Node("a"), Node("b")), (Link("a", "b"),)), ())


def test_rates_beyond_all_numbers_are_refused() -> None:
    nodes = (Node("a", rates=1e200), Node("b", rates=1e200), Node("c", 1, "correlated"))
    with refused("too large"):
        output_fidelity(Topology(nodes, (Link("a", "c"), Link("b", "c"))), ())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "holds no topology"),
        ("[1]", "holds no topology"),
        ("{", "holds no topology"),
        (json.dumps({"links": []}), "operators"),
        (json.dumps(TWO | {"edges": []}), "edges"),
        (json.dumps({"operators": [{"slots": 2}]}), "name"),
        (json.dumps({"operators": [{"name": "a", "rates": "many"}]}), "rates"),
        (json.dumps({"operators": [{"name": "a", "rates": [-1]}]}), "is negative"),
        (json.dumps(TWO | {"links": [{"source": "a", "target": "x"}]}), "names ['x']"),
        (json.dumps(TWO | {"links": LINK, "outputs": ["z"]}), "outputs names ['z']"),
    ],
)
def test_files_that_hold_no_topology(tmp_path, content: str, told: str) -> None:
    path = tmp_path / "topology.json"
    path.write_text(content)
    with refused(told):
        read_topology(path)


def test_a_file_that_is_not_there(tmp_path) -> None:
    with refused("holds no topology"):
        read_topology(tmp_path / "none.toml")


@given(topologies())
def test_a_topology_is_the_same_after_a_file(topology: Topology) -> None:
    from tether.planning.reading import topology_from

    assert topology_from(msgspec.json.decode(msgspec.json.encode(topology))) == topology


def test_the_graph_of_a_query_without_its_feedback() -> None:
    graph = Graph(
        (Operator("left", 2), Operator("right", 2), Operator("join", 2)),
        (
            Edge("left", "join", wiring="one-to-one"),
            Edge("right", "join"),
            Edge("join", "left", feedback=True),
        ),
    )
    topology = topology_of(graph, rates={"left": [1, 3], "right": 2.0}, correlated=["join"])
    assert [link.partitioning for link in topology.links] == ["one-to-one", "full"]
    assert topology.node("join").inputs == "correlated"
    assert plan(topology, 3).numbers("left") == (1,)


@pytest.mark.parametrize(
    "options",
    [
        {"rates": {"nobody": 1.0}},
        {"rates": {"a": 1.0}, "correlated": ["nobody"]},
        {"rates": {"a": 1.0}, "partitionings": {("b", "a"): "full"}},
    ],
)
def test_names_that_the_query_has_not(options) -> None:
    graph = Graph((Operator("a"), Operator("b")), (Edge("a", "b"),))
    with refused("The query has no"):
        topology_of(graph, **options)


def test_slots_of_a_query_merge_by_remainder() -> None:
    graph = Graph(
        (Operator("a", 8), Operator("b", 4), Operator("c", 2), Operator("d", 1)),
        (Edge("a", "b"), Edge("b", "c"), Edge("c", "d")),
    )
    known = {("a", "b"): "merge", ("b", "c"): "merge"}
    rates = [1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0]
    topology = topology_of(graph, rates={"a": rates}, partitionings=known)
    best = plan(topology, 4)
    assert [best.numbers(name) for name in "abcd"] == [(3,), (3,), (1,), (0,)]
    assert best.fidelity == pytest.approx(9 / 16)
    # What arrives is what is sent on by the remainder, whatever slots live.
    random = np.random.default_rng(4)
    for _ in range(20):
        alive = {tuple(slot) for slot in topology.slots if random.random() < 0.7}
        way = [[("a", at), ("b", at % 4), ("c", at % 2), ("d", 0)] for at in range(8)]
        arrives = sum(rate for rate, slots in zip(rates, way, strict=True) if alive >= set(slots))
        assert output_fidelity(topology, alive) == pytest.approx(arrives / 16)


def test_remainders_need_numbers_that_divide() -> None:
    graph = Graph((Operator("a", 8), Operator("b", 3)), (Edge("a", "b"),))
    with refused("'a' cannot send to 'b' by merge"):
        topology_of(graph, rates={"a": 1.0}, partitionings={("a", "b"): "merge"})
    with refused("are not its slots"):
        Node("a", 2, numbers=(0, 0))
