"""Replicas of a query correct their answers one after the other: a lease says whose turn it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.sources.samples import Written

from tether.core.errors import BackupError, BadValueError
from tether.protocols.consistency import Handling
from tether.sources.exchange.folder import LocalFolder
from tether.sources.exchange.lease import Lease, LeaseAddress
from tether.sources.replica import Replica
from tether.sources.sunion.looking import Inputs
from tether.sources.sunion.subscribe import specify

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def leases(path: Path, clock: Clock) -> tuple[Lease, Lease]:
    folder = LocalFolder(path / "lease")
    return tuple(Lease(folder, name, seconds=10, clock=clock) for name in "ab")  # type: ignore[return-value]


def test_one_holds_it_until_it_is_given_back_or_over(tmp_path: Path) -> None:
    clock = Clock()
    one, other = leases(tmp_path, clock)
    assert one.hold()
    assert not other.hold()
    clock.now += 9  # it asks again in time, and keeps it
    assert one.hold()
    clock.now += 9
    assert not other.hold()
    clock.now += 2  # it has not asked since: it may be dead
    assert other.hold()
    assert not one.hold()
    one.release()  # not its own any more
    assert not one.hold()
    other.release()
    assert one.hold()
    assert len(list((tmp_path / "lease" / "lease").iterdir())) == 1


def test_of_two_that_ask_at_once_one_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = leases(tmp_path, Clock())
    create = LocalFolder.create

    def slowly(self: LocalFolder, name: str, data: bytes) -> None:
        monkeypatch.setattr(LocalFolder, "create", create)
        assert other.hold()
        create(self, name, data)

    monkeypatch.setattr(LocalFolder, "create", slowly)
    assert not one.hold()


def test_one_that_stood_still_between_its_look_and_its_file_does_not_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one took the same number and went on, so that the number was free again."""
    clock = Clock()
    one, other = leases(tmp_path, clock)
    create = LocalFolder.create

    def stopped(self: LocalFolder, name: str, data: bytes) -> None:
        monkeypatch.setattr(LocalFolder, "create", create)
        assert other.hold()
        clock.now += 6  # time to renew it
        assert other.hold()
        create(self, name, data)

    monkeypatch.setattr(LocalFolder, "create", stopped)
    assert not one.hold()
    assert not one.hold()
    assert other.hold()
    assert len(list((tmp_path / "lease" / "lease").iterdir())) == 1


def test_one_that_stood_still_for_longer_than_the_lease_lasts_does_not_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    one, other = leases(tmp_path, clock)
    create = LocalFolder.create

    def stopped(self: LocalFolder, name: str, data: bytes) -> None:
        monkeypatch.setattr(LocalFolder, "create", create)
        create(self, name, data)
        clock.now += 11

    monkeypatch.setattr(LocalFolder, "create", stopped)
    assert not one.hold()
    assert other.hold()


def test_without_the_store_everybody_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = leases(tmp_path, Clock())

    def fails(self: LocalFolder, below: str = "") -> dict[str, int]:
        raise BackupError("away")

    monkeypatch.setattr(LocalFolder, "sizes", fails)
    assert one.hold()


def test_replicas_take_turns_to_correct(tmp_path: Path) -> None:
    inputs = [Written(str(tmp_path / f"x{number}")) for number in range(2)]
    spec = specify(
        [str(tmp_path / f"x{number}") for number in range(2)],
        reader="r",
        bucket=10,
        handling=Handling(wait=2.0, most=1, stabilization="suspend"),
    )
    seconds = 60.0
    names = {
        name: Inputs(
            msgspec.structs.replace(
                spec,
                reader=name,
                lease=LeaseAddress(url=str(tmp_path / "shared"), holder=name, seconds=seconds),
            )
        )
        for name in "ab"
    }
    at = {name: each.begin() for name, each in names.items()}
    now = 0.0

    def step(name: str) -> str:
        after = names[name].next(at[name], now)
        if after is at[name]:
            return "nothing"
        at[name] = after
        return after.kind

    inputs[0].add(0, [(t, t) for t in range(10)], boundary=10)
    inputs[0].add(1, [(t, t) for t in range(10, 20)], boundary=20)
    now = 5.0
    assert [step(name) for name in "abab"] == ["tentative"] * 4
    inputs[1].add(0, [(t, t) for t in range(20)], boundary=20)
    assert step("a") == "stable"  # it was first: "b" goes on with new buckets
    inputs[0].add(2, [(t, t) for t in range(20, 30)], boundary=30)
    now = 10.0
    assert step("b") == "tentative"
    assert step("b") == "nothing"
    assert step("a") == "stable"
    assert at["a"].manager.phase == "stable"
    assert (
        step("a") == "tentative"
    )  # the second input is missing again; and it gives the lease back
    assert step("b") == "stable"
    assert at["b"].manager.phase == "stabilization"


def test_what_a_replica_is(tmp_path: Path) -> None:
    replica = Replica(name="a", folder=str(tmp_path / "q"))
    assert replica.checkpoint == str(tmp_path / "q" / "a" / "checkpoint")
    assert replica.lease.holder == "a"
    with pytest.raises(BadValueError, match="cannot name a reader"):
        Replica(name="a/b", folder="x")
