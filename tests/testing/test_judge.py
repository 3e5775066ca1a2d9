"""The judge itself: it must see what is wrong, and nothing else."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from tether.testing.judge import Failure, Measure, Told, judge

ROWS = [["a", "b", "a"], ["b"], []]
LOSS = [Failure(epoch=1, what="an executor died")]


def counts(epochs):
    seen: dict[str, int] = {}
    for keys in epochs:
        for key in keys:
            seen[key] = seen.get(key, 0) + 1
        yield {"seen": dict(seen)}


def verdict(*told, failures=LOSS, **more):
    return judge(ROWS, counts, failures, told, {"seen": Measure("l1")}, **more)


def told(epoch, spent, /, *, worst_now=math.inf, ceiling=math.inf, items_lost=0, **answer):
    return Told(
        epoch=epoch,
        answer={"seen": answer},
        spent=spent,
        worst_now=worst_now,
        ceiling=ceiling,
        items_lost=items_lost,
    )


def whys(found):
    return [one.why for one in found.outside]


def test_right_answers_are_within():
    found = verdict(told(0, 0, a=2, b=1), told(1, 0, a=2, b=2), failures=[])
    assert (found.looked, found.outside, found.looseness) == (2, [], [])


def test_an_error_up_to_what_was_told_is_within_and_one_above_is_not():
    assert verdict(told(1, 3, a=1, b=0)).outside == []
    (outside,) = verdict(told(1, 2.5, a=1, b=0)).outside
    assert (outside.epoch, outside.error, outside.allowed) == (1, 3, 2.5)
    assert str(outside) == "epoch 1: the answer is outside its bound: off by 3, told 2.5"


def test_too_much_is_as_wrong_as_too_little_and_so_is_a_key_that_never_was():
    assert whys(verdict(told(1, 1, a=4, b=2))) == ["the answer is outside its bound"]
    assert whys(verdict(told(1, 1, a=2, b=2, c=2))) == ["the answer is outside its bound"]


def test_before_anything_is_lost_an_answer_is_right_whatever_was_told():
    assert whys(verdict(told(0, 9, a=1, b=1))) == ["the answer is wrong, and nothing was lost"]
    harmless = [Failure(epoch=0, loses=False, what="a worker was killed")]
    found = verdict(told(0, 9, a=1, b=1), failures=harmless)
    assert whys(found) == ["the answer is wrong, and nothing was lost"]


def test_no_more_is_spent_than_was_promised():
    assert whys(verdict(told(1, 9, a=2, b=2, ceiling=8))) == [
        "more was spent than was ever promised"
    ]


def test_no_more_is_lost_than_was_at_risk():
    first = told(0, 0, a=2, b=1, worst_now=1)
    assert whys(verdict(first, told(1, 3, a=1, b=0))) == ["more was lost than was at risk"]
    assert verdict(first, told(1, 3, a=1, b=2)).outside == []
    spoiled = [Failure(epoch=1, unforeseen=True, what="a bit flipped")]
    assert verdict(first, told(1, 3, a=1, b=0), failures=spoiled).outside == []


def test_lost_items_are_paid_for_one_by_one():
    assert verdict(told(1, 1, a=1, b=0, items_lost=2), alpha=1).outside == []
    assert whys(verdict(told(1, 1, a=1, b=0, items_lost=1), alpha=1)) == [
        "the answer is outside its bound"
    ]


def test_an_epoch_that_comes_again_is_judged_again():
    again = verdict(told(1, 0, a=2, b=2), told(0, 0, a=1, b=1), told(1, 0, a=2, b=2))
    assert {one.epoch for one in again.outside} == {0}


def test_how_loose_a_bound_is():
    assert verdict(told(1, 6, a=1, b=0)).looseness == [2]
    assert verdict(told(1, math.inf, a=1, b=0)).looseness == [math.inf]


@pytest.mark.parametrize(("norm", "expected"), [("l1", 7), ("max", 4), ("count", 1)])
def test_measures(norm, expected):
    assert Measure(norm).distance({"a": 1, "b": 3}, {"b": -1, "c": 2.0, "a": 2}) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 9, 50])
def test_a_root_is_never_above_the_true_one_and_hardly_below(size):
    root = Measure("l2").distance(dict.fromkeys(range(size), 1), {})
    assert root * root <= size < (root + Fraction(1, 10**39)) ** 2


def test_weights_and_infinite_values():
    assert Measure("l1", 0.5).distance({"a": 3}, {}) == Fraction(3, 2)
    assert Measure("l1", 0.0).distance({"a": 3}, {}) == 0
    assert Measure("l1").distance({"a": math.inf}, {"a": 1}) == math.inf
    assert Measure("l1").distance({"a": math.inf}, {"a": math.inf}) == 0
