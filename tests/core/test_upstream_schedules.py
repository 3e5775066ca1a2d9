"""Upstream backup under thousands of schedules, and the same with its rules broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tether.policies.upstream_backup import UpstreamBackup
from tether.protocols.items import Acknowledge

from . import upstream_items as up
from .schedules import drive
from .small_graphs import CASES, DIAMOND, PIPELINE, Case, clean_answer, streams_of
from .upstream_run import Rules, UpstreamRun

FINAL_RULES = Rules()


def check(
    case: Case,
    seed: int,
    *,
    items: list[int],
    crashes: int = 4,
    every: float = 0.3,
    rules: Rules = FINAL_RULES,
) -> UpstreamRun:
    streams = streams_of(case, items)
    run = UpstreamRun(case, streams, UpstreamBackup(every, of_items=10), rules)
    drive(run, seed, crashes)
    assert run.answer() == clean_answer(case, streams)
    return run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    items=st.lists(st.integers(0, 9), max_size=16),
    crashes=st.integers(0, 5),
    every=st.sampled_from([0.1, 0.3, 1.0]),
)
def test_the_answer_is_the_clean_one(
    case: Case, seed: int, items: list[int], crashes: int, every: float
) -> None:
    check(case, seed, items=items, crashes=crashes, every=every)


def test_schedules_reach_what_they_are_for() -> None:
    runs = [check(case, seed, items=list(range(14))) for case in CASES for seed in range(20)]
    assert sum(run.backups for run in runs) > 100
    assert sum(run.replayed for run in runs) > 100


def acknowledges_on_receipt(inbox: up.Inbox, event: up.InboxEvent) -> Any:
    inbox, asked = up.take_numbered(inbox, event)
    if isinstance(event, up.NumberedItemsCame):
        asked = (Acknowledge(sender=event.channel, upto=event.first), *asked)
    return inbox, asked


def takes_twice(inbox: up.Inbox, event: up.InboxEvent) -> Any:
    if isinstance(event, up.NumberedItemsCame):
        inbox = replace(inbox, seen={**inbox.seen, event.channel: event.first - 1})
    return up.take_numbered(inbox, event)


def sends_before_it_logs(box: up.Outbox, event: up.OutboxEvent) -> Any:
    box, asked = up.send_logged(box, event)
    return box, asked[::-1]


def makes_again_what_is_logged(box: up.Outbox, event: up.OutboxEvent) -> Any:
    """A sender that came back numbers what it makes again from the start."""
    return up.send_logged(replace(box, made=max(box.made, box.logged)), event)


def any_order(_order: tuple[str, ...], _taken: int) -> None:
    return None


BROKEN = {
    "acknowledged before it is saved": (PIPELINE, Rules(take=acknowledges_on_receipt)),
    "duplicates are taken": (PIPELINE, Rules(take=takes_twice)),
    "sent before it is logged": (PIPELINE, Rules(send=sends_before_it_logs)),
    "outputs are numbered again": (PIPELINE, Rules(send=makes_again_what_is_logged)),
    "replayed in another order": (DIAMOND, Rules(order=any_order)),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rule_is_noticed(broken: str) -> None:
    case, rules = BROKEN[broken]

    def wrong(seed: int) -> bool:
        try:
            check(case, seed, items=list(range(14)), rules=rules)
        except AssertionError:
            return True
        return False

    assert any(wrong(seed) for seed in range(600)), f"no schedule noticed: {broken}"
