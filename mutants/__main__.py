"""``make mutants``: plant every fault of the catalogue, and say which nobody notices."""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from mutants.commit import KILLERS, commit
from mutants.reading import CatalogueError, Mutant, catalogue, plant
from mutants.results import FOLDER, TOUCHED, known, note, read, write
from mutants.suites import suite_of
from mutants.touching import plain
from mutants.trying import HANGS, NOTICED, ROOT, Try, attempt, copy_of_the_tree, tried, warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESULT = FOLDER / "mutants.json"
QUICK = 24
"""Faults of a quick run, chosen by the seed."""


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK}, chosen by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="those whose name or file has this in it")
    parser.add_argument(
        "--longest", type=float, default=600.0, help="seconds that tests may work for one fault"
    )
    parser.add_argument("--minutes", type=float, help="begin with no fault after so long")
    parser.add_argument("--no-baseline", action="store_true", help="tests are known to be green")
    parser.add_argument(
        "--check", action="store_true", help="only see that all faults fit the code"
    )
    parser.add_argument("--excused", action="store_true", help="try those too that have an excuse")
    parser.add_argument("--again", action="store_true", help="also what is known and holds still")
    chosen = parser.parse_args()
    every = catalogue()
    wrong = list(_misfits(every))
    if wrong:
        sys.exit("\n".join(wrong))
    if chosen.check:
        print(f"mutants: all {len(every)} fit the code")
        return
    some = [one for one in every if chosen.only in one.name or chosen.only in one.file]
    if chosen.quick:
        random.Random(chosen.seed).shuffle(some)  # noqa: S311 - chance, not secrecy
        some = some[:QUICK]
    until = math.inf if chosen.minutes is None else time.monotonic() + 60 * chosen.minutes
    warm_up()
    tries = [one for one in some if chosen.excused or not one.survives]
    # Where tests are not known to be green, that one fails says nothing that should be kept.
    keep = not chosen.no_baseline
    found = known(tries) if keep and not chosen.again else {}
    if found:
        print(f"mutants: {len(found)} are known, and hold still; --again for all of them")
    with copy_of_the_tree() as copy:
        left = [one for one in tries if one.name not in found]
        found |= _planted(copy, left, chosen.longest, until, keep=keep)
    surviving = [name for name, one in found.items() if one["outcome"] == "survived"]
    broken = [name for name, one in found.items() if one["outcome"] == "broken"]
    untried = len(tries) - len(found)
    if not chosen.only and keep and not untried:
        write(RESULT, _report(found, quick=chosen.quick, surviving=surviving))
    excused = sum(bool(one.survives) for one in some)
    print(
        f"mutants: {len(found)} planted, {len(surviving)} survived; {excused} have an excuse"
        + (f"; {untried} are left" if untried else "")
        + "".join(f"\n  SURVIVED {name}" for name in surviving)
        + "".join(f"\n  BROKEN {name}: it is no program" for name in broken)
    )
    sys.exit(1 if surviving or broken else 0)


def _misfits(mutants: list[Mutant]) -> Iterator[str]:
    """What does not fit the code as it is."""
    for mutant in mutants:
        try:
            plant(mutant, ROOT / "src" / "tether")
        except CatalogueError as error:
            yield str(error)


def _baseline(copy: Path, suite: tuple[str, ...], longest: float) -> None:
    """Tests that fail by themselves would notice every fault. Once for each suite and commit."""
    now, name, noted = commit(), _name(suite), read(TOUCHED)
    same = noted.get("commit") == now and not now.endswith("-dirty")
    green = noted.get("green", []) if same else []
    if name in green:
        return
    tests = [test for test in sorted(suite) if (copy / test).exists()]
    print(f"mutants: {len(tests)} files of tests without a fault", flush=True)
    touched = copy / "touched.json"
    without = tried(copy, tests, 6 * longest, touched=touched)
    if without.status != 0:
        print(without.said)
        sys.exit("mutants: the tests fail without a fault; mend that first")
    # Which functions tests come to is worth something on another commit, too: it is only an order.
    suites = noted.get("suites", {}) | {name: read(touched)}
    write(TOUCHED, {"commit": now, "green": [*green, name], "suites": suites})


def _name(suite: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(sorted(suite)).encode()).hexdigest()[:12]


def _planted(
    copy: Path, mutants: list[Mutant], longest: float, until: float, *, keep: bool
) -> dict[str, dict[str, Any]]:
    """Plant faults, one after the other; note what comes of each, if it is to be kept."""
    results, now = {}, commit()
    ran: set[str] = set()
    for number, mutant in enumerate(mutants, 1):
        if time.monotonic() > until:
            break
        suite = suite_of(mutant.file)
        if keep and _name(suite) not in ran:
            _baseline(copy, suite, longest)
            ran.add(_name(suite))
        touched = {
            test: one
            for tests in read(TOUCHED).get("suites", {}).values()
            for test, one in tests.items()
        }
        killer = read(KILLERS).get(mutant.name, "")
        first = [killer] if (copy / killer.split("::")[0]).is_file() else []
        ended = attempt(copy, mutant, first, longest, touched)
        outcome = _outcome(mutant, ended)
        by = plain(ended.failed) if outcome == "noticed" else ""
        if by and keep:
            write(KILLERS, read(KILLERS) | {mutant.name: by})
        results[mutant.name] = {
            "outcome": outcome,
            "by": by,
            "hung": ended.status == HANGS,
            "seconds": round(ended.seconds, 1),
            "why": mutant.survives if outcome == "excused" else mutant.why,
            "new": mutant.new,
            "commit": now,
        }
        if keep:
            note(mutant, results[mutant.name])
        how = "hung" if ended.status == HANGS else "by"
        print(
            f"{number:4}/{len(mutants)} {outcome:8} {mutant.name}"
            + (f" {how} {ended.failed}" if ended.failed else "")
            + f" ({ended.seconds:.0f} s)",
            flush=True,
        )
        if outcome == "broken":
            print(ended.said)
    return results


def _outcome(mutant: Mutant, ended: Try) -> str:
    if ended.status in (HANGS, NOTICED):
        # One that was excused and is noticed after all needs no excuse any more.
        return "noticed"
    if ended.status == 0:
        return "excused" if mutant.survives else "survived"
    return "broken"


def _report(results: dict[str, Any], *, quick: bool, surviving: list[str]) -> dict[str, Any]:
    return {
        "commit": commit(),
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "quick": quick,
        "planted": len(results),
        "surviving": len(surviving),
        "survivors": surviving,
        "commits": Counter(one["commit"] for one in results.values()),
        "results": results,
    }


if __name__ == "__main__":
    main()
