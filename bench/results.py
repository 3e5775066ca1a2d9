"""Results that stay: each measured repeat in a log, whole reports as JSON and CSV.

The log is what makes a long experiment resumable: every repeat is appended as it ends, so a run that
was interrupted goes on where it was. A line that was cut off by a kill is passed over.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Measurement, say
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(__file__).parent / "results"
CSV_COLUMNS = [
    "experiment",
    "scenario",
    "contender",
    "round",
    "median_ms",
    "rows_per_second",
    "answer_checked",
]


class ResultLog:
    """One line for each measured repeat of an experiment.

    Args:
        path: The file; made if it is not there.
        identity: What the results depend on. A log of another identity is refused.
        resume: Go on with what is there; otherwise start from the beginning.
    """

    def __init__(self, path: Path, identity: dict[str, Any], *, resume: bool) -> None:
        self._path = path
        self._found: dict[tuple[str, int], Measurement] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        identity = json.loads(json.dumps(identity))
        lines = list(_lines(path)) if resume else []
        if not lines:
            path.write_text(json.dumps({"identity": identity}) + "\n", encoding="utf-8")
            return
        if lines[0].get("identity") != identity:
            raise BadValueError(
                f"{path.name} holds results of another scenario or seed.",
                why="Its first line is not that of this experiment.",
                do="Run without --resume, which starts from the beginning.",
            )
        for line in lines[1:]:
            self._found[line["contender"], line["round"]] = Measurement(**line["measurement"])
        say(f"{path.name}: {len(self._found)} repeats are there already")
        _end_last_line(path)

    def get(self, contender: str, round_: int) -> Measurement | None:
        """The repeat, if it was measured before."""
        return self._found.get((contender, round_))

    def add(self, contender: str, round_: int, measured: Measurement) -> None:
        """Keep a repeat."""
        line = {
            "contender": contender,
            "round": round_,
            "measurement": {
                "epoch_ms": measured.epoch_ms,
                "answer_checked": measured.answer_checked,
                "detail": measured.detail,
                "rows": measured.rows,
            },
        }
        with self._path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        self._found[contender, round_] = measured

    def once(self, name: str, round_: int, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What was found out before; or now, by a call. For findings that are no contender's times."""
        known = self.get(name, round_)
        if known is None:
            known = Measurement([], answer_checked=True, detail=find())
            self.add(name, round_, known)
        return known.detail


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            say(f"{path.name}: passing over a line that was cut off")


def _end_last_line(path: Path) -> None:
    if not path.read_bytes().endswith(b"\n"):
        with path.open("a", encoding="utf-8") as log:
            log.write("\n")


def file_name(experiment: str, *, quick: bool, variant: str = "") -> str:
    """Name of an experiment's files, without their endings.

    Example:
        >>> file_name("peers", quick=True, variant="word-count")
        'peers-word-count-quick'
    """
    return "-".join(filter(None, [experiment, variant, "quick" if quick else ""]))


def save_report(
    report: dict[str, Any], *, quick: bool, variant: str = "", folder: Path = FOLDER
) -> Path:
    """Write an experiment's report as JSON and CSV; give the JSON file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name(report["experiment"], quick=quick, variant=variant) + ".json")
    for target, text in (
        (path, json.dumps(report | {"quick": quick}, indent=1) + "\n"),
        (path.with_suffix(".csv"), as_csv(report)),
    ):
        partial = target.with_name(target.name + ".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    return path


def as_csv(report: dict[str, Any]) -> str:
    """One line for every repeat of every contender."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for result in report["results"]:
        runs = result.get("runs_ms") or [result.get("median_ms", "")]
        for number, median in enumerate(runs, 1):
            rows = result.get("rows_per_epoch")
            writer.writerow(
                {
                    "experiment": report["experiment"],
                    "scenario": result.get("scenario", ""),
                    "contender": result["contender"],
                    "round": number,
                    "median_ms": median,
                    "rows_per_second": round(rows / median * 1_000) if rows and median else "",
                    "answer_checked": result.get("answer_checked", ""),
                }
            )
    return text.getvalue()
