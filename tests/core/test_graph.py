"""Graphs: what is refused, and who depends on whom."""

from __future__ import annotations

import pytest

from tether.core.errors import BadValueError, QueryRefusedError
from tether.core.graph import Edge, Graph, Node, SlotId, mark_feedback
from tether.policies.barrier import Barrier
from tether.policies.mini_batch import MiniBatch
from tether.policies.recovery import FROM_BACKUP, FROM_SNAPSHOT, LAST_EPOCH, REPLAY
from tether.policies.upstream_backup import UpstreamBackup
from tether.protocols.rewind import check_source, must_go_back, plan_rewind

from .small_graphs import DIAMOND, LOOP, PAIRS

A, B, C = Node("a"), Node("b"), Node("c")


@pytest.mark.parametrize(
    ("nodes", "edges", "says"),
    [
        ((A, A), (), "cannot be an operator's name"),
        ((Node(""),), (), "cannot be an operator's name"),
        ((Node("a", 0),), (), "slots=0"),
        ((A,), (Edge("a", "z"),), "names \\['z'\\]"),
        ((A, B), (Edge("a", "b"), Edge("a", "b")), "twice"),
        ((A, Node("b", 2)), (Edge("a", "b", wiring="one-to-one"),), "one to one"),
        ((A, B), (Edge("a", "b"), Edge("b", "a")), "without a feedback edge"),
        ((A, B), (Edge("a", "b"), Edge("a", "a")), "without a feedback edge"),
        ((A, B), (Edge("a", "b", feedback=True),), "no feedback"),
    ],
)
def test_bad_graphs_are_refused(
    nodes: tuple[Node, ...], edges: tuple[Edge, ...], says: str
) -> None:
    with pytest.raises(BadValueError, match=says) as caught:
        Graph(nodes, edges)
    assert caught.value.do


def test_a_slot_may_send_to_itself_by_feedback() -> None:
    graph = Graph((A,), (Edge("a", "a", feedback=True),))
    assert graph.cyclic
    assert [way.from_source for way in graph.inputs(SlotId("a", 0))] == [True, False]


def test_feedback_is_found_and_makes_a_good_graph() -> None:
    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "b"), ("a", "c")]
    edges = mark_feedback(["a", "b", "c"], pairs)
    assert [(e.source, e.target) for e in edges if e.feedback] == [("c", "a"), ("c", "b")]
    assert Graph((A, B, C), edges).in_order() == ["a", "b", "c"]


def test_only_a_lost_slot_s_senders_go_back() -> None:
    back = must_go_back(PAIRS.graph, [SlotId("map", 1)])
    assert back == {SlotId("map", 1), SlotId("read", 1)}
    # A merge does not repeat what it sends, so all behind it must forget what it sent.
    assert SlotId("sum", 0) in must_go_back(DIAMOND.graph, [SlotId("join", 0)])
    assert must_go_back(LOOP.graph, [SlotId("sum", 0)]) == set(LOOP.graph.slots)


def test_plans_by_kind_of_recovery() -> None:
    lost = [SlotId("map", 0)]
    whole = plan_rewind(PAIRS.graph, FROM_SNAPSHOT, lost, 9, durable=4, partial=False)
    assert len(whole.restore) == len(PAIRS.graph.slots)
    assert not whole.partial
    assert (whole.read_from, whole.void_from) == (5, 5)
    loop = plan_rewind(LOOP.graph, FROM_SNAPSHOT, [SlotId("body", 0)], 9, durable=4)
    assert {back.slot.operator for back in loop.restore if back.feedback} == {"head"}
    replay = plan_rewind(PAIRS.graph, REPLAY, lost, 9, durable={lost[0]: 6})
    assert [(back.slot, back.epoch, back.replay) for back in replay.restore] == [(lost[0], 6, True)]
    assert replay.read_from == 9
    last = plan_rewind(PAIRS.graph, LAST_EPOCH, lost, 9, durable=8)
    assert (last.restore[0].epoch, last.read_from) == (8, 9)
    nothing = plan_rewind(PAIRS.graph, FROM_SNAPSHOT, [], 9, durable=4)
    assert (nothing.restore, nothing.read_from) == ((), 9)


def test_plans_that_cannot_be_exact_are_refused() -> None:
    lost = [SlotId("map", 0)]
    for recovery, durable, says in (
        (LAST_EPOCH, 7, "no backup of epoch 8"),
        (FROM_BACKUP, 8, "has no rewind"),
        (FROM_SNAPSHOT, {lost[0]: 3}, "an epoch for each slot"),
    ):
        with pytest.raises(BadValueError, match=says):
            plan_rewind(PAIRS.graph, recovery, lost, 9, durable=durable)  # type: ignore[arg-type]
    with pytest.raises(BadValueError, match="no slots"):
        plan_rewind(PAIRS.graph, FROM_SNAPSHOT, [SlotId("map", 7)], 9, durable=4)


def test_a_source_that_cannot_go_back_is_refused_only_where_it_must() -> None:
    with pytest.raises(QueryRefusedError, match="cannot be read again") as caught:
        check_source(Barrier(), "a socket", replays=False)
    assert "upstream-backup" in caught.value.do
    check_source(Barrier(), "files", replays=True)
    check_source(UpstreamBackup(), "a socket", replays=False)
    check_source(MiniBatch(), "a socket", replays=False)


def test_who_sends_feedback_sends_again_too() -> None:
    graph = Graph((Node("a"), Node("b")), (Edge("a", "b"), Edge("b", "a", feedback=True)))
    both = {SlotId("a", 0), SlotId("b", 0)}
    assert graph.upstream([SlotId("a", 0)]) == both
    assert must_go_back(graph, [SlotId("a", 0)]) == both
