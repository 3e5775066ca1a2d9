"""The code in README.md and docs/ runs, and the commands it names exist."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tether.cli.app import app
from tether.spark.session import FAIR_CHECKPOINTS

from .blocks import Block, read_blocks
from .commands import asked_targets, make_targets, our_commands
from .run_page import PASSED

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("README.md"), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
# A page with Spark takes half a minute; on a machine that does much else besides, many times that.
SECONDS_PER_PAGE = 480
SECONDS_TOGETHER = 3 * SECONDS_PER_PAGE  # for all that share a Java process

# Spark from pip forks some 20 helpers a micro-batch for its log files; a page need not wait for them,
# nor for a web page that nobody looks at.
FASTER = (
    f"--conf spark.sql.streaming.checkpointFileManagerClass={FAIR_CHECKPOINTS} "
    "--conf spark.ui.enabled=false pyspark-shell"
)


def blocks_of(page: Path, *languages: str) -> list[Block]:
    blocks = read_blocks(page.read_text(encoding="utf-8"))
    return [block for block in blocks if block.language in languages and block.not_run is None]


def needs_spark(page: Path) -> bool:
    return any("spark" in block.code.lower() for block in blocks_of(page, "python"))


def shares_spark(page: Path) -> bool:
    """Whether it may run in one process with others: all but those that put jars on Java's path."""
    return needs_spark(page) and "tether.sql" not in page.read_text(encoding="utf-8")


def run_page(folder: Path, *pages: Path) -> subprocess.CompletedProcess[str]:
    runner = Path(__file__).parent / "run_page.py"
    command = [sys.executable, str(runner), *map(str, pages)]
    seconds = SECONDS_PER_PAGE if len(pages) == 1 else SECONDS_TOGETHER
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": FASTER},
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # Java and Spark's workers with it
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def outcomes_of(folder: Path, *pages: Path) -> dict[Path, str]:
    """What became of pages that run in one process.

    How that process ends does not count: now and then Arrow aborts while it takes its threads down,
    when everything has been done (apache/arrow issue 34314).
    """
    done = run_page(folder, *pages)
    told = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    found = {}
    for number, page in enumerate(pages):
        outcome = folder / str(number) / "outcome"
        text = outcome.read_text(encoding="utf-8") if outcome.exists() else "it never ended"
        found[page] = text if text == PASSED else f"{text}\n{told}"
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """What became of the pages that share a Java process."""
    pages = [page for page in PAGES if shares_spark(page)]
    return outcomes_of(tmp_path_factory.mktemp("pages"), *pages)


@pytest.mark.timeout(SECONDS_TOGETHER + 60)  # the first one waits for all that share Java
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[pytest.mark.spark] if needs_spark(page) else [])
        for page, name in zip(PAGES, NAMES, strict=True)
        if blocks_of(page, "python")
    ],
)
def test_python_blocks_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if shares_spark(page):
        outcomes: dict[Path, str] = request.getfixturevalue("outcomes")
    else:
        outcomes = outcomes_of(tmp_path, page)
    assert outcomes[page] == PASSED, outcomes[page]


def test_pages_of_one_process_know_nothing_of_each_other(tmp_path: Path) -> None:
    pages = [tmp_path / f"{name}.md" for name in ("first", "second", "third")]
    codes = ["x = 1", "assert 'x' not in globals()\nassert False, 'on purpose'", "assert 1"]
    for page, code in zip(pages, codes, strict=True):
        page.write_text(f"```python\n{code}\n```\n")
    assert run_page(tmp_path, *pages).returncode == 0
    found = [(tmp_path / str(number) / "outcome").read_text() for number in range(3)]
    assert (found[0], found[2]) == (PASSED, PASSED)
    assert "on purpose" in found[1]
    assert 'second.md", line 3' in found[1]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_named_commands_exist(page: Path) -> None:
    targets = make_targets((ROOT / "Makefile").read_text(encoding="utf-8"))
    for block in blocks_of(page, "bash", "console"):
        for words in our_commands(block.code, prompts=block.language == "console"):
            where = f"line {block.line}: {' '.join(words)}"
            if words[0] == "make":
                assert set(asked_targets(words)) <= targets, where
            else:
                complaint = tether_complaint(words[1:])
                assert not complaint, f"{where}\n{complaint}"


def tether_complaint(arguments: list[str]) -> str:
    """What the command says against its arguments. ``--help`` at the end keeps it from running:
    unknown subcommands and options are still refused before the help is shown.
    """
    done = CliRunner().invoke(app, [*arguments, "--help"])
    return "" if done.exit_code == 0 else done.output


def test_a_failing_block_is_found_with_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# T\n\n```python\nx = 1\n```\n\n```python\nassert x == 1\nassert x == 2\n```\n"
    )
    outcome = outcomes_of(tmp_path, page)[page]
    assert outcome != PASSED
    assert f'{page}", line 9' in outcome


def test_blocks_build_on_each_other_and_marked_ones_are_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = [1]\n```\n\n<!-- not run: too long -->\n```python\nx.append(2)\n```\n\n"
        "```text\nno code\n```\n\n1. in a list\n\n   ```python\n   print(x, __name__)\n   ```\n"
    )
    assert run_page(tmp_path, page).stdout == "[1] __main__\n"


def test_the_command_is_installed() -> None:
    program = Path(sys.executable).parent / "tether"
    done = subprocess.run(
        [program, "--help"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_subcommand_or_option_is_refused() -> None:
    assert not tether_complaint(["demo"])
    assert tether_complaint(["no-such-subcommand"])
    assert tether_complaint(["demo", "--no-such-option"])
