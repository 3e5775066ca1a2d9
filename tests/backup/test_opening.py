from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from tether.backup import LocalStore, ObjectStore, StoreAddress, open_store
from tether.backup.framecodec import decode_frame
from tether.core.errors import BackupError, BadValueError, TetherError

from .samples import header, parts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "FILE://{}"])
def test_paths_and_file_urls_are_directories(tmp_path: Path, form: str) -> None:
    store = open_store(form.format(tmp_path / "x"))
    assert isinstance(store, LocalStore)
    ref = store.append(header(), parts())
    assert (tmp_path / "x" / ref.name).exists()


def test_a_relative_path_means_the_same_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(open_store("here"))
    monkeypatch.chdir("/")
    pickle.loads(sent).append(header(), parts())
    assert (tmp_path / "here" / "slots").is_dir()


def test_a_file_url_may_hold_escapes(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/a%20b").append(header(), parts())
    assert (tmp_path / "a b").is_dir()


def test_other_urls_are_object_stores() -> None:
    assert isinstance(open_store("memory://somewhere"), ObjectStore)


@pytest.mark.parametrize("url", ["", "zork://x", "a\0b"])
def test_what_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(BadValueError, match="not a place"):
        open_store(url)


def test_a_missing_package_is_named() -> None:
    pytest.importorskip("fsspec")
    try:
        import gcsfs  # noqa: F401
    except ImportError:
        with pytest.raises(BackupError, match="gcsfs"):
            open_store("gs://bucket/x")
    else:
        pytest.skip("gcsfs is installed here")


def test_a_directory_takes_no_storage_options(tmp_path: Path) -> None:
    with pytest.raises(TetherError, match="takes no storage options"):
        open_store(str(tmp_path), storage_options={"key": "x"})


def test_looking_at_a_store_creates_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "x"))
    store.read_manifest()
    store.read_commits()
    list(store.frames())
    assert list(tmp_path.iterdir()) == []


def test_compression_is_the_caller_s_to_choose(tmp_path: Path) -> None:
    sizes = {}
    for compression in ("none", "lz4", "zstd"):
        address = StoreAddress(url=str(tmp_path / compression), compression=compression)
        ref = address.open().append(header(), parts(rows=2000))
        sizes[compression] = ref.length
        data = (tmp_path / compression / ref.name).read_bytes()
        assert decode_frame(data).parts["table"][0].num_rows == 2000
    assert sizes["none"] > sizes["lz4"] > sizes["zstd"]
    packed = open_store("memory://packed", compression="none").append(header(), parts(rows=2000))
    assert packed.length == sizes["none"]


def test_secrets_are_not_shown() -> None:
    address = StoreAddress(url="memory://x", storage_options={"secret": "hush"})
    assert "hush" not in repr(address)
    assert "hush" not in repr(StoreAddress(url="memory://x").open())
