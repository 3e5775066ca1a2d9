"""A disk that fails says so once to everybody who asks; nobody may take what it lost for durable."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.gateway.test_stream import crash, held, opened, rows

from tether.backup.files import write_all
from tether.sources.gateway import saving, segments
from tether.sources.gateway.config import GatewayConfig
from tether.sources.gateway.errors import StoreFailedError
from tether.sources.gateway.gateway import Gateway
from tether.sources.gateway.records import Entry, SavedRun, packed
from tether.sources.gateway.syncs import AT_A_TIME

if TYPE_CHECKING:
    from collections.abc import Callable


def run_of(first: int, items: int = 10) -> Entry:
    return Entry(runs=(SavedRun(first, "a", first, items, 8),))


def log_at(folder: Path) -> segments.SegmentLog:
    log = segments.SegmentLog(folder)
    log.read()
    log.begin(Entry())
    return log


def fails(_descriptor: int) -> None:
    raise OSError(5, "Input/output error")


def test_a_sync_does_not_take_another_ones_failure_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel does it: each open descriptor hears of a failed write once, then of success."""
    log = log_at(tmp_path / "log")
    heard: defaultdict[int, bool] = defaultdict(bool)
    consumed, report = threading.Event(), threading.Event()

    def sync(descriptor: int) -> None:
        if heard[descriptor]:
            return
        heard[descriptor] = True
        if not consumed.is_set():  # the first to hear of it is slow to say so
            consumed.set()
            assert report.wait(60)
        fails(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    elder, newer = log.write(run_of(1)), log.write(run_of(11))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(log.sync, elder)
        assert consumed.wait(60)
        with pytest.raises(StoreFailedError):
            log.sync(newer)
        report.set()
        with pytest.raises(StoreFailedError):
            slow.result()
    assert (log.facts.backed_up, log.written) == (0, 0)
    log.close()


def test_what_a_files_end_gives_up_is_not_followed_by_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_at(tmp_path / "log")
    log.write(run_of(1))
    with monkeypatch.context() as broken:
        broken.setattr(segments, "SEGMENT_BYTES", 1)
        broken.setattr(os, "fdatasync", fails)
        with pytest.raises(StoreFailedError):
            log.write(run_of(11))
    assert (log.written, log.facts.backed_up) == (0, 0)
    log.append(run_of(1))
    assert log.facts.backed_up == 10
    log.close()


def test_items_that_a_log_lacks_in_its_middle_are_told_as_lost_once(tmp_path: Path) -> None:
    """However that came about: their numbers are durable for nobody."""
    stream = opened(tmp_path, max_lost=200)
    stream.put("a", 1, rows("a", 1, 10))
    stream._items.save()
    crash(stream)
    (newest,) = sorted((tmp_path / "s").glob("segment-*.log"))[-1:]
    with newest.open("ab") as file:
        batch = rows("a", 21, 10).serialize()
        entry = Entry(runs=(SavedRun(21, "a", 21, 10, len(batch)),))
        write_all(file.fileno(), packed(entry, [batch]))
    again = opened(tmp_path, max_lost=200)
    assert again.lost is not None
    assert again.lost.at_most == 10
    assert held(again) == [f"a{number}" for number in (*range(1, 11), *range(21, 31))]
    crash(again)
    third = opened(tmp_path, max_lost=200)
    assert third.lost is None
    assert [loss.at_most for loss in third._items.account.losses] == [10]
    crash(third)


def test_who_comes_to_a_file_that_was_closed_meanwhile_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saver has seen that its entry is not durable yet; then the file's end makes it durable."""
    log = log_at(tmp_path / "log")
    written = log.write(run_of(1))
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    log.append(run_of(11))
    assert written.done
    late = threading.Thread(target=written.file.sync, daemon=True)
    late.start()
    late.join(60)
    assert not late.is_alive()
    assert len(log.sync(written)) == 1
    log.close()


def test_after_a_failure_no_sync_succeeds_before_what_was_waiting_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptor that has told of the failure reports no error to its next user."""
    log = log_at(tmp_path / "log")
    file = log.write(run_of(1)).file
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    for _ in range(AT_A_TIME + 1):
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    file.forgive()
    file.sync()
    log.close()


def test_a_failure_that_comes_late_takes_back_what_may_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry became durable with a later one's sync, while its own is told of a failure."""
    log = log_at(tmp_path / "log")
    first = log.write(run_of(1))
    later: list[segments.Written] = []

    def sync(_descriptor: int) -> None:
        monkeypatch.undo()
        log.append(run_of(11))
        later.append(log.write(run_of(21)))
        fails(_descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    assert len(log.sync(first)) == 1
    with pytest.raises(StoreFailedError):
        log.sync(later[0])
    assert (log.facts.backed_up, log.written) == (20, 20)
    log.append(run_of(21))
    log.close()


def test_what_was_cut_off_is_gone_for_good_before_the_next_file_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power cut could bring it back, beside other items of the same numbers."""
    log = log_at(tmp_path / "log")
    elder = log.write(run_of(1))
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        with pytest.raises(StoreFailedError):
            log.sync(elder)
    really, synced = os.fdatasync, list[str]()

    def sync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        really(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    log.append(run_of(1))
    names = sorted(path.name for path in (tmp_path / "log").glob("segment-*.log"))
    assert synced[0] == names[0]
    assert synced[-1] == names[1]
    log.close()


def test_nothing_is_taken_while_what_was_taken_back_still_stands_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that went read-only: after a crash they would be read under others' numbers."""
    stream = opened(tmp_path, max_lost=40)

    def read_only(_descriptor: int, _size: int) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        broken.setattr(os, "ftruncate", read_only)
        with pytest.raises(StoreFailedError):
            stream.put("a", 1, rows("a", 1, 30))
        with pytest.raises(StoreFailedError):  # though l allows it
            stream.put("b", 1, rows("b", 1, 5))
    assert stream.put("b", 1, rows("b", 1, 5)).rows == 5
    stream._items.save()
    crash(stream)
    again = opened(tmp_path, max_lost=40)
    assert held(again) == [f"b{number}" for number in range(1, 6)]
    assert again.put("a", 1, rows("a", 1, 30)).rows == 30
    crash(again)


def test_what_a_producers_save_gave_up_is_handed_over_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(tmp_path, max_lost=2000)
    items = stream._items
    asked: list[Callable[[], None]] = []
    monkeypatch.setattr(saving._threads, "submit", asked.append)
    stream.put("a", 1, rows("a", 1, 300))
    assert len(asked) == 1  # and nobody begins with it yet
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        with pytest.raises(StoreFailedError):
            items.save()
    assert items.saver.waiting(items.state.received, items.state.processed) == 300
    stream.put("a", 301, rows("a", 301, 10))
    assert len(asked) == 2
    for carry in asked:
        carry()
    assert items.log.facts.backed_up == 310
    crash(stream)


def test_one_stream_that_cannot_be_saved_does_not_keep_the_others_from_ending_well(
    tmp_path: Path,
) -> None:
    config = GatewayConfig(store=tmp_path / "store", streams={"a": "id string", "b": "id string"})
    gateway = Gateway(config)
    for name in "ab":
        gateway.stream(name).put("p", 1, rows("p", 1, 5))
    gateway.stream("a")._items.log.close()  # as if its disk took nothing more
    with pytest.raises(StoreFailedError):
        gateway.close()
    again = Gateway(config)
    assert (again.stream("a").lost.at_most, again.stream("b").lost) == (5, None)
    again.close()


def test_who_hands_over_while_the_process_ends_saves_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(_task: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    stream = opened(tmp_path, max_lost=2000)
    monkeypatch.setattr(saving._threads, "submit", ends)
    assert stream.put("a", 1, rows("a", 1, 300)).rows == 300
    assert stream._items.log.facts.backed_up == 300
    crash(stream)
