"""A backup directory that somebody else has prepared: nothing is written through what they put there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tether.backup import LocalStore, LogMark
from tether.core.errors import BackupError

from .samples import header, parts, run_epochs
from .test_stores import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir(mode=0o700)
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def use(store: LocalStore) -> None:
    """All that a query does to its store."""
    with store.lock("test"):
        if (store._root / "manifest.json").is_symlink() or (store._root / "manifest.json").exists():
            store.read_manifest()
        store.write_manifest(MANIFEST)
        assert store.read_manifest() == MANIFEST
        store.begin_commits(-1, every_epoch=True)
        run_epochs(store, "Fp")
        assert store.read_commits().sound


FILES = ["lock", "commits.log", "commits.copy", "manifest.json"]
SCRATCH = [f"{name}.tmp" for name in FILES[1:]]


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_the_place_of_a_file_is_refused(store: LocalStore, root: Path, name: str) -> None:
    victim = root.parent / "precious"
    victim.write_text("{}")
    (root / name).symlink_to(victim)
    with pytest.raises(BackupError, match=r"is a link, and could lead anywhere.*remove it"):
        use(store)
    assert victim.read_text() == "{}"
    (root / name).unlink()
    (root / name).symlink_to(root.parent / "not there")  # nor is anything created behind one
    with pytest.raises(BackupError, match="is a link"):
        use(store)
    assert not (root.parent / "not there").exists()


@pytest.mark.parametrize("name", SCRATCH)
def test_a_link_in_the_place_of_a_scratch_file_is_removed(
    store: LocalStore, root: Path, name: str
) -> None:
    victim = root.parent / "precious"
    victim.write_text("{}")
    (root / name).symlink_to(victim)
    use(store)
    assert victim.read_text() == "{}"


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_the_place_of_a_file_makes_nobody_wait(
    store: LocalStore, root: Path, name: str
) -> None:
    os.mkfifo(root / name)
    with pytest.raises(BackupError, match="not a plain file"):
        use(store)


@pytest.mark.parametrize("place", ["slots", "slots/count", "slots/count/0"])
def test_frames_are_not_written_through_a_linked_folder(
    store: LocalStore, root: Path, place: str
) -> None:
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).symlink_to(elsewhere)
    with pytest.raises(BackupError, match="is a link"):
        store.append(header(kind="full"), parts())
    assert [path for path in elsewhere.rglob("*") if path.is_file()] == []


def test_frames_are_not_dropped_through_a_linked_folder(store: LocalStore, root: Path) -> None:
    use(store)
    ref, _ = next(store.frames())
    (root / "slots").rename(root.parent / "elsewhere")
    (root / "slots").symlink_to(root.parent / "elsewhere")
    with store.lock("test"), pytest.raises(BackupError, match="is a link"):
        store.drop([found for found, _ in store.frames()])
    assert (root / ref.name).exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_directory_that_everybody_may_write_is_refused(
    store: LocalStore, root: Path, mode: int
) -> None:
    root.chmod(mode)
    with pytest.raises(BackupError, match=f"{mode:04o}.*chmod o-w"):
        store.lock("driver")
    with pytest.raises(BackupError, match="may write there"):
        store.append(header(kind="full"), parts())  # a task of an executor
    assert list(root.rglob("*.log")) == []
    use(LocalStore(root / "mine"))  # a folder in it that we make ourselves


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775, 0o2770])
def test_a_directory_of_a_user_and_their_group_is_taken(
    store: LocalStore, root: Path, mode: int
) -> None:
    root.chmod(mode)
    use(store)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(store: LocalStore, root: Path) -> None:
    os.chown(root, 4711, -1)
    with pytest.raises(BackupError, match="belongs to the user 4711"):
        store.lock("driver")
    with pytest.raises(BackupError, match="belongs to the user 4711"):
        store.append(header(kind="full"), parts())


def test_a_backup_directory_may_be_named_by_a_link_of_ones_own(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    use(LocalStore(root.parent / "link"))
    assert (root / "commits.log").exists()


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("precious"), os.mkfifo])
def test_the_mark_is_neither_read_nor_written_through_anything(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    victim = tmp_path / "precious"
    victim.write_text("{}")
    make(tmp_path / "commits.json")
    mark = LogMark(str(tmp_path), "commits.json")
    with pytest.raises(BackupError):
        mark.read()
    store = LocalStore(tmp_path / "store")
    with store.lock("test"):
        store.keep_mark(mark)  # takes its place
    assert mark.read() == store.read_commits().end
    assert victim.read_text() == "{}"
