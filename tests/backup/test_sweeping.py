from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tether.backup import LocalStore, recover_chain, sweep
from tether.core.errors import BackupUnreadableError

from .samples import header, parts, run_epochs, value_of

if TYPE_CHECKING:
    from pathlib import Path

    from tether.backup import BackupStore, FrameRef, StoreAddress


def present(store: BackupStore) -> set[FrameRef]:
    return {ref for ref, _ in store.frames()}


def test_old_generations_go_and_recovery_is_none_the_worse(address: StoreAddress) -> None:
    store = address.open()
    with store.lock("test"):
        refs = run_epochs(store, "FpFpFp")
        history = store.read_commits().history
        assert sweep(store, history, committed_epoch=4) == refs[:2]
        assert present(store) == set(refs[2:])
        assert sweep(store, history, committed_epoch=4) == []  # forgotten
        chain = recover_chain(store, history, "count", 0, before_epoch=6)
        assert [value_of(frame.parts) for frame in chain.frames] == [4, 5]


def test_frames_that_no_record_names_go_when_their_epoch_is_past(address: StoreAddress) -> None:
    store = address.open()
    with store.lock("test"):
        refs = run_epochs(store, "Fp")
        failed = store.append(header(kind="full", epoch=1, lineage="dead"), parts())
        running = store.append(header(kind="full", epoch=2, lineage="alive"), parts())
        history = store.read_commits().history
        assert sweep(store, history, committed_epoch=1) == []
        assert sweep(store, history, committed_epoch=1, orphans=True) == [failed]
        assert present(store) == {*refs, running}  # what is running may yet be committed


def test_frames_of_records_that_compaction_forgot_go_too(tmp_path: Path) -> None:
    refs = []
    for epoch, kind in enumerate("FpFpFp"):
        store = LocalStore(tmp_path, compact_bytes=10)
        with store.lock("one of many runs"):
            refs += run_epochs(store, kind, first=epoch)
    with store.lock("the last run"):
        history = store.read_commits().history
        assert history.droppable(5) == []  # nothing names them any more
        assert set(sweep(store, history, 5, orphans=True)) == set(refs[:2])
        assert present(store) == set(refs[2:])


def test_a_torn_log_that_nothing_counts_on_goes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.lock("test"):
        run_epochs(store, "F")
        torn = store.append(header(kind="full", epoch=0, lineage="killed"), parts())
        os.truncate(tmp_path / torn.name, 100)
        sweep(store, store.read_commits().history, 0, orphans=True)
        assert not (tmp_path / torn.name).exists()


def test_a_damaged_frame_that_is_committed_stays_as_evidence(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.lock("test"):
        refs = run_epochs(store, "Fp")
        data = bytearray((tmp_path / refs[0].name).read_bytes())
        data[: refs[1].offset + 50] = bytes(refs[1].offset + 50)  # both heads are gone
        (tmp_path / refs[0].name).write_bytes(data)
        assert sweep(store, store.read_commits().history, 9, orphans=True) == []
        with pytest.raises(BackupUnreadableError):
            store.read(refs[0])
        assert (tmp_path / refs[0].name).exists()
