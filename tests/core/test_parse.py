"""Policies written as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.errors import BadValueError, TetherError
from tether.core.windows import Decaying, Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.policies.barrier import Barrier
from tether.policies.mini_batch import MiniBatch
from tether.policies.no_tolerance import NoTolerance
from tether.policies.parse import parse_policy
from tether.policies.upstream_backup import UpstreamBackup

if TYPE_CHECKING:
    from tether.policies.policy import Policy


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("none", NoTolerance()),
        ("no-tolerance", NoTolerance()),
        (" mini-batch ", MiniBatch()),
        ("upstream-backup", UpstreamBackup()),
        ("upstream-backup:state_every=0.5,of_items=1e6", UpstreamBackup(0.5, of_items=10**6)),
        ("barrier", Barrier()),
        ("barrier:interval=20epochs", Barrier(20)),
        ("barrier:interval=20", Barrier(20)),
        (
            "barrier:interval=1.5s,mode=sync,patience=3",
            Barrier(1.5, by="seconds", mode="sync", patience=3),
        ),
        ("approximate:max_state_error=1000", Approximate(1000)),
        ("approximate:max_state_error=inf", Approximate(math.inf)),
        (
            "approximate:max_state_error=1e6, max_lost_items=10,max_unacked_items=4,early=0.9",
            Approximate(1e6, 10, 4, early=0.9),
        ),
        (
            "approximate:window=hopping:60s,max_state_error=5,backup_target=0",
            Approximate(5, window=Hopping(60), backup_target=0),
        ),
        (
            "approximate:max_state_error=5,window=sliding:1e3items",
            Approximate(5, window=Sliding(1000, "items")),
        ),
        (
            "approximate:max_state_error=5,window=decaying:20epochs",
            Approximate(5, window=Decaying(20, "epochs")),
        ),
        (
            "approximate:max_state_error=5,window=sliding:1.5seconds",
            Approximate(5, window=Sliding(1.5)),
        ),
        ("approximate:max_state_error=5,window=none", Approximate(5)),
    ],
)
def test_good_text(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no policy"),
        ("exact", "no policy"),
        ("approximate", "needs max_state_error"),
        ("approximate:", "needs max_state_error"),
        ("approximate:1000", "no setting"),
        ("approximate:max_state_error=", "no setting"),
        ("approximate:max_state_error=many", "not a number"),
        ("approximate:max_state_error=-1", "negative"),
        ("approximate:max_state_error=nan", "NaN"),
        ("approximate:max_state_error=1,max_state_error=2", "twice"),
        ("approximate:max_state_error=1,max_loss=2", "no setting 'max_loss'"),
        ("approximate:max_state_error=1,window=hopping", "no window"),
        ("approximate:max_state_error=1,window=tumbling:60s", "no window"),
        ("approximate:max_state_error=1,window=hopping:60m", "no window"),
        ("approximate:max_state_error=1,window=hopping:0s", "is 0"),
        ("approximate:max_state_error=1,window=hopping:1.5epochs", "length=1.5"),
        ("approximate:max_state_error=1,window=hopping:..s", "not a number"),
        ("mini-batch:max_state_error=3", "does not take"),
        ("barrier:max_state_error=3", "no setting 'max_state_error'"),
        ("barrier:interval=soon", "no interval"),
        ("barrier:interval=0", "interval"),
        ("barrier:interval=1.5", "interval"),
        ("barrier:mode=lazy", "mode='lazy'"),
        ("barrier:patience=0.5", "less than an interval"),
        ("upstream-backup:state_every=2", "more than all"),
        ("upstream-backup:state_every=0", "is 0"),
        ("upstream-backup:of_items=0.5", "of_items"),
        ("none:x=3", "does not take"),
    ],
)
def test_bad_text_says_what_to_write(text: str, says: str) -> None:
    with pytest.raises(BadValueError, match=says) as caught:
        parse_policy(text)
    assert caught.value.do


@given(st.text() | st.text("approximate:window=hopping,123.s_ ").map("approximate:{}".format))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        policy = parse_policy(text)
    except TetherError:
        return
    assert policy.name
