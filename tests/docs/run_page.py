"""Runs the Python blocks of one Markdown page, in order, in one namespace: ``run_page.py PAGE``.

A program of its own, so that a page starts from nothing, has its own Spark, and can be ended when
it takes too long. The blocks run as the main module: what they define then travels to Spark's
workers as from a user's own script. Each block is compiled at the line where it stands, so that
errors name the page and its line.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from blocks import read_blocks


def main(page: Path) -> None:
    """Run the page."""
    namespace = sys.modules["__main__"].__dict__
    for block in read_blocks(page.read_text(encoding="utf-8")):
        if block.language == "python" and block.not_run is None:
            source = "\n" * (block.line - 1) + block.code
            exec(compile(source, str(page), "exec"), namespace)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
