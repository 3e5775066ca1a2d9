"""Minimal complete trees and the parts that a topology is planned in."""

from __future__ import annotations

import pytest
from hypothesis import given

from tether.core.errors import BadValueError
from tether.planning import (
    Link,
    Node,
    Topology,
    complete_trees,
    count_trees,
    output_fidelity,
    smallest_tree,
)
from tether.planning.decompose import sub_topologies, units
from tether.planning.model import model_of
from tether.planning.papers import figure_1
from tether.planning.segments import segments

from .topologies import topologies


def chain(sizes: list[int], kinds: list[str]) -> Topology:
    names = [f"O{at + 1}" for at in range(len(sizes))]
    nodes = tuple(Node(name, size, rates=1.0) for name, size in zip(names, sizes, strict=True))
    ends = zip(names[:-1], names[1:], kinds, strict=True)
    return Topology(nodes, tuple(Link(*one) for one in ends))


@pytest.mark.parametrize(("inputs", "number"), [("independent", 16), ("correlated", 8)])
def test_figure_1(inputs, number: int) -> None:
    trees = complete_trees(figure_1(inputs))
    assert len(trees) == count_trees(figure_1(inputs)) == number
    named = {("O1", 0), ("O3", 0), ("O4", 0)} | ({("O2", 0)} if inputs == "correlated" else set())
    assert named in trees  # the one that §III-B names


@given(topologies())
def test_trees_are_complete_and_minimal(topology: Topology) -> None:
    busy = Topology(
        tuple(Node(node.name, node.slots, node.inputs, 1.0) for node in topology.nodes),
        tuple(Link(link.source, link.target, link.partitioning) for link in topology.links),
    )
    trees = complete_trees(busy)
    assert len(trees) <= count_trees(busy)
    assert min(map(len, trees)) <= smallest_tree(busy)
    for tree in trees:
        assert output_fidelity(busy, tree) > 0
    if all(len(busy.outputs_of(node.name)) < 2 for node in busy.nodes):
        for tree in trees:
            assert not any(output_fidelity(busy, tree - {slot}) for slot in tree)
        assert min(map(len, trees)) == smallest_tree(busy)


def test_too_many_trees_are_not_listed() -> None:
    with pytest.raises(BadValueError, match="10,000 complete trees"):
        complete_trees(chain([10] * 4, ["full"] * 3), most=9_999)


def test_figure_4_two_parts_with_a_full_link_between() -> None:
    nodes = tuple(Node(f"O{at}", 4 if at == 1 else 2, rates=1.0) for at in range(1, 7))
    links = (
        Link("O1", "O3", "merge"),
        Link("O2", "O3", "one-to-one"),
        Link("O3", "O4"),
        Link("O4", "O6"),
        Link("O5", "O6"),
    )
    parts = sub_topologies(Topology(nodes, links))
    assert [(part.kind, set(part.operators)) for part in parts] == [
        ("structured", {"O1", "O2", "O3"}),
        ("full", {"O4", "O5", "O6"}),
    ]


@given(topologies(operators=5))
def test_only_full_links_lead_between_parts(topology: Topology) -> None:
    parts = sub_topologies(topology)
    assert sorted(name for part in parts for name in part.operators) == sorted(
        node.name for node in topology.nodes
    )
    home = {name: part for part in parts for name in part.operators}
    for link in topology.links:
        if home[link.source] != home[link.target] or home[link.source].kind == "full":
            assert topology.is_full(link)


def test_figure_3a_a_merge_before_a_split_is_a_boundary() -> None:
    topology = chain([4, 2, 4], ["merge", "split"])
    assert units(topology, ["O1", "O2", "O3"]) == (("O1",), ("O2", "O3"))


def test_figure_3b_a_merge_into_a_join_is_a_boundary() -> None:
    nodes = (Node("O1", 4, rates=1.0), Node("O2", 2, rates=1.0), Node("O3", 2, "correlated"))
    topology = Topology(nodes, (Link("O1", "O3", "merge"), Link("O2", "O3", "one-to-one")))
    assert units(topology, ["O1", "O2", "O3"]) == (("O1",), ("O2", "O3"))


@pytest.mark.parametrize(
    ("sizes", "kinds", "most"),
    [
        ([8, 4, 2], ["merge", "merge"], 8),
        ([2, 4, 8], ["split", "split"], 8),
        ([4, 8, 4], ["split", "merge"], 8),
    ],
)
def test_segments_of_a_unit_are_as_many_as_its_substreams(sizes, kinds, most: int) -> None:
    topology = chain(sizes, kinds)
    names = tuple(node.name for node in topology.nodes)
    assert units(topology, names) == (names,)
    assert segments(model_of(topology), names).shape[1] == most
