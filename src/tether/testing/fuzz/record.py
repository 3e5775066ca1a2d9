"""What random programs have shown, kept as they end, so that a long search can go on where it stopped.

A result is of the code that ran: of all modules of ours that a program loads. Documents, tests and
commands may change meanwhile. What an earlier code has shown stays searched, and is told apart; but a
finding is only mended once its program has run again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.testing.fuzz.running import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORD = Path(".truth/programs.jsonl")
"""Where results are kept."""


@dataclass(frozen=True)
class Ran:
    """A program that has run: its seed, the code that ran it, when, and how it ended."""

    seed: int
    code: str
    at: str
    outcome: Outcome


class Record:
    """Programs that have run.

    Args:
        file: Where they are kept.
        code: The code that runs now.
    """

    def __init__(self, file: Path = RECORD, code: str = "") -> None:
        self._file, self._code = file, code or code_of_programs()
        self.ran: dict[int, Ran] = {}
        """The last result of each seed."""
        self.mended: set[int] = set()
        """Seeds with a finding once, and none in their last result."""
        for each in _read(file):
            self._note(each)

    def add(self, seed: int, outcome: Outcome) -> None:
        """Keep one more result."""
        ran = Ran(seed, self._code, time.strftime("%Y-%m-%d %H:%M:%S"), outcome)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("ab") as record:
            if record.tell() and not _ends_a_line(self._file):
                record.write(b"\n")  # what is before was cut off by a kill
            record.write(json.dumps(asdict(ran)).encode() + b"\n")  # infinity is a number here
        self._note(ran)

    def missing(self, seeds: Iterable[int]) -> list[int]:
        """The seeds that have not run yet; first those with findings of an older code."""
        known = self.ran
        again = [
            seed
            for seed in seeds
            if seed in known and known[seed].outcome.findings and known[seed].code != self._code
        ]
        return again + [seed for seed in seeds if seed not in known]

    def by_code(self, seeds: Iterable[int]) -> dict[str, int]:
        """How many of these programs ran on which code; the one that runs now has a star."""
        codes = Counter(self.ran[seed].code for seed in seeds if seed in self.ran)
        return {code + "*" * (code == self._code): number for code, number in codes.most_common()}

    def _note(self, ran: Ran) -> None:
        before = self.ran.get(ran.seed)
        if ran.outcome.findings:
            self.mended.discard(ran.seed)
        elif before is not None and before.outcome.findings:
            self.mended.add(ran.seed)
        self.ran[ran.seed] = ran


def code_of_programs() -> str:
    """A short name of the code that programs run on.

    A process of its own looks: in this one there may be modules that no program needs.
    """
    look = f"from {__name__} import digest_of_modules; print(digest_of_modules())"
    done = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-c", look], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def digest_of_modules() -> str:
    """A digest of all modules of ours that are loaded, and of Python's version."""
    digest = hashlib.sha256(sys.version.encode())
    for name, module in sorted(sys.modules.items()):
        if name == "tether" or name.startswith("tether."):
            digest.update(name.encode())
            digest.update(_source(module))
    return digest.hexdigest()[:12]


def _source(module: Any) -> bytes:
    file = getattr(module, "__file__", None)
    return Path(file).read_bytes() if file else b""


def _ends_a_line(file: Path) -> bool:
    with file.open("rb") as record:
        record.seek(-1, 2)
        return record.read() == b"\n"


def _read(file: Path) -> list[Ran]:
    found = []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        try:
            each = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        outcome = Outcome(**each.pop("outcome"))
        outcome.struck = [(point, action) for point, action in outcome.struck]
        found.append(Ran(outcome=outcome, **each))
    return found
