"""A Java that Spark runs on is found, and one that is not is passed over with the reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import java_runtime
import pytest
from java_runtime import JavaRuntime

from . import fakes


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("17", 17),
        ("17.0.15", 17),
        ("21.0.8", 21),
        ("25-ea", 25),
        ("11.0.2", 11),
        ("1.8.0_412", 8),
        ("", None),
        ("unknown", None),
    ],
)
def test_release_of_a_version(version: str, release: int | None) -> None:
    assert java_runtime.parse_release(version) == release


def test_settings_are_read_and_their_neighbours_are_not() -> None:
    text = fakes.SETTINGS.format(home="/opt/a java", version="21.0.8")
    assert java_runtime.parse_settings(text) == (Path("/opt/a java"), 21)
    assert java_runtime.parse_settings("java: command not found") is None
    assert java_runtime.parse_settings("    java.version = 17\n") is None


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    named = fakes.java(tmp_path / "named", "21.0.8")
    on_path = fakes.java(tmp_path / "on path", "17.0.15")
    environment = {"JAVA_HOME": str(named), "PATH": f"{on_path / 'bin'}"}
    assert java_runtime.find(environment) == (JavaRuntime(named, 21, True), [])
    del environment["JAVA_HOME"]
    assert java_runtime.find(environment) == (JavaRuntime(on_path, 17, True), [])


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2", "16", "26"])
def test_an_unfit_java_home_is_passed_over_and_named(tmp_path: Path, version: str) -> None:
    unfit = fakes.java(tmp_path / "unfit", version)
    fit = fakes.java(tmp_path / "fit", "17.0.15")
    found, passed_over = java_runtime.find({"JAVA_HOME": str(unfit), "PATH": f"{fit / 'bin'}"})
    assert found is not None
    assert found.home == fit
    (reason,) = passed_over
    assert "JAVA_HOME" in reason
    assert str(java_runtime.parse_release(version)) in reason


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    stub = fakes.program(tmp_path / "bin" / "java", "echo no runtime present >&2; exit 1")
    environment = {"JAVA_HOME": str(tmp_path / "missing"), "PATH": str(stub.parent)}
    found, passed_over = java_runtime.find(environment)
    assert found is None
    assert ["JAVA_HOME does not run" in reason for reason in passed_over] == [True, False]
    assert java_runtime.find({}) == (None, [])


def test_a_trimmed_java_is_recognised(tmp_path: Path) -> None:
    home = fakes.java(tmp_path, "21.0.8", modules="java.base java.sql")
    assert java_runtime.probe(str(home / "bin" / "java")) == JavaRuntime(home, 21, False)


def test_the_launcher_leaves_out_only_that_option(tmp_path: Path) -> None:
    real = tmp_path / "the 'real' one"
    fakes.program(real / "bin" / "java", 'echo "$$"; printf "%s|" "$@"; exit 7')
    home = java_runtime.write_launcher(tmp_path / "home", JavaRuntime(real, 21, False))
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "--add-modules=x", "", "$1"]
    with subprocess.Popen(
        [home / "bin" / "java", *arguments], stdout=subprocess.PIPE, text=True
    ) as launched:
        output, _ = launched.communicate()
    pid, seen = output.split("\n", 1)
    assert seen == "-cp|a b:*|--add-modules=x||$1|"
    assert launched.returncode == 7
    assert int(pid) == launched.pid, "a signal sent to the launcher must reach Java itself"
