"""Another policy or budget at a restart: what was lost before is priced as it was promised then."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

import tether
from tether.core.errors import BackupUnreadableError
from tether.core.windows import Hopping, Sliding
from tether.policies.upstream_backup import UpstreamBackup

from .one_slot import Told, distance


@pytest.mark.parametrize(
    "later", [tether.Approximate(15), tether.Approximate(15, window=Sliding(9, "epochs"))]
)
@pytest.mark.parametrize("when", ["before the restart", "during it"])
def test_a_loss_is_priced_by_the_budget_that_it_happened_under(made, later, when):
    slot = made(tether.Approximate(1200))
    slot.epoch([[1] * 600])
    if when == "before the restart":
        slot.lose_state()
        slot.epoch([])
        slot.restart(later)
    else:
        slot.lose_state()
        slot.restart(later)
        assert slot.ledger.bound().at_risk == 600  # it may be lost, and nobody knows yet
        slot.epoch([])
    now = slot.ledger.bound()
    assert now.spent == 600
    assert now.holds
    slot.restart()
    assert slot.ledger.bound().spent == 600


def test_a_larger_budget_pays_for_what_was_lost_under_a_smaller_one(made):
    slot = made(tether.Approximate(40))
    slot.epoch([[1] * 20])
    slot.lose_state()
    slot.epoch([])
    slot.restart(tether.Approximate(4000))
    now = slot.ledger.bound()
    assert (now.spent, now.extra, now.ceiling) == (20, 0, 4000)
    assert slot.epoch([[1]]).theta == 1000  # of 4000, half and halved for the loss


def test_an_exact_policy_does_not_forget_what_was_lost_before_it(made):
    slot = made(tether.Approximate(1200))
    slot.epoch([[1] * 600])
    slot.lose_state()
    slot.epoch([[2]])
    slot.restart(tether.MiniBatch())
    slot.epoch([[2]])
    now = slot.ledger.bound()
    assert (now.promised, now.spent, now.at_risk, now.ceiling) == (0, 600, 0, 600)
    slot.restart(tether.Approximate(1200))
    now = slot.ledger.bound()
    assert (now.spent, now.extra, now.ceiling) == (600, 0, 1200)
    # The budget has paid for that loss, and goes on with what is left of it.
    assert slot.epoch([]).theta == 300


@pytest.mark.parametrize("backs_up_first", [True, False])
def test_a_state_that_was_lost_at_the_change_to_an_exact_policy_is_not_called_exact(
    made, backs_up_first
):
    slot = made(tether.Approximate(100))
    if backs_up_first:
        slot.epoch([[1] * 80])
        slot.epoch([])
    slot.epoch([[1] * 25])
    lost = slot.counts()
    slot.lose_state()
    slot.restart(tether.MiniBatch())
    status = slot.epoch([])
    assert not status.recovery.exact
    error = distance(lost, slot.counts())
    assert error <= slot.ledger.bound().spent == status.recovery.bound
    # From here on it is exact again.
    slot.epoch([[3]])
    slot.lose_state()
    assert slot.epoch([]).recovery.exact


def test_failures_of_a_windowed_policy_are_not_taken_for_all_by_one_without(made):
    slot = made(tether.Approximate(40, window=Hopping(2, "epochs")))
    slot.epoch([[1]])
    slot.lose_state()
    for _ in range(4):
        status = slot.epoch([])
    assert status.theta == 20  # the loss is in no window any more
    slot.restart(tether.Approximate(40))
    assert slot.epoch([]).theta == 10  # but it is in the whole stream


def test_places_in_a_window_of_another_unit_mean_nothing(made):
    """Row 0 of a window by items is not epoch 0 of one by epochs, long past."""
    slot = made(tether.Approximate(40, window=Sliding(100, "items")))
    for _ in range(9):
        slot.epoch([])
    slot.epoch([[1]])
    slot.lose_state()
    slot.epoch([])
    slot.restart(tether.Approximate(40, window=Sliding(3, "epochs")))
    assert [slot.epoch([]).theta for _ in range(4)] == [10, 10, 10, 20]


class KeysOnly(Told):
    """Its divergence counts keys: values may drift while it is 0."""

    def setup(self, state):
        shape = ({"k": pa.int64()}, {"n": "int64"})
        self.seen = state.table("seen", *shape, divergence="count")


def test_terms_that_change_are_recorded_also_where_the_threshold_does_not(made):
    """θ is 0 under both; but approximate does not save values that the divergence does not see."""
    slot = made(tether.MiniBatch(), KeysOnly())
    slot.epoch([[1]])
    slot.restart(tether.Approximate(0))
    slot.epoch([])  # writes a whole backup: what is durable under it may be less than it seems
    slot.epoch([[1] * 5])
    slot.restart(tether.MiniBatch())
    slot.lose_state()
    status = slot.epoch([])
    assert slot.counts()[1] < 6
    assert not status.recovery.exact


def test_rows_logged_under_other_terms_are_not_taken_for_all_rows(made):
    """Upstream backup, approximate, upstream backup: epochs in between are in no log."""
    slot = made(UpstreamBackup(1.0, of_items=1000))
    slot.epoch([[1] * 5])
    slot.restart(tether.Approximate(100))
    slot.epoch([])  # a whole backup
    slot.epoch([[2] * 5])
    slot.restart(UpstreamBackup(1.0, of_items=1000))
    slot.lose_state()
    with pytest.raises(BackupUnreadableError, match="cannot be restored exactly"):
        slot.run(3, [[3]])


def test_upstream_backup_begins_with_a_whole_backup_of_what_it_takes_over(made):
    slot = made(tether.Approximate(100))
    slot.epoch([[1] * 5])
    slot.restart(UpstreamBackup(1.0, of_items=1000))
    assert slot.epoch([]).frame.kind == "full"
    slot.epoch([[2]])
    slot.lose_state()
    status = slot.epoch([[3]])
    assert status.recovery.exact
    assert slot.counts() == {1: 5, 2: 1, 3: 1}


def test_nothing_is_known_of_what_upstream_backup_had_not_saved(made):
    """Approximate does not replay logged rows; the loss has no bound, and says so."""
    slot = made(UpstreamBackup(1.0, of_items=1000))
    slot.epoch([[1] * 300])
    slot.epoch([[1] * 200])
    slot.lose_state()
    slot.restart(tether.Approximate(10))
    slot.epoch([])
    assert slot.ledger.bound().spent == math.inf


def test_a_stop_in_good_order_makes_any_change_of_policy_exact(made):
    policies = [
        tether.Approximate(10),
        UpstreamBackup(),
        tether.MiniBatch(),
        tether.Approximate(1000),
    ]
    slot = made(tether.Approximate(1000))
    for turn, policy in enumerate(policies):
        slot.epoch([[turn] * 30])
        slot.flush()
        slot.lose_state()
        slot.restart(policy)
        assert slot.epoch([]).recovery.exact
    assert slot.ledger.bound().spent == 0
    assert slot.counts() == dict.fromkeys(range(4), 30)
