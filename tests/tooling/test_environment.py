"""Setup does what is left to do, no more, and never takes a half-built state for a whole one."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path

import environment
import pytest
from environment import Layout, SetupError

from . import fakes


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A clone in a folder with a space, with the files that setup reads."""
    root = tmp_path / "a clone"
    (root / "requirements").mkdir(parents=True)
    for name in ("bootstrap", "dev", "java"):
        (root / "requirements" / f"{name}.txt").write_text(f"{name}==1\n")
    (root / "pyproject.toml").write_text("[project]\n")
    return Layout(root)


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The variables of a machine with a Java."""
    return {"PATH": str(fakes.java(tmp_path / "java 17", "17.0.15") / "bin")}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were taken; the slow ones are faked."""
    taken: list[str] = []

    def make_venv(layout: Layout) -> None:
        taken.append("venv")
        fakes.program(layout.python, "exit 0")

    def install(layout: Layout, *arguments: str) -> None:
        taken.append(Path(arguments[-1]).name)
        if arguments[-1].endswith("java.txt"):
            home = fakes.java(layout.venv / "runtime", "21.0.8", modules="java.base")
            fakes.program(layout.python, f"echo '{home}/bin/java'")

    monkeypatch.setattr(environment, "make_venv", make_venv)
    monkeypatch.setattr(environment, "install", install)
    monkeypatch.setattr(environment, "run", lambda *_: taken.append("bootstrap"))
    return taken


ALL = ["venv", "bootstrap", "dev.txt", "a clone"]


def test_builds_once(layout: Layout, variables: dict[str, str], steps: list[str]) -> None:
    assert not environment.is_ready(layout, variables)
    environment.build(layout, variables)
    assert steps == ALL
    assert environment.is_ready(layout, variables)


@pytest.mark.parametrize("changed", ["requirements/dev.txt", "pyproject.toml"])
def test_builds_again_when_a_source_changed(
    layout: Layout, variables: dict[str, str], steps: list[str], changed: str
) -> None:
    environment.build(layout, variables)
    (layout.root / changed).write_text("other\n")
    assert not environment.is_ready(layout, variables)
    environment.build(layout, variables)
    assert steps == ALL + ALL


def test_an_interrupted_build_is_not_ready(
    layout: Layout,
    variables: dict[str, str],
    steps: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment.build(layout, variables)
    before = layout.lock("dev").read_text()
    layout.lock("dev").write_text("other\n")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(environment, "install", interrupt)
    with pytest.raises(KeyboardInterrupt):
        environment.build(layout, variables)
    assert not environment.is_ready(layout, variables)
    # Not even when the lock is put back: some packages may be the other ones by now.
    layout.lock("dev").write_text(before)
    assert not environment.is_ready(layout, variables)


def test_another_java_needs_no_new_packages(
    layout: Layout, variables: dict[str, str], steps: list[str], tmp_path: Path
) -> None:
    environment.build(layout, variables)
    other = fakes.java(tmp_path / "java 21", "21.0.8")
    variables["JAVA_HOME"] = str(other)
    assert not environment.is_ready(layout, variables)
    environment.build(layout, variables)
    assert steps == ALL
    assert environment.is_ready(layout, variables)
    assert layout.env_file.read_text() == f"JAVA_HOME='{other}'\n"


def test_a_java_that_went_away_is_noticed(
    layout: Layout, variables: dict[str, str], steps: list[str], tmp_path: Path
) -> None:
    variables["JAVA_HOME"] = str(fakes.java(tmp_path / "gone", "21.0.8"))
    environment.build(layout, variables)
    shutil.rmtree(tmp_path / "gone")
    assert not environment.is_ready(layout, variables)


@pytest.mark.usefixtures("steps")
def test_without_java_one_is_installed_and_launched_safely(layout: Layout) -> None:
    nothing = {"PATH": ""}
    environment.build(layout, nothing)
    assert environment.is_ready(layout, nothing)
    launcher = layout.venv / "java" / "bin" / "java"
    assert environment.read_stamp(layout)["java_program"] == str(launcher)
    assert str(layout.venv / "runtime") in launcher.read_text()


def test_a_java_that_cannot_be_had_says_what_to_do(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise SetupError("installing failed", "no wheel", "try again")

    monkeypatch.setattr(environment, "install", fail)
    with pytest.raises(SetupError, match="set JAVA_HOME"):
        environment.choose_java(layout, {})


def test_a_moved_clone_is_built_anew(
    layout: Layout, variables: dict[str, str], steps: list[str]
) -> None:
    environment.build(layout, variables)
    moved = Layout(layout.root.rename(layout.root.with_name("elsewhere")))
    assert not environment.is_ready(moved, variables)


@pytest.mark.parametrize("text", ["", "{", "[]", '"done"', '{"packages": "x"}'])
def test_a_damaged_stamp_is_no_stamp(
    layout: Layout, variables: dict[str, str], steps: list[str], text: str
) -> None:
    environment.build(layout, variables)
    layout.stamp.write_text(text)
    assert not environment.is_ready(layout, variables)


def test_a_python_without_ensurepip_is_explained(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(SetupError, match=r"(?s)without its module ensurepip.*apt install"):
        environment.make_venv(layout)


def test_a_whole_venv_is_kept_and_a_broken_or_moved_one_is_not(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(environment, "run", lambda _layout, what, *_: made.append(what))
    fakes.program(layout.python, "exit 0")
    activate = layout.venv / "bin" / "activate"
    activate.write_text(f'VIRTUAL_ENV="{layout.venv}"\n')
    environment.make_venv(layout)
    assert made == []
    activate.write_text('VIRTUAL_ENV="elsewhere"\n')
    environment.make_venv(layout)
    activate.write_text(f'VIRTUAL_ENV="{layout.venv}"\n')
    fakes.program(layout.python, "exit 1")
    environment.make_venv(layout)
    layout.python.unlink()
    environment.make_venv(layout)
    assert made == ["making .venv"] * 3


def test_pip_installs_where_uv_cannot(layout: Layout, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fakes.program(layout.venv / "bin" / "uv", "exit 2")
    fakes.program(layout.python, f'echo "$*" >> {log}')
    environment.install(layout, "--no-deps", "x")
    assert log.read_text().endswith("install --no-deps x\n")


def test_a_failed_program_is_named_with_its_status(layout: Layout, tmp_path: Path) -> None:
    failing = fakes.program(tmp_path / "failing", "exit 4")
    with pytest.raises(SetupError, match=r"(?s)fetching failed.*failing ended with status 4"):
        environment.run(layout, "fetching", str(failing))
    with pytest.raises(SetupError, match="fetching failed"):
        environment.run(layout, "fetching", str(layout.root / "no such program"))


def test_only_one_setup_of_a_clone_runs(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with environment.alone(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
