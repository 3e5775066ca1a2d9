"""What has been measured: all reports below a folder, and which experiments have none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """Reports by name of their files, and what is missing.

    Where an experiment has been run in both forms, the long one counts.
    """

    reports: dict[str, dict[str, Any]]
    missing: list[str]

    def results(self, experiment: str) -> Iterator[dict[str, Any]]:
        """Results of all reports of an experiment, each with the command that measures it again.

        A scenario that several reports have measured is taken from one of them whole: from the
        first of a long form, or else from the first.
        """
        owners: dict[str, str] = {}
        of_it = {n: one for n, one in self.reports.items() if one["experiment"] == experiment}
        for name, report in sorted(of_it.items(), key=lambda item: bool(item[1].get("quick"))):
            for result in report["results"]:
                scenario = result.get("scenario", name)
                if owners.setdefault(scenario, name) == name:
                    yield {**result, "command": command_of(report)}


def command_of(report: dict[str, Any]) -> str:
    """The command that measures a report again, as it was run."""
    return str(report.get("command", f"tether bench {report['experiment']}"))


def commands(results: list[dict[str, Any]]) -> str:
    """The commands that measure some results again, each once."""
    return "; ".join(dict.fromkeys(result["command"] for result in results))


def load(folder: Path, known: list[str]) -> Measured:
    """Read the reports of a folder.

    Args:
        folder: Where ``tether bench`` has put its JSON files.
        known: Experiments there are.
    """
    reports: dict[str, dict[str, Any]] = {}
    # A file and its quick form differ in the ending only, so the long form comes first.
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem.endswith("-quick")):
        report = json.loads(path.read_text(encoding="utf-8"))
        if not {"experiment", "results", "goals"} <= set(report):
            continue
        reports.setdefault(path.stem.removesuffix("-quick"), report)
    have = {report["experiment"] for report in reports.values()}
    return Measured(dict(sorted(reports.items())), [name for name in known if name not in have])
