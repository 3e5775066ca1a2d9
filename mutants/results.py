"""What is known of planted faults, kept from one run to the next.

That a test noticed a fault holds as long as neither the file that the fault is in nor the file of the
test has changed. What else has changed meanwhile can only be seen by ``--again``; each result names its
commit.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from mutants.commit import ROOT
from mutants.reading import Mutant, plant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FOLDER = ROOT / ".truth"
KNOWN, TOUCHED = FOLDER / "mutants-known.json", FOLDER / "mutants-touched.json"
SOURCES = ROOT / "src" / "tether"


def known(mutants: Iterable[Mutant]) -> dict[str, dict[str, Any]]:
    """What was found out about these faults, as far as it holds still."""
    noted = read(KNOWN)
    return {
        one.name: noted[one.name] for one in mutants if one.name in noted and _holds(noted, one)
    }


def note(mutant: Mutant, result: Mapping[str, Any]) -> None:
    """Keep what was found out about a fault now."""
    holds = {"file": _digest(plant(mutant, SOURCES)[0]), "test": _digest_of_test(result["by"])}
    write(KNOWN, read(KNOWN) | {mutant.name: {**result, "holds": holds}})


def _holds(noted: Mapping[str, Any], mutant: Mutant) -> bool:
    result = noted[mutant.name]
    if result["outcome"] != "noticed":
        return False  # another test may notice by now
    file, test = _digest(plant(mutant, SOURCES)[0]), _digest_of_test(result["by"])
    holds = {"file": file, "test": test}
    return bool(result["holds"] == holds and result["new"] == mutant.new)


def _digest_of_test(name: str) -> str:
    return _digest(ROOT / name.split("::", maxsplit=1)[0]) if name else ""


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else ""


def read(file: Path) -> dict[str, Any]:
    """A file of ours; nothing, if it is not there."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def write(file: Path, content: Any) -> None:
    """Replace a file of ours, as a whole."""
    file.parent.mkdir(exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(file)
