"""The reader of the pages finds what is there, and refuses what it would misread."""

from __future__ import annotations

import pytest

from .blocks import PageError, read_blocks
from .commands import asked_targets, make_targets, our_commands


def test_blocks_have_language_code_line_and_reason() -> None:
    page = (
        "text\n```python title=x\na\n```\n<!-- not run: too long -->\n\n~~~~bash\nb\n~~~\nc\n~~~~\n"
    )
    first, second = read_blocks(page)
    assert (first.language, first.code, first.line, first.not_run) == ("python", "a", 3, None)
    assert (second.language, second.code, second.not_run) == ("bash", "b\n~~~\nc", "too long")


def test_a_block_in_a_list_loses_its_indent() -> None:
    (block,) = read_blocks("- item\n\n  ```python\n  if x:\n      y\n  ```\n")
    assert block.code == "if x:\n    y"


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\nnever closed\n", "never closed"),
        ("```py\nx\n```\n", "call the block 'python'"),
        ("<!-- not run -->\n```python\nx\n```\n", "with the reason"),
        ("<!-- not run: -->\n```python\nx\n```\n", "with the reason"),
        ("<!-- not run: why -->\ntext\n```python\nx\n```\n", "before no code block"),
        ("<!-- not run: why -->\n", "before no code block"),
    ],
)
def test_what_would_be_misread_is_refused(page: str, complaint: str) -> None:
    with pytest.raises(PageError, match=complaint):
        read_blocks(page)


def test_commands_of_ours_are_found_among_others() -> None:
    code = (
        "cd tether && make demo\n"
        "# make nothing\n"
        "JAVA_HOME=x scripts/run tether bench \\\n    counts --json | jq . ; ls\n"
        '.venv/bin/tether inspect "a b"\n'
        "pip install tether\n"
    )
    assert our_commands(code, prompts=False) == [
        ["make", "demo"],
        ["tether", "bench", "counts", "--json"],
        ["tether", "inspect", "a b"],
    ]


def test_with_prompts_output_is_no_command() -> None:
    assert our_commands("$ make test\nmake old\n", prompts=True) == [["make", "test"]]


def test_targets_are_told_from_options_and_variables() -> None:
    assert asked_targets(["make", "-s", "test", 'ARGS="-x"', "lint"]) == ["test", "lint"]
    makefile = "RUN := x\nhelp: ## h\n\techo a: b\ntest-fast: setup\nX = 1\n"
    assert make_targets(makefile) == {"help", "test-fast"}
