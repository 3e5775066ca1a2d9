"""Item backup: what a receiver asks for, and what a loss of it costs."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.protocols.items import (
    Acknowledge,
    BackUpItems,
    BackUpPunctuation,
    DropItems,
    ItemsArrived,
    ProcessItems,
    PunctuationArrived,
    ReadyToProcess,
    ReceiverEvent,
    ReceiverInstruction,
    ReceiverState,
    Replay,
    StateSaved,
    TakeItems,
    receive,
    recovered,
    replay,
    take_next,
)


def run(l: float, *events: ReceiverEvent) -> tuple[ReceiverState, tuple[ReceiverInstruction, ...]]:  # noqa: E741
    state, asked = ReceiverState(), ()
    for event in events:
        state, asked = receive(state, event, l)
    return state, asked


def arrived(first: int, count: int = 1, sender: str = "a") -> ItemsArrived:
    return ItemsArrived(sender=sender, first=first, count=count)


def test_up_to_l_items_may_wait_unsaved() -> None:
    state, asked = run(3, arrived(1, 3))
    assert asked == (TakeItems(skip=0, first=1, last=3), Acknowledge(sender="a", upto=3))
    assert state.at_risk == 3


def test_one_more_saves_all_of_them_before_the_acknowledgement() -> None:
    state, asked = run(3, arrived(1, 3), arrived(4))
    assert asked == (
        TakeItems(skip=0, first=4, last=4),
        BackUpItems(first=1, last=4),
        Acknowledge(sender="a", upto=4),
    )
    assert state.at_risk == 0


def test_processed_items_are_not_at_risk_and_not_saved() -> None:
    state, asked = run(3, arrived(1, 3), ReadyToProcess(upto=2), arrived(4, 2))
    assert state.at_risk == 3
    assert not any(isinstance(one, BackUpItems) for one in asked)
    state, asked = receive(state, arrived(6), 3)
    assert asked[1] == BackUpItems(first=3, last=6)


def test_punctuation_is_always_saved_by_itself() -> None:
    mark = PunctuationArrived(sender="a", first=3)
    state, asked = run(10, arrived(1, 2), mark)
    assert asked[1] == BackUpPunctuation(number=3)
    assert state.at_risk == 2
    state, asked = run(1, arrived(1), PunctuationArrived(sender="a", first=2), arrived(3))
    assert asked[1] == BackUpItems(first=1, last=3)
    assert state.at_risk == 0


def test_nought_saves_every_item_and_infinity_none() -> None:
    assert run(0, arrived(1))[1][1] == BackUpItems(first=1, last=1)
    assert run(math.inf, arrived(1, 10**9))[0].at_risk == 10**9


def test_what_comes_again_is_taken_once_and_acknowledged_again() -> None:
    _, asked = run(9, arrived(1, 3), arrived(2, 4))
    assert asked == (TakeItems(skip=2, first=4, last=5), Acknowledge(sender="a", upto=5))
    state, asked = run(9, arrived(1, 3), arrived(2, 1))
    assert asked == (Acknowledge(sender="a", upto=3),)
    assert state.received == 3


def test_senders_are_numbered_apart() -> None:
    state, asked = run(9, arrived(1, 3, "b"), arrived(1, 2, "a"))
    assert asked[0] == TakeItems(skip=0, first=4, last=5)
    assert state.heard == (("a", 2), ("b", 3))


def test_backups_are_dropped_before_unsaved_items_are_processed() -> None:
    state, _ = run(2, arrived(1, 3), arrived(4, 2))
    assert (state.backed_up, state.at_risk) == (3, 2)
    state, asked = receive(state, ReadyToProcess(upto=5), 2)
    assert asked == (
        ProcessItems(first=1, last=3),
        DropItems(upto=3),
        ProcessItems(first=4, last=5),
    )
    assert state.dropped == 3


def test_nothing_is_dropped_while_every_item_is_saved() -> None:
    state, _ = run(0, arrived(1), arrived(2))
    state, asked = receive(state, ReadyToProcess(upto=2), 0)
    assert asked == (ProcessItems(first=1, last=2),)
    log = [BackUpItems(first=1, last=1), BackUpItems(first=2, last=2)]
    assert list(replay(log, after=0).numbers) == [1, 2]


def test_saved_punctuation_is_dropped_too_before_later_items() -> None:
    state, _ = run(9, arrived(1), PunctuationArrived(sender="a", first=2), arrived(3))
    _, asked = receive(state, ReadyToProcess(upto=3), 9)
    assert asked == (
        ProcessItems(first=1, last=1),
        ProcessItems(first=2, last=2),
        DropItems(upto=2),
        ProcessItems(first=3, last=3),
    )


def test_a_saved_state_makes_its_items_superfluous() -> None:
    state, asked = run(0, arrived(1, 5), ReadyToProcess(upto=3), StateSaved())
    assert asked == (DropItems(upto=3),)
    assert state.dropped == 3


def test_replay_is_above_the_state_and_above_what_was_dropped() -> None:
    log = [BackUpItems(first=1, last=4), BackUpPunctuation(number=7)]
    assert replay(log, after=2) == Replay(first=3, last=7)
    assert replay([*log, DropItems(upto=4)], after=2) == Replay(first=5, last=7)
    assert not replay(log, after=9).numbers
    assert not replay([], after=5).numbers


def test_numbers_after_a_loss_are_above_all_that_is_durable() -> None:
    for log, after, expected in [
        ([], 5, 5),
        ([BackUpItems(first=6, last=9)], 5, 9),
        ([BackUpItems(first=6, last=9), DropItems(upto=9)], 5, 9),
        ([BackUpPunctuation(number=12)], 5, 12),
    ]:
        state = recovered(ReceiverState(heard=(("a", 3),)), replay(log, after))
        assert state.received == expected
        assert state.at_risk == 0
        assert state.heard == (("a", 3),)


@given(st.data())
def test_at_most_l_items_are_ever_at_risk(data: st.DataObject) -> None:
    l = data.draw(st.integers(0, 8))  # noqa: E741
    state, next_number = ReceiverState(), 1
    for _ in range(data.draw(st.integers(0, 25))):
        kind = data.draw(st.sampled_from(["items", "mark", "process", "save"]))
        if kind == "items":
            count = data.draw(st.integers(1, 5))
            event: ReceiverEvent = arrived(next_number, count)
            next_number += count
        elif kind == "mark":
            event = PunctuationArrived(sender="a", first=next_number)
            next_number += 1
        elif kind == "process":
            event = ReadyToProcess(upto=data.draw(st.integers(0, next_number + 2)))
        else:
            event = StateSaved()
        state, asked = receive(state, event, l)
        assert 0 <= state.at_risk <= l
        assert state.processed <= state.received == next_number - 1
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=ReceiverState) == state
        words = msgspec.msgpack.encode(asked)
        assert msgspec.msgpack.decode(words, type=tuple[ReceiverInstruction, ...]) == asked


class Counter:
    """A receiver with one number as its state, a store beside it, and a way to lose it."""

    def __init__(self, alpha: int) -> None:
        self.alpha = alpha
        self.machine = ReceiverState()
        self.live = self.ideal = 0
        self.items: dict[int, int] = {}  # in memory
        self.saved_state, self.saved_number = 0, 0  # durable, as are the two below
        self.saved_items: dict[int, int] = {}
        self.log: list = []
        self.saved_machine = ReceiverState()
        self.sent = 0

    def take(self, values: list[int], l: float) -> None:  # noqa: E741
        self.carry_out(ItemsArrived(sender="a", first=self.sent + 1, count=len(values)), l, values)
        self.sent += len(values)
        self.ideal += sum(values)

    def work(self, upto: int, theta: float, l: float) -> None:  # noqa: E741
        # One at a time, as the divergence must be checked at every place where a loss may come.
        for number in range(self.machine.processed + 1, min(upto, self.machine.received) + 1):
            self.carry_out(ReadyToProcess(upto=number), l)
            if abs(self.live - self.saved_state) > theta:
                self.saved_state, self.saved_number = self.live, self.machine.processed
                self.carry_out(StateSaved(), l)

    def carry_out(self, event: ReceiverEvent, l: float, values: list[int] | None = None) -> None:  # noqa: E741
        self.machine, asked = receive(self.machine, event, l)
        for one in asked:
            if isinstance(one, TakeItems):
                self.items.update(zip(range(one.first, one.last + 1), values or [], strict=True))
            elif isinstance(one, BackUpItems):
                for number in range(one.first, one.last + 1):
                    self.saved_items[number] = self.items[number]
                self.log.append(one)
                self.saved_machine = self.machine
            elif isinstance(one, DropItems):
                self.log.append(one)
            elif isinstance(one, ProcessItems):
                self.live += sum(self.items.get(n, 0) for n in range(one.first, one.last + 1))

    def to_come(self) -> int:
        """The state once all that is pending in memory is processed."""
        pending = range(self.machine.processed + 1, self.machine.received + 1)
        return self.live + sum(self.items.get(number, 0) for number in pending)

    def unsaved(self) -> list[int]:
        """Values of the items that a loss now is allowed to take."""
        pending = range(self.machine.processed + 1, self.machine.received + 1)
        return [self.items[n] for n in pending if n in self.items and n not in self.saved_items]

    def lose(self) -> None:
        chosen = replay(self.log, self.saved_number)
        self.live = self.saved_state
        self.items = {n: self.saved_items[n] for n in chosen.numbers if n in self.saved_items}
        self.machine = recovered(self.saved_machine, chosen)


# Few and blunt moves, so that the sequences which hurt (saved, then unsaved, then lost) come up.
moves = [
    (kind, values) for kind in ("take", "take and work") for values in ([-9], [9], [-9, 0], [9, 0])
]
moves += [("work", []), ("lose", [])]
steps = st.lists(st.sampled_from(moves), min_size=5, max_size=40)


@settings(max_examples=300)
@given(steps=steps, total=st.sampled_from([0, 20, 40]), most=st.sampled_from([0, 2, 4]))
def test_losses_cost_at_most_theta_and_l_items_even_if_updates_cancel_out(
    steps: list, total: int, most: int
) -> None:
    counter, failures = Counter(alpha=9), 0
    for kind, what in steps:
        theta, l = total / 2 ** (failures + 1), most / 2 ** (failures + 1)  # noqa: E741
        if "take" in kind:
            counter.take(what, l)
        if "work" in kind:
            last = counter.machine.received if what else counter.machine.processed + 1
            counter.work(last, theta, l)
        if kind == "lose":
            before, unsaved = counter.to_come(), counter.unsaved()
            assert len(unsaved) <= l
            counter.lose()
            assert abs(before - sum(unsaved) - counter.to_come()) <= theta
            failures += 1
    counter.work(counter.machine.received, math.inf, math.inf)
    assert abs(counter.ideal - counter.live) <= total + most * counter.alpha
    if not failures or not total + most:
        assert counter.live == counter.ideal


def test_the_example_that_replaying_processed_items_would_break() -> None:
    counter, theta, l = Counter(alpha=20), 10, 1  # noqa: E741
    counter.take([-5, -5], l)  # two are more than l: backed up
    counter.work(2, theta, l)
    counter.take([20], l)
    counter.work(3, theta, l)
    assert (counter.live, counter.saved_state) == (10, 0)  # just within θ, nothing saved
    counter.lose()
    counter.work(3, theta, l)
    assert abs(counter.ideal - counter.live) <= theta


@pytest.mark.parametrize("l", [0, 3, math.inf])
def test_processing_never_goes_beyond_what_came(l: float) -> None:  # noqa: E741
    state, asked = run(l, arrived(1, 2), ReadyToProcess(upto=99))
    assert state.processed == 2
    assert asked[-1] == ProcessItems(first=1, last=2)


EVENTS = st.one_of(
    st.builds(arrived, st.just(0), st.integers(1, 5), st.sampled_from("ab")),
    st.builds(PunctuationArrived, sender=st.sampled_from("ab"), first=st.just(0)),
    st.builds(ReadyToProcess, upto=st.integers(0, 40)),
    st.builds(StateSaved),
)


@given(st.lists(EVENTS, max_size=12), st.integers(1, 6), st.sampled_from([0, 3, 10, math.inf]))
def test_what_follows_right_on_is_numbered_as_by_an_event(
    before: list[ReceiverEvent],
    count: int,
    l: float,  # noqa: E741
) -> None:
    state = ReceiverState()

    def next_of(sender: str) -> int:
        return dict(state.heard).get(sender, 0) + 1

    for one in before:
        comes = isinstance(one, ItemsArrived | PunctuationArrived)
        event = msgspec.structs.replace(one, first=next_of(one.sender)) if comes else one
        state, _ = receive(state, event, l)
    wanted, asked = receive(state, arrived(next_of("a"), count), l)
    found, due = take_next(state, count, l)
    assert msgspec.structs.replace(found, heard=wanted.heard) == wanted
    assert due == any(isinstance(one, BackUpItems) for one in asked)
