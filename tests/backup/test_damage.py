"""Every way to damage a query's directories, under every policy: a true answer and bound, or a refusal.

The short form looks at a few places of every file; the long one (``make chaos``) at very many.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from .damage import (
    POLICIES,
    Damage,
    Verdict,
    cuts,
    files_of,
    flips,
    gone_on,
    lived,
    to_many_files,
    to_one_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tether.policies.policy import Policy


class Patient(NamedTuple):
    """A query whose driver is dead, and whose directories can be damaged again and again."""

    policy: Policy
    pristine: Path
    early: Path
    work: Path

    def after(self, damage: Damage, *, arenas: bool, **options: Any) -> Verdict:
        """How it goes on after a damage, with its resident state or without."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.pristine, self.work)
        if not arenas:
            shutil.rmtree(self.work / "arena", ignore_errors=True)
        damage.do(self.work, self.early)
        return gone_on(self.work, self.policy, **options)

    def survives(self, damages: Iterable[Damage], *, arenas: bool) -> dict[str, Verdict]:
        """All verdicts, by what was done; every one of them must be true."""
        found = {damage.what: self.after(damage, arenas=arenas) for damage in damages}
        assert {what: one for what, one in found.items() if not one.true} == {}
        return found


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder on no disk: what is tried here is not whether things are synced."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(params=POLICIES)
def patient(request: pytest.FixtureRequest, memory: Path) -> Patient:
    return made(request.param, memory)


def made(name: str, folder: Path, *, dies: bool = True, objects: bool = False) -> Patient:
    work, pristine = folder / "work", folder / "pristine"
    work.mkdir()
    if objects:
        (work / "objects").touch()
    lived(work, POLICIES[name], dies=dies)
    shutil.copytree(work, pristine)
    return Patient(POLICIES[name], pristine, folder / "early", work)


UNDAMAGED = Damage("nothing", lambda work, early: None)


def some(damages: Iterable[Damage], most: int) -> list[Damage]:
    """A few of many, from all over."""
    every = list(damages)
    return every[:: -(-len(every) // most)]


def test_a_query_that_was_only_killed_goes_on(patient: Patient) -> None:
    with_arenas = patient.after(UNDAMAGED, arenas=True)
    assert (with_arenas.error, with_arenas.refused) == (0, "")
    without = patient.after(UNDAMAGED, arenas=False)
    assert without.true
    assert not without.refused


def test_no_log_that_ends_early_and_no_old_copy_is_believed(patient: Patient) -> None:
    found = patient.survives(to_many_files(patient.pristine), arenas=False)
    if not patient.policy.recovery.rewinds:
        assert found["1 records less"].refused
    # Backup and checkpoint of one time are a query that goes on from there.
    assert not found["log, frames, checkpoint of an earlier time"].refused


@pytest.mark.parametrize("name", ["approximate", "mini-batch"])
def test_objects_are_no_more_believed_than_files(name: str, memory: Path) -> None:
    patient = made(name, memory, objects=True)
    assert not patient.after(UNDAMAGED, arenas=False).refused
    found = patient.survives(to_many_files(patient.pristine), arenas=False)
    assert found["1 records less"].refused
    pristine, early = patient.pristine, patient.early
    patient.survives(some(to_one_file(pristine, early), 14), arenas=False)
    patient.survives(some(flips(pristine), 12), arenas=False)


def test_whoever_refuses_a_short_log_leaves_all_as_it_was_found(memory: Path) -> None:
    """Frames that no record names any more above all: with a better copy of the log they count again."""
    for name in ("approximate", "mini-batch", "upstream-backup"):
        (memory / name).mkdir()
        patient = made(name, memory / name)
        fewer = next(
            one for one in to_many_files(patient.pristine) if one.what.startswith("2 records less")
        )
        assert patient.after(fewer, arenas=False).refused
        for file in files_of(patient.pristine):
            if "commits" not in file and "lock" not in file:
                assert (patient.work / file).read_bytes() == (patient.pristine / file).read_bytes()
        for copy in ("commits.log", "commits.copy"):
            shutil.copy(patient.pristine / "backup" / copy, patient.work / "backup" / copy)
        assert not gone_on(patient.work, patient.policy).refused


def test_no_damage_to_a_file_is_believed(patient: Patient) -> None:
    pristine, early = patient.pristine, patient.early
    found = patient.survives(some(to_one_file(pristine, early), 14), arenas=False)
    found |= patient.survives(some(flips(pristine), 18), arenas=False)
    found |= patient.survives(some(cuts(pristine), 9), arenas=False)
    for what, verdict in found.items():
        if "commits.log" in what or "commits.copy" in what or "backup/lock" in what:
            assert not verdict.refused, what  # the other copy makes it good


def test_damage_that_is_accepted_has_an_infinite_bound(memory: Path) -> None:
    patient = made("approximate", memory)
    fewer = next(
        one for one in to_many_files(patient.pristine) if one.what.startswith("4 records less")
    )
    assert "accept_damage=True" in patient.after(fewer, arenas=False).refused
    accepted = patient.after(fewer, arenas=False, epochs=9, accept_damage=True)
    assert accepted.error > 12  # more than it would ever have told
    assert accepted.spent == math.inf
    again = gone_on(patient.work, patient.policy)  # once accepted, never forgotten
    assert (again.error, again.spent) == (accepted.error, math.inf)
    # State that is still in memory needs no backup.
    kept = patient.after(fewer, arenas=True, accept_damage=True)
    assert (kept.error, kept.spent) == (0, 0.0)


@pytest.mark.long
@pytest.mark.parametrize("objects", [False, True])
@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("arenas", [False, True])
@pytest.mark.parametrize("name", POLICIES)
def test_no_damage_anywhere_can_make_a_lie(
    name: str, arenas: bool, dies: bool, objects: bool, memory: Path
) -> None:
    patient = made(name, memory, dies=dies, objects=objects)
    pristine, early = patient.pristine, patient.early
    patient.survives(to_many_files(patient.pristine), arenas=arenas)
    patient.survives(to_one_file(pristine, early), arenas=arenas)
    often = dies and not arenas and not objects
    patient.survives(flips(pristine, 5 if often else 53), arenas=arenas)
    patient.survives(cuts(pristine, 15 if often else 131), arenas=arenas)
