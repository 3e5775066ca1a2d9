"""What is in the checkpoint directory of a query on Tether's state store, also a damaged one."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

import fsspec
import msgspec

BACKUP = re.compile(r"(\d+)-(\d+)-([0-9a-f]+)(?:_([0-9.E\-]+|Infinity))?\.(delta|snapshot)")
TERMS = re.compile(r"(\d+)-(\d+)-[0-9a-f]+\.terms")
MAGIC = bytes.fromhex("74455469")
TAIL_BYTES = 12
"""A checksum of 8 bytes over all before it, and the magic."""


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """One store: one partition of one stateful operator (a join may have several a partition)."""

    operator: int
    partition: int
    name: str
    backups: int
    snapshots: int
    bytes: int
    newest_version: int
    """State version of the newest backup: the number of batches that it holds."""
    divergence: str = ""
    max_state_error: float = 0.0
    theta: float = 0.0
    failures: int = 0
    spent: float = 0.0
    """What all restores so far can have lost, in units of the divergence."""
    damage: tuple[str, ...] = ()


class CheckpointReport(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint directory as it is now."""

    last_batch: int | None
    """The newest batch that Spark has committed."""
    stores: tuple[StoreReport, ...]

    @property
    def spent(self) -> float:
        """What all restores of all stores can have lost."""
        return sum(store.spent for store in self.stores)


def open_checkpoint(path: str, **options: Any) -> tuple[Any, str]:
    """The file system of a checkpoint, and the directory in it, as they are now.

    Spark writes there: a listing from before, which file systems of object stores keep, would lack that.
    """
    fs, root = fsspec.core.url_to_fs(path, **options)
    fs.invalidate_cache()
    return fs, root


def is_checkpoint(path: str, **options: Any) -> bool:
    """Whether a directory looks like the checkpoint of a stateful Spark query."""
    fs, root = open_checkpoint(path, **options)
    return bool(fs.isdir(f"{root}/offsets") and fs.isdir(f"{root}/state"))


def describe_checkpoint(path: str, *, verify: bool = False, **options: Any) -> CheckpointReport:
    """Read what a checkpoint directory says of itself; no Spark is needed.

    Args:
        path: Directory or URL, as given to ``checkpointLocation``.
        verify: Read every backup and check its checksum.
        options: Options of the file system.
    """
    fs, root = open_checkpoint(path, **options)
    commits = [name for name in _names(fs, f"{root}/commits") if name.isdigit()]
    found: dict[str, list[str]] = {}
    for file in fs.find(f"{root}/state"):
        folder, _, name = file.rpartition("/")
        if BACKUP.fullmatch(name) or TERMS.fullmatch(name):
            found.setdefault(folder, []).append(name)
    stores = [
        _describe(fs, folder, folder.removeprefix(f"{root}/state/").split("/"), names, verify)
        for folder, names in sorted(found.items())
    ]
    stores.sort(key=lambda store: (store.operator, store.partition, store.name))
    return CheckpointReport(
        last_batch=max(map(int, commits)) if commits else None, stores=tuple(stores)
    )


def _names(fs: Any, folder: str) -> list[str]:
    try:
        return [entry.rpartition("/")[2] for entry in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        return []


def _describe(
    fs: Any, folder: str, place: list[str], names: list[str], verify: bool
) -> StoreReport:
    damage: list[str] = []
    backups = sorted(name for name in names if BACKUP.fullmatch(name))
    if verify:
        damage += [f"{name}: {fault}" for name in backups if (fault := _fault(fs, folder, name))]
    terms: dict[str, Any] = {}
    for name in sorted(name for name in names if TERMS.fullmatch(name)):
        body, _, checksum = fs.cat_file(f"{folder}/{name}").decode().strip().partition("\n")
        if f"{zlib.crc32(body.encode()):08x}" == checksum:
            terms = json.loads(body)
        else:
            damage.append(f"{name}: its checksum does not match")
    losses = terms.get("losses", [])
    return StoreReport(
        operator=int(place[0]),
        partition=int(place[1]),
        name=place[2] if len(place) > 2 else "default",
        backups=len(backups),
        snapshots=sum(name.endswith(".snapshot") for name in backups),
        bytes=sum(fs.size(f"{folder}/{name}") for name in backups),
        newest_version=int(backups[-1].split("-")[0]) if backups else 0,
        divergence=terms.get("divergence", ""),
        max_state_error=float(terms.get("maxStateError", 0)),
        theta=float(terms.get("theta", 0)),
        failures=len(losses),
        spent=sum(float(loss["atMost"]) + float(loss["extra"]) for loss in losses),
        damage=tuple(damage),
    )


def _fault(fs: Any, folder: str, name: str) -> str:
    content = fs.cat_file(f"{folder}/{name}")
    body, tail = content[:-TAIL_BYTES], content[-TAIL_BYTES:]
    if not content.startswith(MAGIC) or not tail.endswith(MAGIC):
        return "it does not begin and end like a backup"
    if zlib.crc32(body) != int.from_bytes(tail[:8], "big"):
        return "its checksum does not match"
    return ""
