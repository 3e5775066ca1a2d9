"""What a ledger tells of its slots: whether all that they hold is in a backup."""

from __future__ import annotations

import msgspec
import pytest

from tether.core.ids import Epoch, Failures, Lineage, Slot
from tether.core.placement import Placement
from tether.engine.messages import SlotStatus
from tether.engine.query.ledger import Ledger
from tether.policies.approximate import Approximate

STATUS = SlotStatus(
    operator="count",
    slot=Slot(0),
    epoch=Epoch(3),
    turn=0,
    attempt="a",
    executor="here",
    lineage=Lineage("one"),
    failures=Failures(0),
    losses=Failures(0),
    policy_state=b"",
    under="",
    theta=5.0,
    divergence=0.0,
    exact=True,
    rows_in=1,
    rows_out=0,
    resident_bytes=0,
    rolled_back=False,
    frame=None,
    recovery=None,
    seconds={},
)


@pytest.mark.parametrize("exact", [True, False])
def test_state_is_saved_where_its_backups_hold_it_exactly(exact):
    """A divergence of 0 does not say so: it may not see what has changed."""
    ledger = Ledger("count", 1, Approximate(5), Placement())
    assert [fact.saved for fact in ledger.glimpse().facts] == [False]  # nobody knows yet
    ledger.note({Slot(0): msgspec.structs.replace(STATUS, exact=exact)})
    assert [fact.saved for fact in ledger.glimpse().facts] == [exact]


def test_feedback_is_no_state_that_could_be_at_risk():
    ledger = Ledger("count", 1, Approximate(5, 3), Placement())
    ledger.note({Slot(0): STATUS})
    ledger.note_feedback([], 2)
    assert [fact.saved for fact in ledger.glimpse().facts] == [True, True]
