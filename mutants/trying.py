"""Running tests on a copy of the tree with one fault in it.

What takes long to import is imported once; each try is a fork of this process. Nobody but the fork ever
imports ``tether`` from the copy.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import importlib.util
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutants.reading import plant
from mutants.suites import suite_of
from mutants.touching import Touching, asked_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from mutants.reading import Mutant

ROOT = Path(__file__).parents[1]
HEAVY = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.ipc",
    "pyspark.sql.types",
    "pyspark.sql.functions",
    "hypothesis.stateful",
    "fsspec",
    "msgspec",
    "pytest",
)
NOTICED, HANGS = 1, -1
IDLE_SECONDS = 120
"""Nothing that tests wait for takes so long while nobody does anything."""
OPTIONS = (
    "-x",
    "-q",
    "--no-header",
    "--hypothesis-profile=noticed",
    "-p",
    "no:cacheprovider",
    "-m",
    "not spark and not cluster and not chaos",
)


@dataclass(frozen=True)
class Try:
    """How a run of tests ended.

    Attributes:
        status: Of pytest; ``HANGS`` where it did not come to its end.
        failed: The test that failed first, or hung.
        seconds: How long it took.
        said: The end of what pytest wrote.
    """

    status: int
    failed: str
    seconds: float
    said: str


@contextlib.contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """A copy of all that is in the repository or could be, gone afterwards."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        # By content, not by time: a fault may be as long as what it replaces, and as old.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(copy / "src", quiet=2, invalidation_mode=mode)
        yield copy


def warm_up() -> None:
    """Import what every try needs and no fault is in."""
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert "tether" not in sys.modules, "a fault would not be seen by whoever has it already"


def tried(copy: Path, tests: Sequence[str], longest: float, *, touched: Path | None = None) -> Try:
    """Run tests in the copy as it is now.

    Args:
        copy: The tree.
        tests: Names of files, or of tests.
        longest: Most seconds of work: not on the clock, for the machine may be busy.
        touched: Where to note which functions each test comes to, if that is wanted.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        place = Path(scratch)
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                status = _run(copy, place, [*OPTIONS, *tests], touched)
            finally:
                os._exit(status)
        status = _waited(pid, longest)
        noted = place / ("at-work" if status == HANGS else "failed")
        failed = json.loads(noted.read_text()) if noted.exists() else ""
        said = (place / "said").read_text(errors="replace")[-3000:]
    return Try(status, failed, time.monotonic() - began, said)


def attempt(
    copy: Path,
    mutant: Mutant,
    first: Sequence[str],
    longest: float,
    touched: Mapping[str, Mapping[str, Any]],
) -> Try:
    """Plant a fault, run the tests that could notice, and take it out again.

    Args:
        copy: The tree.
        mutant: The fault.
        first: Tests to run before all others.
        longest: Most seconds of work.
        touched: Which functions tests come to, as far as that is known.
    """
    sources = copy / "src" / "tether"
    path, text = plant(mutant, sources)
    honest = path.read_text(encoding="utf-8")
    try:
        path.write_text(text, encoding="utf-8")
        below = path.relative_to(sources).as_posix()
        near = asked_first(touched, below, honest, text)
        for tests in (first, [test for test in near if (copy / test.split("::")[0]).is_file()]):
            quick = tried(copy, tests, longest) if tests else None
            if quick is not None and quick.status in (NOTICED, HANGS):
                return quick
        tests = suite_of(below)
        return tried(copy, [test for test in tests if (copy / test).exists()], longest)
    finally:
        path.write_text(honest, encoding="utf-8")


def _run(copy: Path, place: Path, arguments: list[str], touched: Path | None) -> int:
    import pytest  # noqa: PLC0415 - warm by now

    os.setsid()
    out = os.open(place / "said", os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(copy)
    paths = [str(copy / "src"), str(copy)]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)
    sys.dont_write_bytecode = True
    plugins: list[Any] = [_First(place / "failed", place / "at-work")]
    plugins += [] if touched is None else [Touching(touched, copy / "src" / "tether")]
    return int(pytest.main([*arguments, f"--basetemp={place / 'base'}"], plugins=plugins))


class _First:
    """Notes the first test that fails, and the one that is at work."""

    def __init__(self, note: Path, at_work: Path) -> None:
        self._note, self._at_work = note, at_work

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._at_work.write_text(json.dumps(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self._note.exists():
            self._note.write_text(json.dumps(report.nodeid))


def _waited(pid: int, longest: float) -> int:
    """Exit status of a child, which is ended with all its own if it hangs."""
    patience = _watching.Patience(idle_looks=IDLE_SECONDS, cpu_seconds=longest)
    status = int(_watching.waited(pid, patience))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # also what tests may have left behind
    if status == -signal.SIGALRM:
        return HANGS
    return NOTICED if status < 0 else status


def _alone(file: Path) -> ModuleType:
    """A module of ours that imports nothing else of ours: nothing of it is in what tests import."""
    found = importlib.util.spec_from_file_location(f"mutants_{file.stem}", file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


_watching = _alone(ROOT / "src" / "tether" / "testing" / "fuzz" / "watching.py")
