"""A small query's directories, every way to damage them, and whether the query then told the truth."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import LongType, StructType

import tether
from tether.core.errors import TetherError
from tether.engine.slot.residents import attached
from tether.state.identity import Owner
from tether.testing.fuzz.meaning import home
from tether.testing.inprocess import EpochSource, LocalSession
from tether.testing.inprocess.writers import settle_writers
from tether.testing.oracle import content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tether.policies.policy import Policy
    from tether.spark.query import Query

SCHEMA = pa.schema([("k", pa.int64())])
EPOCHS = [[n % 5, n, n, 3 * n % 7, 2] for n in range(10)]
CUT, LAST = 4, 7
"""The early copy is taken after so many epochs, and the driver dies after so many."""
SLOTS = 2

POLICIES: dict[str, Policy] = {
    "approximate": tether.Approximate(12),
    "mini-batch": tether.MiniBatch(),
    "upstream-backup": tether.UpstreamBackup(0.3, of_items=30),
    "barrier": tether.Barrier(3),
    "barrier-sync": tether.Barrier(2, mode="sync"),
}


class Count(tether.Operator):
    """Counts keys."""

    output = StructType().add("k", LongType()).add("n", LongType())

    def setup(self, state: Any) -> None:
        self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch: Any, out: Any) -> None:
        self.seen.add(batch.select(["k"]), n=1)


def is_objects(work: Path) -> bool:
    """Whether the backup is to be kept as objects; fsspec takes any file system for an object store."""
    return (work / "objects").exists()


def started(work: Path, policy: Policy, **options: Any) -> tuple[Query, EpochSource]:
    rows = [pa.RecordBatch.from_pydict({"k": keys}, SCHEMA) for keys in EPOCHS]
    source = EpochSource(LocalSession(home), rows, SCHEMA)
    query = (
        tether.stream(source, replays=True)
        .apply(Count(), key="k", parallelism=SLOTS)
        .start(
            lambda rows, epoch: None,
            tolerance=policy,
            **(
                {"backup": f"local://{work}/backup", "backup_options": {"auto_mkdir": True}}
                if is_objects(work)
                else {"backup": str(work / "backup")}
            ),
            checkpoint=str(work / "checkpoint"),
            arena_dir=str(work / "arena"),
            **options,
        )
    )
    return query, source


def lived(work: Path, policy: Policy, *, dies: bool = True) -> None:
    """Let a query run up to an epoch, in a process that is then killed; with an early copy of all."""
    pid = os.fork()
    if pid == 0:
        try:
            query, source = started(work, policy)
            for epochs in (CUT, LAST):
                source.available = epochs
                query.processAllAvailable()
                settle_writers(())
                if epochs == CUT:
                    shutil.copytree(work, work.with_name("early"))
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            query.stop()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert status == (signal.SIGKILL if dies else 0)
    # The lease of a dead driver runs out in time.
    for folder in (work, work.with_name("early")):
        (folder / "backup" / "lock.json").unlink(missing_ok=True)


class Verdict(NamedTuple):
    """How a query went on with damaged directories."""

    error: int = 0
    """How far its answer is from the truth, in l1."""
    spent: float = 0.0
    """How far it said that this could be."""
    refused: str = ""
    """What it said, where it did not go on."""

    @property
    def true(self) -> bool:
        return bool(self.refused) or 0 <= self.error <= self.spent


def gone_on(work: Path, policy: Policy, *, epochs: int = len(EPOCHS), **options: Any) -> Verdict:
    """Start the query again and let it run so far."""
    query = None
    try:
        query, source = started(work, policy, **options)
        source.available = epochs
        query.processAllAvailable()
        settle_writers(())
        truth = Counter(key for keys in EPOCHS[:epochs] for key in keys)
        answer = _counts(query, epochs)
        keys = truth.keys() | answer.keys()
        error = sum(abs(truth[key] - answer.get(key, 0)) for key in keys)
        return Verdict(error, query.bound().spent)
    except TetherError as refusal:
        # An error that does not say what to do is no refusal, but a failure.
        clear = refusal.why and refusal.do
        return Verdict(refused=str(refusal) if clear else "", error=0 if clear else -1)
    finally:
        if query is not None:
            query.stop()


def _counts(query: Query, epochs: int) -> dict[int, int]:
    counts: dict[int, int] = {}
    for runner in query._driver.runners:
        for name, operator in runner.books.operators.items():
            program = runner.orders.program(name, epochs, 0)
            for slot in range(operator.slots):
                with attached(program, slot, Owner.of(os.getpid())) as resident:
                    assert resident.found, resident.reason
                    assert resident.state.version == epochs - 1
                    found = content(resident.state["seen"])
                    counts |= {key: values["n"] for (key,), values in found.items()}
    return counts


# ---- damage --------------------------------------------------------------------------------------


class Damage(NamedTuple):
    """One way to damage directories."""

    what: str
    do: Callable[[Path, Path], None]
    """Given the directories, and an early copy of them."""


def files_of(work: Path) -> list[str]:
    """All files of Tether's, by name; Spark's own are Spark's to keep."""
    places = [work / "backup", work / "checkpoint" / "tether"]
    found = [path for place in places for path in place.rglob("*") if path.is_file()]
    found = [path for path in found if path.suffix != ".feed"]  # nothing is restored from those
    return sorted(path.relative_to(work).as_posix() for path in found)


def flips(work: Path, stride: int = 1, bits: tuple[int, ...] = (0, 4, 7)) -> Iterator[Damage]:
    """A flipped bit at every place of every file."""
    for name in files_of(work):
        for position in range(0, (work / name).stat().st_size, stride):
            bit = bits[position // stride % len(bits)]
            yield Damage(
                f"bit {bit} of byte {position} of {name} flipped", _flip(name, position, bit)
            )


def cuts(work: Path, stride: int = 1) -> Iterator[Damage]:
    """Every file cut at every place."""
    for name in files_of(work):
        for length in range(0, (work / name).stat().st_size, stride):
            yield Damage(f"{name} cut to {length} bytes", _cut(name, length))


def to_one_file(work: Path, early: Path) -> Iterator[Damage]:
    """A file that is gone, exchanged, doubled, grown, or of another time."""
    names = files_of(work)
    for name in names:
        yield Damage(f"{name} deleted", lambda at, _, name=name: (at / name).unlink())
        yield Damage(f"{name} empty", lambda at, _, name=name: (at / name).write_bytes(b""))
        yield Damage(f"{name} grown by zeros", _append(name, bytes(5000)))
        yield Damage(f"{name} grown by garbage", _append(name, b"TETHCM\2garbage" * 9))
        yield Damage(f"{name} twice as long", lambda at, _, name=name: _double(at / name))
        if (early / name).exists():
            yield Damage(f"{name} of an earlier time", _older([name]))
        for other in names:
            if other > name and _alike(name, other):
                yield Damage(f"{name} and {other} exchanged", _swap(name, other))
            if other != name and _alike(name, other):
                yield Damage(f"{name} in the place of {other}", _copy(name, other))


def logs_of(work: Path) -> list[str]:
    """The commit log: two files, or a folder of objects."""
    return ["backup/commits"] if is_objects(work) else ["backup/commits.log", "backup/commits.copy"]


def to_many_files(work: Path) -> Iterator[Damage]:
    """Directories that are gone, or parts of them of an earlier time; logs that end early."""
    logs = logs_of(work)
    yield Damage("the log deleted", _gone(logs))
    yield Damage("all frames gone", _gone(["backup/slots"]))
    yield Damage("the backup gone", _gone(["backup"]))
    for records in (1, 2, 4):
        yield Damage(f"{records} records less", _fewer(records))
    parts = {
        "log": logs,
        "frames": ["backup/slots"],
        "mark": ["checkpoint/tether"],
        "checkpoint": ["checkpoint"],
    }
    for many in range(1, 1 + len(parts)):
        for some in itertools.combinations(parts, many):
            # All but Spark's own logs: then nothing is left that knows better.
            if some != ("log", "frames", "mark"):
                names = [name for part in some for name in parts[part]]
                yield Damage(f"{', '.join(some)} of an earlier time", _older(names))


def _alike(one: str, other: str) -> bool:
    return "/slots/" in one and "/slots/" in other


def _flip(name: str, position: int, bit: int) -> Callable[[Path, Path], None]:
    def do(work: Path, early: Path) -> None:
        data = bytearray((work / name).read_bytes())
        data[position] ^= 1 << bit
        (work / name).write_bytes(data)

    return do


def _cut(name: str, length: int) -> Callable[[Path, Path], None]:
    return lambda work, early: os.truncate(work / name, length)


def _append(name: str, data: bytes) -> Callable[[Path, Path], None]:
    def do(work: Path, early: Path) -> None:
        with (work / name).open("ab") as file:
            file.write(data)

    return do


def _double(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def _swap(one: str, other: str) -> Callable[[Path, Path], None]:
    def do(work: Path, early: Path) -> None:
        first, second = (work / one).read_bytes(), (work / other).read_bytes()
        (work / one).write_bytes(second)
        (work / other).write_bytes(first)

    return do


def _copy(one: str, other: str) -> Callable[[Path, Path], None]:
    return lambda work, early: shutil.copy(work / one, work / other) and None


def _gone(names: list[str]) -> Callable[[Path, Path], None]:
    def do(work: Path, early: Path) -> None:
        for name in names:
            path = work / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return do


def _older(names: list[str]) -> Callable[[Path, Path], None]:
    def do(work: Path, early: Path) -> None:
        for name in names:
            path = work / name
            if path.is_dir() or (early / name).is_dir():
                shutil.rmtree(path, ignore_errors=True)
                if (early / name).exists():
                    shutil.copytree(early / name, path)
            elif (early / name).exists():
                shutil.copy(early / name, path)

    return do


def _fewer(records: int) -> Callable[[Path, Path], None]:
    def do(work: Path, early: Path) -> None:
        from .test_local_commits import starts

        if is_objects(work):
            for commit in sorted((work / "backup" / "commits").glob("*.commit"))[-records:]:
                commit.unlink()
            return
        for name in ("commits.log", "commits.copy"):
            path = work / "backup" / name
            at = starts(path)
            path.write_bytes(path.read_bytes()[: at[max(1, len(at) - 1 - records)]])

    return do
