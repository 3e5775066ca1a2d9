"""The derivation that people read must be the one that the policy follows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.errors import BadValueError
from tether.core.placement import Placement
from tether.core.windows import Decaying, Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.policies.explain import explain
from tether.policies.mini_batch import MiniBatch
from tether.policies.parse_accuracy import parse_accuracy


@given(
    st.integers(1, 10**6),
    st.integers(1, 64),
    st.sampled_from(["add", "max"]),
    st.sampled_from([None, Hopping(60), Sliding(5, "epochs")]),
)
def test_the_threshold_named_is_the_one_in_force(theta, copies, errors, window):
    policy = Approximate(theta, window=window)
    placement = Placement(copies=copies, errors_of_copies=errors)
    text = "\n".join(explain(policy, placement))
    in_force = policy.threshold(policy.initial(), placement)
    named = re.search(r"θ = ([0-9][0-9,.e+-]*[0-9]|[0-9])", text)
    assert float(named[1].replace(",", "")) == pytest.approx(in_force, rel=1e-9)
    assert ("window" in text) == (window is not None)


def test_other_policies_say_what_they_do():
    assert "exact" in explain(MiniBatch(), Placement())[0]
    assert "never backed up" in explain(Approximate(float("inf")), Placement())[0]
    assert "nothing is ever lost" in explain(Approximate(0), Placement())[-1]
    assert "pile up" in explain(Approximate(9, window=Decaying(60)), Placement())[-1]
    pipeline = Placement(sharers=2, amplification=3.0)
    assert "counts 3 times at most: its part is 9 / 6 = 1.5" in explain(Approximate(9), pipeline)[1]


@pytest.mark.parametrize(
    ("text", "theta"),
    [
        ("absolute:max_error=100,of=total", 100),
        ("relative:fraction=0.01,at_least=1e4,of=key", 100),
        ("heavy-hitters:threshold=1000,epsilon=0.5,certain_below=300", 200),
        ("regression:max_distance=0.5,max_step=0.01,max_lost_items=10", 0.4),
        ("join:samples=100,widening=1", 75),
    ],
)
def test_an_accuracy_becomes_a_budget(text, theta):
    choice = parse_accuracy(text)
    assert choice.policy().max_state_error == pytest.approx(theta)
    assert choice.explain().startswith("1. ")


@pytest.mark.parametrize(
    "text",
    ["", "exact", "absolute", "absolute:max_error=-1,of=key", "absolute:max_error=x,of=key",
     "absolute:max_error=1,of=row", "relative:fraction=0.1", "join:samples=1,sample=2"],
)  # fmt: skip
def test_a_wish_that_cannot_be_read_is_refused(text):
    with pytest.raises(BadValueError):
        parse_accuracy(text)
