"""Runs the Python blocks of Markdown pages, in order, each page in a namespace of its own.

``run_page.py PAGE…`` runs each page in a folder of its own, and writes what became of it to ``outcome``
there. Several pages share one Java process, which takes longer to start than most pages to run; Spark
itself is started again for each.

A program of its own, so that pages start from nothing and can be ended when they take too long. The
blocks run as the main module: what they define then travels to Spark's workers as from a user's own
script. Each block is compiled at the line where it stands, so that errors name the page and its line.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from blocks import read_blocks

PASSED = "passed"


def run(page: Path) -> None:
    """Run one page."""
    namespace = sys.modules["__main__"].__dict__
    for block in read_blocks(page.read_text(encoding="utf-8")):
        if block.language == "python" and block.not_run is None:
            source = "\n" * (block.line - 1) + block.code
            exec(compile(source, str(page), "exec"), namespace)


def run_all(pages: list[Path]) -> None:
    """Run several pages, whatever becomes of each."""
    namespace, home = sys.modules["__main__"].__dict__, Path.cwd()
    ours = set(namespace)
    for number, page in enumerate(pages):
        folder = home / str(number)
        folder.mkdir()
        os.chdir(folder)
        try:
            run(page)
            outcome = PASSED
        except BaseException:
            outcome = traceback.format_exc()
        (folder / "outcome").write_text(outcome, encoding="utf-8")
        for name in set(namespace) - ours:
            del namespace[name]
        stop_spark()


def stop_spark() -> None:
    """A page may leave its session to the end of its process."""
    if "pyspark.sql" in sys.modules:
        session = sys.modules["pyspark.sql"].SparkSession.getActiveSession()
        if session is not None:
            session.stop()


if __name__ == "__main__":
    run_all([Path(argument) for argument in sys.argv[1:]])
