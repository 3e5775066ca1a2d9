"""``make fuzz``: random programs for as long as asked, and what replays whatever they find."""

from __future__ import annotations

import argparse
import os
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tether.testing.fuzz import build, decode, encode, run, shrunk
from tether.testing.fuzz.many import outcomes
from tether.testing.fuzz.record import RECORD, Record
from tether.testing.fuzz.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.testing.fuzz import Outcome, Program

FOLDER = Path(".truth/fuzz")
"""Where findings are kept."""


def main() -> None:
    """Run programs, or one again."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, help="how long; 10, if --programs says nothing")
    parser.add_argument("--programs", type=int, help="how many at most")
    parser.add_argument(
        "--resume", action="store_true", help=f"keep results in {RECORD}, run what is not there"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("--replay", help="run one again: its seed, or the file of a finding")
    chosen = parser.parse_args()
    if chosen.resume and chosen.programs is None:
        parser.error("--resume goes with --programs: it runs those that are left")
    if chosen.replay is not None:
        sys.exit(_replay(chosen.replay))
    print(f"fuzz: programs from seed {chosen.seed} on", flush=True)
    record = Record() if chosen.resume else None
    seeds: Iterable[int] = count(chosen.seed)
    if chosen.programs is not None:
        seeds = range(chosen.seed, chosen.seed + chosen.programs)
        seeds = seeds if record is None else record.missing(seeds)
        print(f"fuzz: {len(seeds)} programs are left", flush=True)
    minutes = chosen.minutes or (None if chosen.programs else 10.0)
    until = None if minutes is None else time.monotonic() + 60 * minutes
    summary = Summary()
    told = time.monotonic()
    for seed, outcome in outcomes(seeds, until, chosen.jobs):
        summary.add(seed, outcome)
        if record is not None:
            record.add(seed, outcome)
        if outcome.findings:
            _report(seed, outcome)
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"fuzz: {summary.line()}", file=sys.stderr, flush=True)
    print(f"fuzz: {summary.line()}")
    for line in summary.lines():
        print(line)
    sys.exit(1 if summary.findings else 0)


def _report(seed: int, outcome: Outcome) -> None:
    """A finding, and the smallest program that shows it."""
    small = shrunk(build(seed), outcome.findings[0])
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"finding-{seed}.json"
    file.write_bytes(encode(small))
    print(f"FOUND with seed {seed}: {outcome.findings[0]}")
    print(f'  as it was:  make fuzz ARGS="--replay {seed}"')
    print(f'  small:      make fuzz ARGS="--replay {file}"')
    print(f"  {encode(small).decode()}", flush=True)


def _replay(which: str) -> int:
    program = build(int(which)) if which.isdigit() else _read(Path(which))
    outcome = run(program)
    print(encode(program).decode())
    for finding in outcome.findings:
        print(f"FOUND: {finding}")
    ended = f", ended: {outcome.ended}" if outcome.ended else ""
    print(
        f"{outcome.epochs} epochs in {outcome.lives} lives, {outcome.looked} answers judged, "
        f"struck: {outcome.struck}{ended}"
    )
    return 1 if outcome.findings else 0


def _read(file: Path) -> Program:
    return decode(file.read_bytes())


if __name__ == "__main__":
    main()
