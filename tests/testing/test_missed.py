"""Lost slots are asked for once an executor is dead, where only the whole query can restore them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tether.core.graph import Graph, Node, SlotId
from tether.engine.query.aside import Aside
from tether.engine.query.missed import refuse_lost
from tether.engine.recovery.lost import LostStateError

GRAPH = Graph((Node("count", 3), Node("other lane", 2)), ())


class Cluster:
    """Three slots on executors; one of them may be gone."""

    def __init__(self, there, *, shaken=True):
        self.there, self._shaken, self.asked = there, shaken, 0

    def shaken(self):
        return self._shaken

    def ask(self, orders, purpose, epoch):
        assert (purpose, epoch) == ("probe", 8)
        self.asked += 1
        if self.there is None:
            raise RuntimeError("executors are dying")
        return {SlotId("count", slot): None for slot in self.there}


def lane(cluster, *, snapshot=4, keeper=True, behind=None, missing=()):
    aside = Aside()
    if missing:
        aside.go_on_without([SlotId("count", slot) for slot in missing], "skip")
    books = SimpleNamespace(
        keeper=object() if keeper else None,
        first_epoch=0,
        newest_snapshot=lambda epoch: SimpleNamespace(epoch=snapshot),
        operators={"count": None},
        aside=aside,
    )
    plan = SimpleNamespace(settings=SimpleNamespace(graph=GRAPH))
    catching_up = SimpleNamespace(now=behind)
    return SimpleNamespace(
        cluster=cluster, books=books, plan=plan, catching_up=catching_up, orders=None
    )


def test_a_slot_without_a_state_stops_the_epoch_before_it_is_tried():
    with pytest.raises(LostStateError, match="Slot 1 of 'count' has lost its state before epoch 9"):
        refuse_lost(lane(Cluster([0, 2])), 9)


@pytest.mark.parametrize(
    ("cluster", "how", "asked"),
    [
        (Cluster([], shaken=False), {}, 0),
        (Cluster([]), {"keeper": False}, 0),  # every slot restores itself
        (Cluster([]), {"snapshot": 8}, 0),  # from the end of the epoch before
        (Cluster([]), {"behind": object()}, 0),  # slots are at different epochs
        (Cluster([0, 1, 2]), {}, 1),
        (Cluster([0, 2]), {"missing": [1]}, 1),  # it is known to be lost
        (Cluster(None), {}, 1),  # the slots' tasks will tell
    ],
)
def test_all_others_run(cluster, how, asked):
    refuse_lost(lane(cluster, **how), 9)
    assert cluster.asked == asked
