"""Exchanges: numbered, whole or not at all, each epoch once, trimmed when all have read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.samples import ABOUT, Written, batch

from tether.core.errors import (
    BackupError,
    BackupLockedError,
    BackupUnreadableError,
    BadValueError,
    StaleOutputError,
)
from tether.sources.exchange.entries import RowId
from tether.sources.exchange.files import read_file, write_files
from tether.sources.exchange.log import About, ExchangeAddress
from tether.sources.exchange.readers import forget_reader, known_readers, note_reader, trim_read
from tether.sources.exchange.view import rows_between

if TYPE_CHECKING:
    from tether.sources.exchange.entries import Entry


@pytest.fixture(params=["local", "memory", "s3"])
def exchange(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    if request.param == "local":
        return Written(str(tmp_path / "x"))
    name = uuid.uuid4().hex
    if request.param == "memory":
        return Written(f"memory://{name}")
    return Written(f"s3://backups/{name}", request.getfixturevalue("s3_options"))


@pytest.fixture
def local(tmp_path: Path) -> Written:
    return Written(str(tmp_path / "x"))


def rows_of(exchange: Written, entries: list[Entry], **between: Any) -> list[tuple[int, int]]:
    found = []
    for wanted in rows_between(entries, **between):
        table, _ = read_file(exchange.log.folder, wanted, ["v"])
        found += list(zip(table["_tuple_time"].to_pylist(), table["v"].to_pylist(), strict=True))
    return found


def everything(exchange: Written, *, tentative: bool = False) -> list[tuple[int, int]]:
    entries = list(exchange.log.entries(exchange.log.first()))
    return rows_of(exchange, entries, first=-(2**60), end=2**60, tentative=tentative)


def test_epochs_come_back_in_order_with_their_boundaries(exchange: Written) -> None:
    exchange.add(0, [(3, 30), (1, 10)], 2)
    exchange.add(1, [(4, 40)], 4)
    assert everything(exchange) == [(1, 10), (3, 30), (4, 40)]
    assert [(e.number, e.epoch, e.boundary) for e in exchange.log.entries(0)] == [
        (0, 0, 2),
        (1, 1, 4),
    ]
    assert exchange.log.entry(2) is None


def test_an_epoch_that_is_run_again_is_there_once_also_after_a_restart(exchange: Written) -> None:
    assert exchange.add(0, [(1, 10)], 1)
    assert not exchange.add(0, [(1, 10)], 1)
    exchange.reopened()
    assert not exchange.add(0, [(1, 10)], 1)
    assert exchange.add(1, [(2, 20)], 2)
    assert everything(exchange) == [(1, 10), (2, 20)]
    named = {file.name for entry in exchange.log.entries(0) for file in entry.files}
    assert set(exchange.log.folder.sizes("data")) == named  # nothing of the second runs is left


def test_rows_older_than_a_boundary_are_kept_at_the_boundary(exchange: Written) -> None:
    exchange.add(0, [(10, 1)], 10)
    exchange.add(1, [(4, 2), (12, 3)], 12)
    assert everything(exchange) == [(10, 1), (10, 2), (12, 3)]
    assert [entry.late for entry in exchange.log.entries(0)] == [0, 1]


def test_stable_rows_withdraw_the_tentative_ones_before_them(exchange: Written) -> None:
    exchange.add(0, [(1, 10)], 2)
    exchange.add(1, [(2, 21)], 4, "tentative")
    exchange.add(2, [(4, 41)], 6, "tentative")
    assert everything(exchange, tentative=True) == [(1, 10), (2, 21), (4, 41)]
    exchange.add(3, [(2, 20), (3, 30)], 4)
    assert everything(exchange, tentative=True) == [(1, 10), (4, 41), (2, 20), (3, 30)]
    exchange.add(4, [(4, 40)], 6)
    assert everything(exchange, tentative=True) == [(1, 10), (2, 20), (3, 30), (4, 40)]
    first, last = list(exchange.log.entries(3))
    assert first.undo is not None
    assert (first.undo.after, first.undo.before, first.done) == (RowId(epoch=0, row=0), 4, False)
    assert last.done


def test_a_new_failure_before_all_is_corrected_is_marked_once(exchange: Written) -> None:
    """The forced REC_DONE: what follows is of another failure, what was before still tentative."""
    exchange.add(0, [(1, 10)], 2)
    exchange.add(1, [(2, 21)], 4, "tentative", failing=True)
    exchange.add(2, [(4, 41)], 6, "tentative", failing=True)
    exchange.add(3, [(2, 20), (3, 30)], 4)  # corrections have begun
    exchange.add(4, [(6, 61)], 7, "tentative")  # and new rows come beside them
    exchange.reopened()
    exchange.add(5, [(7, 71)], 8, "tentative", failing=True)
    exchange.add(6, [(8, 81)], 9, "tentative", failing=True)
    assert [entry.forced for entry in exchange.log.entries(0)] == [
        number == 5 for number in range(7)
    ]
    assert everything(exchange, tentative=True)[1:] == [
        (4, 41),
        (2, 20),
        (3, 30),
        (6, 61),
        (7, 71),
        (8, 81),
    ]
    exchange.add(7, [(4, 40), (6, 60), (7, 70), (8, 80)], 9)
    assert next(iter(exchange.log.entries(7))).done
    exchange.add(8, [(9, 91)], 10, "tentative", failing=True)  # a failure of its own
    assert not next(iter(exchange.log.entries(8))).forced


def test_what_is_taken_back_must_come_again_as_it_was(exchange: Written) -> None:
    exchange.add(0, [(1, 10)], 2)
    exchange.add(1, [(2, 20)], 3)
    exchange.add(2, [(3, 31)], 4, "tentative")
    exchange.writer.take_back(1)
    assert everything(exchange, tentative=True) == [(1, 10), (2, 20)]
    assert not exchange.add(1, [(2, 20)], 3)
    assert exchange.add(2, [(3, 30)], 4)
    assert everything(exchange, tentative=True) == [(1, 10), (2, 20), (3, 30)]
    with pytest.raises(StaleOutputError, match="came again with other rows"):
        exchange.add(1, [(2, 99)], 3)


def test_another_query_is_refused(exchange: Written) -> None:
    exchange.add(0, [(1, 10)], 1)
    with pytest.raises(BackupLockedError, match="belongs to another query"):
        exchange.reopened("other")


def test_of_two_writers_one_is_told(exchange: Written) -> None:
    first = exchange.writer
    exchange.reopened()
    exchange.add(0, [(1, 10)], 1)
    with pytest.raises(BackupLockedError, match="Another query writes"):
        first.add(0, "stable", exchange.keep(0, [(1, 11)], 1))
    assert everything(exchange) == [(1, 10)]


def test_other_columns_are_refused(exchange: Written) -> None:
    with pytest.raises(BadValueError, match="has other rows"):
        exchange.log.create(About(row_schema=ABOUT.row_schema, unit="microseconds"))


def test_entries_go_once_all_known_readers_have_them(exchange: Written) -> None:
    for epoch in range(5):
        exchange.add(epoch, [(epoch, epoch)], epoch)
    assert trim_read(exchange.log) == 0  # nobody is known: somebody may come
    note_reader(exchange.log, "slow", 1)
    note_reader(exchange.log, "quick", 4)
    assert known_readers(exchange.log) == {"slow": 1, "quick": 4}
    assert trim_read(exchange.log) == 1
    assert exchange.log.first() == 1
    forget_reader(exchange.log, "slow")
    assert trim_read(exchange.log) == 3
    assert everything(exchange) == [(4, 4)]
    assert len(exchange.log.folder.sizes("data")) == 1
    with pytest.raises(BackupUnreadableError, match="is gone"):
        exchange.log.entry(2)
    assert not exchange.reopened().heartbeat(4)  # a writer goes on where the log ends
    assert exchange.writer.heartbeat(5)
    assert exchange.log.entry(5) is not None


def test_a_note_that_cannot_be_read_keeps_everything(local: Written) -> None:
    local.add(0, [(1, 1)], 1)
    note_reader(local.log, "r", 1)
    Path(local.log.url, "readers", "r.json").write_bytes(b'{"needs": 1')
    assert trim_read(local.log) == 0


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a" * 101])
def test_names_of_readers_are_names_of_files(local: Written, name: str) -> None:
    with pytest.raises(BadValueError, match="cannot name a reader"):
        note_reader(local.log, name, 0)


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_damaged_entry_is_never_read_as_good(local: Written, cut: int) -> None:
    local.add(0, [(1, 1)], 1)
    path = Path(local.log.url, "entries", "000000000000.json")
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] if cut >= 0 else whole.replace(b'"boundary": 1', b'"boundary": 9'))
    with pytest.raises(BackupUnreadableError, match="damaged"):
        local.log.entry(0)


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damaged_rows_are_never_read_as_good(local: Written, damage: str) -> None:
    local.add(0, [(1, 1), (2, 2)], 1)
    (path,) = Path(local.log.url, "data").iterdir()
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:-1] if damage == "cut" else whole[:50] + b"\0\1" + whole[52:])
    with pytest.raises(BackupUnreadableError, match="cannot be read"):
        everything(local)


def test_rows_without_a_time_are_refused(local: Written) -> None:
    with pytest.raises(BadValueError, match="no tuple time"):
        list(
            write_files(
                local.log.folder, [batch([None], [1])], epoch=0, task=0, floor=None, keep_hash=False
            )
        )


def test_a_folder_that_anybody_may_write_to_is_refused(local: Written) -> None:
    Path(local.log.url).chmod(0o777)
    with pytest.raises(BackupError, match="Every user of the machine"):
        local.add(0, [(1, 1)], 1)


KILLED = """
import sys
sys.path[:0] = {paths!r}
from tests.sources.samples import Written
written = Written({url!r})
epoch = len(list(written.log.entries(0)))
print("ready", flush=True)
while True:
    written.add(epoch, [(epoch, epoch)] * 50, epoch)
    epoch += 1
"""


@pytest.mark.chaos
def test_a_killed_writer_leaves_whole_epochs_only(local: Written) -> None:
    """SIGKILL at random moments: a prefix of epochs is there, and the next writer goes on after it."""
    program = KILLED.format(paths=sys.path, url=local.log.url)
    for _ in range(2):
        before = len(list(local.log.entries(0)))
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        while local.log.entry(before + 3) is None:
            assert child.poll() is None
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        entries = list(local.log.entries(0))
        assert [entry.epoch for entry in entries] == list(range(len(entries)))
        assert everything(local) == [(e.epoch, e.epoch) for e in entries for _ in range(50)]


def test_an_address_keeps_its_secrets() -> None:
    assert "hidden" not in repr(ExchangeAddress(url="s3://b/x", options={"key": "hidden"}))
