"""``make mutants``: plant every fault of the catalogue, and say which nobody notices."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from typing import TYPE_CHECKING, Any

from mutants.commit import KILLERS, commit
from mutants.reading import CatalogueError, Mutant, catalogue, plant
from mutants.suites import suite_of
from mutants.trying import BY_TIME, NOTICED, ROOT, Try, attempt, copy_of_the_tree, tried, warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = ROOT / ".truth"
RESULT, SO_FAR = FOLDER / "mutants.json", FOLDER / "mutants-so-far.json"
QUICK = 24
"""Faults of a quick run, chosen by the seed."""


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK}, chosen by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="those whose name or file has this in it")
    parser.add_argument("--longest", type=float, default=600.0, help="seconds for one fault")
    parser.add_argument("--no-baseline", action="store_true", help="tests are known to be green")
    parser.add_argument(
        "--check", action="store_true", help="only see that all faults fit the code"
    )
    parser.add_argument("--excused", action="store_true", help="try those too that have an excuse")
    parser.add_argument("--again", action="store_true", help="do not go on where a run was stopped")
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
    warm_up()
    # The baseline of a part says nothing of the rest: only a run of all of them is gone on with.
    whole = not (chosen.only or chosen.quick or chosen.no_baseline)
    now = commit()
    so_far = _so_far(now) if whole and not chosen.again else {}
    with copy_of_the_tree() as copy:
        if not chosen.no_baseline and not so_far:
            _baseline(copy, some, chosen.longest)
        tries = [one for one in some if chosen.excused or not one.survives]
        results = _planted(copy, tries, chosen.longest, so_far, now if whole else None)
    surviving = [name for name, one in results.items() if one["outcome"] == "survived"]
    broken = [name for name, one in results.items() if one["outcome"] == "broken"]
    if not chosen.only and not chosen.no_baseline:
        _write(RESULT, _report(now, results, quick=chosen.quick, surviving=surviving))
    excused = sum(bool(one.survives) for one in some)
    print(
        f"mutants: {len(results)} planted, {len(surviving)} survived; {excused} have an excuse"
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


def _baseline(copy: Path, mutants: list[Mutant], longest: float) -> None:
    """Tests that fail by themselves would notice every fault."""
    wanted = dict.fromkeys(test for one in mutants for test in suite_of(one.file))
    tests = [test for test in wanted if (copy / test).exists()]
    print(f"mutants: {len(tests)} files of tests without a fault", flush=True)
    without = tried(copy, tests, 6 * longest)
    if without.status != 0:
        print(without.said)
        sys.exit("mutants: the tests fail without a fault; mend that first")


def _planted(
    copy: Path, mutants: list[Mutant], longest: float, so_far: dict[str, Any], note: str | None
) -> dict[str, dict[str, Any]]:
    """Plant what is not known yet; results are noted for the commit ``note``, if there is one."""
    results = {}
    for number, mutant in enumerate(mutants, 1):
        if mutant.name in so_far:
            results[mutant.name] = so_far[mutant.name]
            continue
        known = _killers().get(mutant.name, "")
        first = [known] if (copy / known.split("::")[0]).is_file() else []
        ended = attempt(copy, mutant, first, longest)
        outcome = _outcome(mutant, ended)
        if ended.failed and note:
            _write(KILLERS, _killers() | {mutant.name: ended.failed.split("[")[0]})
        results[mutant.name] = {
            "outcome": outcome,
            "by": ended.failed,
            "seconds": round(ended.seconds, 1),
            "why": mutant.survives if outcome == "excused" else mutant.why,
        }
        if note:
            _write(SO_FAR, {"commit": note, "results": so_far | results})
        by = f" by {ended.failed}" if ended.failed else ""
        print(
            f"{number:4}/{len(mutants)} {outcome:8} {mutant.name}{by} ({ended.seconds:.0f} s)",
            flush=True,
        )
        if outcome == "broken":
            print(ended.said)
    return results


def _so_far(now: str) -> dict[str, Any]:
    """What a run that was stopped has found out about this very commit, after its baseline."""
    noted: dict[str, Any] = json.loads(SO_FAR.read_text()) if SO_FAR.exists() else {}
    if noted.get("commit") != now or now.endswith("-dirty"):
        return {}
    found: dict[str, Any] = noted["results"]
    print(f"mutants: {len(found)} are known of this commit; --again for all of them")
    return found


def _killers() -> dict[str, str]:
    found: dict[str, str] = json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
    return found


def _outcome(mutant: Mutant, ended: Try) -> str:
    if ended.status in (BY_TIME, NOTICED):
        # One that was excused and is noticed after all needs no excuse any more.
        return "noticed"
    if ended.status == 0:
        return "excused" if mutant.survives else "survived"
    return "broken"


def _report(
    now: str, results: dict[str, Any], *, quick: bool, surviving: list[str]
) -> dict[str, Any]:
    return {
        "commit": now,
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "quick": quick,
        "planted": len(results),
        "surviving": len(surviving),
        "survivors": surviving,
        "results": results,
    }


def _write(file: Path, content: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
