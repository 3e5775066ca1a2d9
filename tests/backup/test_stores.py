"""What holds for every kind of store."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from tether.backup import FrameHeader, FrameRef, Manifest, StoreAddress
from tether.core.errors import BackupError, BackupLockedError, BackupUnreadableError

from .samples import header, parts, record, run_epochs, value_of

if TYPE_CHECKING:
    from tether.backup import BackupStore

MANIFEST = Manifest.new(query_id="q", first_epoch=0, fingerprint={"slots": {"count": 2}})


@pytest.fixture
def store(address: StoreAddress) -> BackupStore:
    return address.open()


def test_an_unused_store_is_empty(store: BackupStore) -> None:
    assert store.read_manifest() is None
    assert store.read_commits().history.last_epoch is None
    assert store.read_commits().damaged == []
    assert list(store.frames()) == []
    assert store.bytes_used() == 0


def test_a_frame_is_read_back_by_another_process_s_store(
    store: BackupStore, address: StoreAddress
) -> None:
    head = header(kind="full", operator="word count/α", slot=3)
    ref = store.append(head, parts(8))
    elsewhere = pickle.loads(pickle.dumps(address)).open()
    for reader in (store, elsewhere, pickle.loads(pickle.dumps(store))):
        frame = reader.read(ref)
        assert frame.header == head
        assert value_of(frame.parts) == 8
    assert store.bytes_used() >= ref.length


def test_frames_of_one_slot_do_not_disturb_each_other(store: BackupStore) -> None:
    heads = [
        header(kind="full" if n % 3 == 0 else "partial", epoch=n, sequence=n, slot=n % 2)
        for n in range(8)
    ]
    refs = [store.append(head, parts(n)) for n, head in enumerate(heads)]
    assert len(set(refs)) == 8
    for n, ref in enumerate(refs):
        assert store.read(ref).header == heads[n]
        assert value_of(store.read(ref).parts) == n


def test_frames_lists_heads_and_can_be_narrowed(store: BackupStore) -> None:
    for operator in ("a", "a.b"):
        for slot in (1, 11):
            store.append(header(operator=operator, slot=slot), parts())
    # A head that is longer than what is read at first.
    store.append(header(operator="long", query="x" * 9000), {})

    def found(*which: object) -> set[tuple[str, int]]:
        heads = [head for _, head in store.frames(*which)]
        assert all(isinstance(head, FrameHeader) for head in heads)
        return {(head.operator, head.slot) for head in heads}

    assert found() == {("a", 1), ("a", 11), ("a.b", 1), ("a.b", 11), ("long", 0)}
    assert found("a") == {("a", 1), ("a", 11)}
    assert found("a.b", 1) == {("a.b", 1)}
    assert found(None, 11) == {("a", 11), ("a.b", 11)}
    assert found("none") == set()
    for ref, head in store.frames():
        assert store.read(ref).header == head


def test_a_name_is_never_overwritten(store: BackupStore) -> None:
    head = header(kind="full")
    ref = store.append(head, parts(1))
    with pytest.raises(BackupError, match="exists already"):
        store.append(head, parts(2))
    assert value_of(store.read(ref).parts) == 1


@pytest.mark.parametrize(
    "ref",
    [
        FrameRef("slots/count/0/none.frame", 0, 10),
        FrameRef("slots/count/0/../../../manifest.json", 0, 10),
        FrameRef("/etc/passwd", 0, 10),
        FrameRef("slots/count/0/nul\0.log", 0, 10),
        FrameRef("slots/count/0", 0, 10),
        FrameRef("", 0, 0),
    ],
)
def test_a_reference_to_nothing_or_outside_is_unreadable(store: BackupStore, ref: FrameRef) -> None:
    store.append(header(), parts())
    with store.lock("test"):
        store.write_manifest(MANIFEST)
    with pytest.raises(BackupUnreadableError):
        store.read(ref)


def test_a_reference_to_other_bytes_is_unreadable(store: BackupStore) -> None:
    ref = store.append(header(), parts())
    for wrong in (
        FrameRef(ref.name, ref.offset, ref.length - 1),
        FrameRef(ref.name, ref.offset, ref.length + 1),
        FrameRef(ref.name, ref.offset, 2**62),
        FrameRef(ref.name, 1, ref.length - 1),
        FrameRef(ref.name, 2**62, 8),
        FrameRef(ref.name, 0, 0),
    ):
        with pytest.raises(BackupUnreadableError):
            store.read(wrong)


def test_commits_are_read_back_in_order(store: BackupStore, address: StoreAddress) -> None:
    with store.lock("test"):
        refs = run_epochs(store, "Fpp")
        log = address.open().read_commits()
        assert log.damaged == []
        assert [c.frame for c in log.history.chain("count", 0, 9)] == refs
        assert log.history.slot_facts("count", 0, 9)[:4] == (0, "line", b"state", None)
    with store.lock("test again"):
        again = run_epochs(store, "F", first=1)
    history = address.open().read_commits().history
    assert [c.frame for c in history.chain("count", 0, 9)] == again
    assert history.void_frames() == set(refs[1:])


def test_drivers_verbs_need_the_lock(store: BackupStore) -> None:
    verbs = [
        lambda: store.append_commit(record(0)),
        lambda: store.write_manifest(MANIFEST),
        lambda: store.drop([]),
    ]
    for verb in verbs:
        with pytest.raises(BackupError, match="lock"):
            verb()
    with store.lock("test"):
        for verb in verbs:
            verb()
    for verb in verbs:
        with pytest.raises(BackupLockedError, match=r"given up|no longer held"):
            verb()


def test_a_second_holder_is_told_who_the_first_is(
    store: BackupStore, address: StoreAddress
) -> None:
    lock = store.lock("query one")
    with pytest.raises(BackupLockedError, match=r"'query one', process \d+ on .+, since 20"):
        address.open().lock("query two")
    lock.check()
    lock.release()
    lock.release()
    with address.open().lock("query two") as second:
        second.check()
        with pytest.raises(BackupLockedError):
            lock.check()


def test_the_manifest_is_read_back_and_replaced(store: BackupStore, address: StoreAddress) -> None:
    with store.lock("test"):
        store.write_manifest(MANIFEST)
        assert address.open().read_manifest() == MANIFEST
        other = Manifest.new(query_id="other", first_epoch=3, fingerprint={})
        store.write_manifest(other)
        assert address.open().read_manifest() == other


def test_backups_without_a_manifest_are_not_an_empty_store(store: BackupStore) -> None:
    store.append(header(), parts())
    with pytest.raises(BackupUnreadableError, match="no manifest"):
        store.read_manifest()


def test_dropped_frames_are_gone_and_others_stay(store: BackupStore) -> None:
    with store.lock("test"):
        old = run_epochs(store, "Fpp")
        new = run_epochs(store, "Fp", first=3)
        store.drop(old)
        store.drop(old)  # gone already: no error
        for ref in old:
            with pytest.raises(BackupUnreadableError):
                store.read(ref)
        assert [value_of(store.read(ref).parts) for ref in new] == [3, 4]
        assert {ref for ref, _ in store.frames()} == set(new)
