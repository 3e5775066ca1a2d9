from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.backup import (
    BackupStore,
    CommitHistory,
    CommitRecord,
    Frame,
    FrameRef,
    LocalStore,
    SlotCommit,
    recover_chain,
)
from tether.core.errors import BackupError, BackupUnreadableError

from .samples import commit, flip, header, parts, record, run_epochs, value_of

if TYPE_CHECKING:
    from pathlib import Path

    from tether.backup import StoreAddress


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def damage(store: LocalStore, ref: FrameRef) -> None:
    flip(store._root / ref.name, ref.offset + ref.length // 2)


def values(frames: list[Frame]) -> list[int]:
    return [value_of(frame.parts) for frame in frames]


def test_a_slot_is_restored_from_its_newest_chain(address: StoreAddress) -> None:
    store = address.open()
    with store.lock("test"):
        run_epochs(store, "pFppFpp")
    history = address.open().read_commits().history
    chain = recover_chain(address.open(), history, "count", 0, before_epoch=6)
    assert values(chain.frames) == [4, 5]
    assert (chain.unreadable, chain.extra_bound) == ([], 0.0)
    assert recover_chain(store, history, "count", 1, before_epoch=6) == ([], [], 0.0)


def test_an_unreadable_partial_frame_is_passed_over(store: LocalStore) -> None:
    with store.lock("test"):
        refs = run_epochs(store, "Fpp")
    damage(store, refs[1])
    chain = recover_chain(store, store.read_commits().history, "count", 0, 9)
    assert values(chain.frames) == [0, 2]
    assert chain.extra_bound == 10.0
    ((ref, why),) = chain.unreadable
    assert ref == refs[1]
    assert "checksum" in why


def test_an_unreadable_full_frame_makes_the_one_before_the_base(store: LocalStore) -> None:
    with store.lock("test"):
        refs = run_epochs(store, "FpFp")
    damage(store, refs[2])
    chain = recover_chain(store, store.read_commits().history, "count", 0, 9)
    # Partial frames hold whole entries, so the newer one still applies on the older base.
    assert values(chain.frames) == [0, 1, 3]
    assert chain.extra_bound == 100.0
    assert [ref for ref, _ in chain.unreadable] == [refs[2]]


def test_the_start_of_a_query_is_a_base_if_nothing_of_it_was_dropped(store: LocalStore) -> None:
    with store.lock("test"):
        refs = run_epochs(store, "ppF")
    damage(store, refs[2])
    chain = recover_chain(store, store.read_commits().history, "count", 0, 9)
    assert values(chain.frames) == [0, 1]
    assert chain.extra_bound == 100.0


def test_with_nothing_older_the_error_says_so(store: LocalStore) -> None:
    with store.lock("test"):
        refs = run_epochs(store, "Fp")
    damage(store, refs[0])
    with pytest.raises(BackupUnreadableError, match="nothing older exists") as caught:
        recover_chain(store, store.read_commits().history, "count", 0, 9)
    assert refs[0].name in str(caught.value)


def test_a_store_that_cannot_be_asked_is_not_a_damaged_one(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.lock("test"):
        run_epochs(store, "Fp")

    def refuse(ref: FrameRef) -> Frame:
        raise BackupError("no rights")

    monkeypatch.setattr(store, "read", refuse)
    with pytest.raises(BackupError, match="no rights"):
        recover_chain(store, store.read_commits().history, "count", 0, 9)


def test_lost_commit_records_make_the_bound_unknown_until_the_next_full_frame(
    store: LocalStore,
) -> None:
    log = store._root / "commits.log"
    with store.lock("test"):
        run_epochs(store, "F")
        start = log.stat().st_size
        run_epochs(store, "pp", first=1)
        for copy in (log, log.with_name("commits.copy")):
            flip(copy, start + 50)
        chain = recover_chain(store, store.read_commits().history, "count", 0, 9)
        assert values(chain.frames) == [0, 2]
        assert chain.extra_bound == math.inf
        assert "checksum" in chain.unreadable[0][1]
        run_epochs(store, "F", first=3)
        chain = recover_chain(store, store.read_commits().history, "count", 0, 9)
        assert (values(chain.frames), chain.unreadable, chain.extra_bound) == ([3], [], 0.0)


def test_a_frame_that_is_not_the_one_committed_is_not_used(store: LocalStore) -> None:
    mine = header(kind="full", epoch=0)
    theirs = store.append(header(kind="full", slot=1, epoch=0), parts(66))
    late = store.append(header(kind="partial", epoch=5), parts(77))
    with store.lock("test"):
        own = store.append(mine, parts(0))
        store.append_commit(record(0, count=commit(own, mine)))
        stray = header(kind="partial", epoch=1, carried=3.0)
        store.append_commit(record(1, count=commit(theirs, stray)))
        store.append_commit(record(2, count=commit(late, stray)))
    chain = recover_chain(store, store.read_commits().history, "count", 0, before_epoch=5)
    assert values(chain.frames) == [0]
    assert chain.extra_bound == 6.0
    assert "slot 1" in chain.unreadable[0][1]
    assert "epoch 5" in chain.unreadable[1][1]


# --- the bound holds, whatever is damaged ----------------


class Shelf:
    """As much of a store as recovery asks for, in memory, with frames broken at will."""

    def __init__(self) -> None:
        self.frames: dict[FrameRef, tuple[str, dict[str, float], int]] = {}
        self.broken: set[FrameRef] = set()

    def read(self, ref: FrameRef) -> Frame:
        if ref in self.broken:
            raise BackupUnreadableError("broken", why="broken")
        kind, state, epoch = self.frames[ref]
        return Frame(header(kind=kind, epoch=epoch), state)  # type: ignore[arg-type]


FRAMES = st.lists(
    st.tuples(
        st.sampled_from(["full", "partial", "partial"]),
        st.dictionaries(st.sampled_from("abcd"), st.integers(-9, 9).map(float)),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=150)
@given(FRAMES)
def test_the_restored_state_is_within_the_extra_bound(
    life: list[tuple[str, dict[str, float], bool]],
) -> None:
    shelf, history = Shelf(), CommitHistory()
    live: dict[str, float] = dict.fromkeys("abcd", 0.0)
    durable = dict(live)
    for epoch, (kind, changes, broken) in enumerate(life):
        live |= changes
        saved = dict(live) if kind == "full" else changes
        carried = sum(abs(saved[key] - durable[key]) for key in saved)
        durable |= saved
        ref = FrameRef(f"slots/count/0/{epoch}.frame", 0, 1)
        shelf.frames[ref] = (kind, saved, epoch)
        if broken:
            shelf.broken.add(ref)
        made = SlotCommit(epoch=epoch, frame=ref, kind=kind, carried=carried, divergence_after=0.0)  # type: ignore[arg-type]
        history.apply(CommitRecord(epoch=epoch, run="r", slots={"count/0": made}))
    store: BackupStore = shelf  # type: ignore[assignment]
    try:
        chain = recover_chain(store, history, "count", 0, len(life))
    except BackupUnreadableError:
        assert life[0][0] == "full"
        assert all(broken for kind, _, broken in life if kind == "full")
        return
    restored: dict[str, float] = dict.fromkeys("abcd", 0.0)
    for frame in chain.frames:
        restored |= frame.parts  # type: ignore[arg-type]
    distance = sum(abs(restored[key] - durable[key]) for key in "abcd")
    assert distance <= chain.extra_bound
    if not chain.unreadable:
        assert distance == 0
