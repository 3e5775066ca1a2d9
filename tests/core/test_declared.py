"""How often an error counts that comes to an operator with several slots."""

import math

import pyarrow as pa
import pytest

from tether.declared import Linked, amplification_between
from tether.operator import Operator
from tether.state.slot import SlotState


class Newest(Operator):
    """Keeps what comes, with a factor of 3."""

    def __init__(self, divergence="l1", *, disjoint=False):
        self.divergence, self.disjoint = divergence, disjoint

    def setup(self, state):
        state.table("seen", {"k": pa.int64()}, {"n": "float64"}, divergence=self.divergence)

    def amplification(self, before):
        return 3.0


def factor(operator, *, slots, key=("k",), fed_back=False):
    state = SlotState.heap()
    operator.setup(state)
    receiver = Linked(
        operator=operator,
        senders={} if fed_back else {"before": True},
        feedback=["before"] if fed_back else [],
        slots=slots,
        key=key,
        specs=list(state.specs().values()),
    )
    before = Linked(operator=Newest(), senders={})
    spread = amplification_between({"before": before, "after": receiver})
    return float(spread.factor("before", "after"))


@pytest.mark.parametrize("divergence", ["l1", "l2", "max"])
def test_in_one_slot_it_counts_once(divergence):
    assert factor(Newest(divergence), slots=1) == 3


@pytest.mark.parametrize("divergence", ["l1", "l2", "max"])
def test_slots_may_each_hold_it(divergence):
    """A key that is routed by something else may be in every slot."""
    assert factor(Newest(divergence), slots=4) == 12


@pytest.mark.parametrize(("divergence", "expected"), [("l1", 3), ("l2", 6), ("max", 3)])
def test_disjoint_slots_share_it(divergence, expected):
    found = factor(Newest(divergence, disjoint=True), slots=4)
    assert found == pytest.approx(expected)
    assert found >= expected


def test_slots_without_a_key_are_not_disjoint():
    assert factor(Newest(disjoint=True), slots=4, key=()) == 12


@pytest.mark.parametrize("divergence", ["l1", "max"])
def test_feedback_comes_to_every_slot(divergence):
    assert factor(Newest(divergence, disjoint=True), slots=4, fed_back=True) == 12


def test_what_is_not_known_stays_unknown():
    class Unknown(Newest):
        def amplification(self, before):
            return math.inf

    assert factor(Unknown(), slots=4) == math.inf
