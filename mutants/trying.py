"""Running tests on a copy of the tree with one fault in it.

What takes long to import is imported once; each try is a fork of this process. Nobody but the fork ever
imports ``tether`` from the copy.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import json
import os
import py_compile
import select
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
NOTICED, BY_TIME = 1, -1
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
        status: Of pytest; ``BY_TIME`` where it took too long.
        failed: The test that failed first.
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


def tried(copy: Path, tests: Sequence[str], longest: float, *, stop: bool = True) -> Try:
    """Run tests in the copy as it is now; ``longest`` is in seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        place = Path(scratch)
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                status = _run(copy, place, [*(OPTIONS if stop else OPTIONS[1:]), *tests])
            finally:
                os._exit(status)
        status = _waited(pid, longest)
        noted = place / "failed"
        failed = json.loads(noted.read_text()) if noted.exists() else ""
        said = (place / "said").read_text(errors="replace")[-3000:]
    return Try(status, failed, time.monotonic() - began, said)


def attempt(copy: Path, mutant: Mutant, first: Sequence[str], longest: float) -> Try:
    """Plant a fault, run the tests that could notice, and take it out again.

    Args:
        copy: The tree.
        mutant: The fault.
        first: Tests to run before all others.
        longest: Most seconds.
    """
    sources = copy / "src" / "tether"
    path, text = plant(mutant, sources)
    honest = path.read_text(encoding="utf-8")
    try:
        path.write_text(text, encoding="utf-8")
        if first:
            quick = tried(copy, first, longest)
            if quick.status in (NOTICED, BY_TIME):
                return quick
        tests = suite_of(path.relative_to(sources).as_posix())
        return tried(copy, [test for test in tests if (copy / test).exists()], longest)
    finally:
        path.write_text(honest, encoding="utf-8")


def _run(copy: Path, place: Path, arguments: list[str]) -> int:
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
    first = _First(place / "failed")
    return int(pytest.main([*arguments, f"--basetemp={place / 'base'}"], plugins=[first]))


class _First:
    """Notes the first test that fails."""

    def __init__(self, note: Path) -> None:
        self._note = note

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self._note.exists():
            self._note.write_text(json.dumps(report.nodeid))


def _waited(pid: int, longest: float) -> int:
    """Exit status of a child, which is ended with all its own when its time is over."""
    end = os.pidfd_open(pid)
    try:
        watch = select.poll()
        watch.register(end, select.POLLIN)
        ready = watch.poll(1000 * longest)
    finally:
        os.close(end)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # also what tests may have left behind
    _, status = os.waitpid(pid, 0)
    if not ready:
        return BY_TIME
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else NOTICED
