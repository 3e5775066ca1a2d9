"""``tether replica`` says what is wrong with a program before Spark is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tether.cli.app import app
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from pathlib import Path

STREAM = "def stream(spark, replica): ...\n"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("", "defines no stream"),
        ("def stream(spark): ...", "defines no stream"),
        (STREAM, "defines no tolerance"),
        (f"import tether\ntolerance = tether.MiniBatch()\n{STREAM}", "defines no tolerance"),
    ],
)
def test_programs_that_cannot_be_replicas(tmp_path: Path, program: str, why: str) -> None:
    (tmp_path / "program.py").write_text(program)
    command = ["replica", str(tmp_path / "program.py"), "--name", "a", "--time", "t"]
    result = CliRunner().invoke(app, [*command, "--folder", str(tmp_path)])
    assert isinstance(result.exception, BadValueError)
    assert why in result.exception.what


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    command = ["replica", str(tmp_path / "none.py"), "--name", "a", "--time", "t"]
    result = CliRunner().invoke(app, [*command, "--folder", str(tmp_path)])
    assert isinstance(result.exception, BadValueError)
