from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tether.backup import CommitHistory, CommitRecord, FrameRef, SlotCommit, slot_key
from tether.backup.commitcodec import decode_entry, encode_entry
from tether.backup.commits import CommitSnapshot
from tether.core.losses import LossRecord


def made(
    number: int, epoch: int, kind: str | None, failures: int = 0, divergence: float = 0.5
) -> SlotCommit:
    frame = None if kind is None else FrameRef(f"slots/op/0/{number}.frame", 0, 1)
    return SlotCommit(
        epoch=epoch,
        frame=frame,
        kind=kind,
        divergence_after=divergence,
        failures=failures,
        lineage=f"l{number}",
        policy_state=str(number).encode(),
        theta=float(number % 7),
        under=f"t{number % 2}",
        losses=(lost(number, epoch),) if failures > 2 else (),
    )


def lost(number: int, epoch: int) -> LossRecord:
    return LossRecord(
        lost=f"l{number % 5}",
        epoch=epoch,
        at_most=float(number),
        theta=1e6,
        failures=0,
        under="t0",
        extra=number / 2,
    )


def history_of(*kinds: str | None, first: int = 0) -> CommitHistory:
    return CommitHistory(
        CommitRecord(epoch=epoch, run="r", slots={"op/0": made(epoch, epoch, kind)})
        for epoch, kind in enumerate(kinds, first)
    )


def epochs(commits: list[SlotCommit]) -> list[int]:
    return [commit.epoch for commit in commits]


def test_a_chain_is_the_newest_full_frame_and_the_partial_ones_after_it() -> None:
    history = history_of("full", "partial", "full", None, "partial", None, "partial")
    assert epochs(history.chain("op", 0, before_epoch=7)) == [2, 4, 6]
    assert epochs(history.chain("op", 0, before_epoch=6)) == [2, 4]
    assert epochs(history.chain("op", 0, before_epoch=2)) == [0, 1]
    assert epochs(history.previous_generation("op", 0, before_epoch=7)) == [0, 1]
    assert history.previous_generation("op", 0, before_epoch=2) == []


def test_without_a_full_frame_all_partial_ones_count_from_the_start() -> None:
    history = history_of("partial", "partial", "full")
    assert epochs(history.chain("op", 0, before_epoch=2)) == [0, 1]
    assert epochs(history.previous_generation("op", 0, before_epoch=3)) == [0, 1]
    assert history.chain("op", 0, before_epoch=0) == []
    assert history.chain("other", 0, before_epoch=3) == []


def test_a_rerun_epoch_voids_what_it_wrote_before() -> None:
    history = history_of("full", "partial", "full", "partial")
    history.apply(CommitRecord(epoch=2, run="again", slots={"op/0": made(99, 2, "partial")}))
    assert [c.lineage for c in history.chain("op", 0, before_epoch=9)] == ["l0", "l1", "l99"]
    assert history.last_epoch == 2
    assert {ref.name for ref in history.void_frames()} == {
        "slots/op/0/2.frame",
        "slots/op/0/3.frame",
    }
    assert set(history.droppable(committed_epoch=1)) == history.void_frames()


def test_a_frame_that_is_committed_again_is_not_droppable_nor_applied_twice() -> None:
    history = history_of("full", "partial")
    again = made(1, 1, "partial")
    history.apply(CommitRecord(epoch=1, run="again", slots={"op/0": again}))
    history.apply(CommitRecord(epoch=2, run="again", slots={"op/0": again}))
    assert epochs(history.chain("op", 0, before_epoch=9)) == [0, 1]
    assert history.droppable(committed_epoch=2) == []


def test_failures_are_never_forgotten() -> None:
    history = CommitHistory()
    for epoch, failures in [(0, 0), (1, 3), (1, 1)]:
        slots = {"op/0": made(epoch, epoch, None, failures)}
        history.apply(CommitRecord(epoch=epoch, run="r", slots=slots))
    assert history.slot_facts("op", 0, before_epoch=2)[:4] == (3, "l1", b"1", None)
    assert history.slot_facts("op", 0, before_epoch=1)[:4] == (3, "l0", b"0", None)
    assert history.slot_facts("op", 0, before_epoch=0)[:4] == (3, "", b"", None)
    assert history.slot_facts("op", 1, before_epoch=9)[:4] == (0, "", b"", None)
    again = CommitHistory.from_snapshot(history.snapshot(committed_epoch=1))
    assert again.slot_facts("op", 0, before_epoch=2).failures == 3


def test_losses_whose_records_are_gone_are_not_forgotten() -> None:
    """A later record knows that there were two; the one that told of the second was damaged."""
    history = CommitHistory()
    for epoch, losses in [(1, (lost(1, 1),)), (7, ())]:
        commit = made(epoch, epoch, None)
        commit = msgspec.structs.replace(commit, losses=losses, losses_in_all=1 + (epoch > 5))
        history.apply(CommitRecord(epoch=epoch, run="r", slots={"op/0": commit}))
    for told in (history, CommitHistory.from_snapshot(history.snapshot(7))):
        first, rest = told.losses("op", 0)
        assert (first.cost, rest.cost, rest.items) == (1.5, math.inf, math.inf)
    assert history.losses("op", 1) == []


def test_of_a_slot_that_no_record_speaks_of_nothing_is_promised() -> None:
    facts = history_of("full").slot_facts("op", 0, before_epoch=0)
    assert (facts.epoch, facts.theta, facts.divergence) == (None, math.inf, math.inf)
    assert SlotCommit(epoch=0, divergence_after=0.0).theta == math.inf
    known = history_of("full", "partial").slot_facts("op", 0, before_epoch=2)
    assert (known.epoch, known.theta, known.under, known.divergence) == (1, 1.0, "t1", 0.5)


def test_a_record_that_amends_its_epoch_adds_to_it() -> None:
    """A flush after the last epoch: what the epoch committed still counts."""
    history = history_of("full", "partial", "partial")
    flush = made(50, 1, "partial")
    history.apply(CommitRecord(epoch=1, run="r", slots={"op/0": flush}, amends=True))
    assert [c.lineage for c in history.chain("op", 0, before_epoch=9)] == ["l0", "l1", "l50"]
    assert {ref.name for ref in history.void_frames()} == {"slots/op/0/2.frame"}
    again = made(60, 1, "partial")
    history.apply(CommitRecord(epoch=1, run="r", slots={"op/0": again}))
    assert [c.lineage for c in history.chain("op", 0, before_epoch=9)] == ["l0", "l60"]


def test_only_a_commit_that_says_so_makes_the_backup_exact() -> None:
    """A divergence of 0 does not: one that counts keys is 0 while their values drift."""
    history = CommitHistory()
    for epoch, exact in enumerate([True, False, True]):
        commit = made(epoch, epoch, "partial", divergence=0.0)
        slots = {"op/0": msgspec.structs.replace(commit, exact=exact)}
        history.apply(CommitRecord(epoch=epoch, run="r", slots=slots))
    exact = [history.slot_facts("op", 0, before).exact_epoch for before in range(5)]
    assert exact == [None, 0, None, 2, 2]


def test_an_uncommitted_full_frame_does_not_cost_its_elders() -> None:
    history = history_of("full", "partial", "full", "full", "full")
    # Spark has committed up to 3: epochs 2 and 3 are the two newest committed generations.
    assert [ref.name for ref in history.droppable(3)] == [
        "slots/op/0/0.frame",
        "slots/op/0/1.frame",
    ]
    assert [ref.name for ref in history.droppable(2)] == []


def test_partial_frames_before_the_only_full_one_stay() -> None:
    assert history_of("partial", "partial", "full", "partial").droppable(3) == []


def test_a_gap_matters_to_chains_that_begin_before_it_only() -> None:
    history = history_of("full", "partial")
    history.mark_gap("lost")
    old = history.chain("op", 0, 2)[0]
    assert history.lost_since(old) == ["lost"]
    assert history.lost_since(None) == ["lost"]
    history.apply(CommitRecord(epoch=3, run="r", slots={"op/0": made(3, 3, "full")}))
    assert history.lost_since(history.chain("op", 0, 4)[0]) == []
    assert history.lost_since(old) == ["lost"]
    again = CommitHistory.from_snapshot(history.snapshot(committed_epoch=3))
    assert again.gaps == ["lost"]
    assert again.lost_since(again.chain("op", 0, 4)[0]) == []
    assert again.lost_since(old) == ["lost"]


# --- the same, for any history ----------------

# A driver's life: each step runs the next epoch, restarts and runs an older one again, or adds to
# the newest one.
STEPS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 3)),  # how many epochs a restart goes back; none: amend
        st.lists(
            st.tuples(
                st.sampled_from([None, "full", "full", "partial", "partial"]),
                st.integers(0, 4),
            ),
            min_size=2,
            max_size=2,
        ),
    ),
    max_size=25,
)


def run(
    steps: list[tuple[int | None, list[tuple[str | None, int]]]], start: int = 0, first: int = 0
) -> list[CommitRecord]:
    """Records of a life that begins with epoch ``start``; names of frames begin at ``first``."""
    records: list[CommitRecord] = []
    epoch = start - 1
    for number, (back, slots) in enumerate(steps):
        amends = back is None and bool(records)
        epoch = epoch if amends else max(start, epoch + 1 - (back or 0))
        commits = {
            slot_key("op", slot): made(first + 10 * number + slot, epoch, kind, failures)
            for slot, (kind, failures) in enumerate(slots)
        }
        records.append(CommitRecord(epoch=epoch, run="r", slots=commits, amends=amends))
    return records


def voids(later: CommitRecord, earlier: CommitRecord) -> bool:
    return later.epoch < earlier.epoch or (later.epoch == earlier.epoch and not later.amends)


def naive_chain(records: list[CommitRecord], slot: int, before_epoch: int) -> list[SlotCommit]:
    """The rule as it is written down, by the book and slowly."""
    live = [
        record
        for index, record in enumerate(records)
        if not any(voids(later, record) for later in records[index + 1 :])
    ]
    chain: list[SlotCommit] = []
    for record in live:
        commit = record.slots[slot_key("op", slot)]
        if record.epoch < before_epoch and commit.kind == "full":
            chain = [commit]
        elif record.epoch < before_epoch and commit.kind == "partial":
            chain.append(commit)
    return chain


@given(STEPS, st.integers(0, 30))
def test_chains_follow_the_rule(steps: list, before_epoch: int) -> None:
    records = run(steps)
    history = CommitHistory(records)
    for slot in range(2):
        assert history.chain("op", slot, before_epoch) == naive_chain(records, slot, before_epoch)
        commits = [record.slots[f"op/{slot}"] for record in records]
        highest = max((commit.failures for commit in commits), default=0)
        assert history.slot_facts("op", slot, before_epoch).failures == highest
        # Whatever is void: each loss is in the account, once, as it was told last.
        account = {loss.lost: loss for commit in commits for loss in commit.losses}
        assert history.losses("op", slot) == list(account.values())


@given(STEPS, st.integers(-1, 30))
def test_nothing_that_recovery_can_ask_for_is_droppable(steps: list, committed: int) -> None:
    history = CommitHistory(run(steps))
    last = -1 if history.last_epoch is None else history.last_epoch
    committed = min(committed, last)
    dropped = set(history.droppable(committed))
    for slot in range(2):
        for epoch in range(committed + 1, last + 2):
            newest = history.generations("op", slot, epoch)[-2:]
            assert not dropped & {commit.frame for commits in newest for commit in commits}


@given(STEPS, st.integers(-1, 30))
def test_what_is_kept_for_good_is_two_committed_generations(steps: list, committed: int) -> None:
    """The other half: a store does not grow for ever."""
    history = CommitHistory(run(steps))
    dropped = set(history.droppable(committed))
    assert history.void_frames() <= dropped
    for slot in range(2):
        for commits in history.generations("op", slot, committed + 1)[:-2]:
            assert {commit.frame for commit in commits} <= dropped


@given(STEPS, st.integers(-1, 30), STEPS)
def test_compaction_changes_no_answer_that_can_still_be_asked(
    steps: list, committed: int, more: list
) -> None:
    records = run(steps)
    whole = CommitHistory(records)
    last = -1 if whole.last_epoch is None else whole.last_epoch
    committed = min(committed, last)
    stored = decode_entry(encode_entry(CommitHistory(records).snapshot(committed))).content
    assert isinstance(stored, CommitSnapshot)
    compacted = CommitHistory.from_snapshot(stored)
    for later in run(more, start=committed + 1, first=10_000):  # life goes on
        whole.apply(later)
        compacted.apply(later)
    assert compacted.last_epoch == whole.last_epoch
    for slot in range(2):
        for epoch in range(committed + 1, committed + 30):
            old = whole.generations("op", slot, epoch)[-2:]
            new = compacted.generations("op", slot, epoch)[-2:]
            assert new == old
            assert compacted.slot_facts("op", slot, epoch) == whole.slot_facts("op", slot, epoch)
        assert {loss.lost: loss for loss in compacted.losses("op", slot)} == {
            loss.lost: loss for loss in whole.losses("op", slot)
        }
