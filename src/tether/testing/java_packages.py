"""Java packages that only tests and examples need, fetched once by the Ivy that PySpark carries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Literal

import pyspark

from tether.core.errors import TetherError

_SECONDS = 240


class UnreachableError(TetherError):
    """The registry of Java packages cannot be reached from here."""

    code = "unreachable"


def java_program() -> str:
    """The Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def fetched(coordinates: str, folder: Path, *, conf: Literal["master", "default"]) -> list[Path]:
    """The jars of a package, fetched into a folder unless they are there.

    Args:
        coordinates: Group, name and version, with colons between.
        folder: Where jars are kept; the cache of Ivy is beside it.
        conf: "master": the package alone. "default": with all that it needs.

    Returns:
        The package's own jar; with "default" everything that is in the folder then.

    Raises:
        UnreachableError: It cannot be fetched, and is not there.
    """
    group, artifact, version = coordinates.split(":")
    done = folder / f".{artifact}-{version}"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pattern = str(folder / "[artifact]-[revision].[ext]")
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        command = [java_program(), "-jar", str(ivy), "-dependency", group, artifact, version]
        command += ["-confs", conf, "-types", "jar", "bundle", "-retrieve", pattern]
        command += ["-cache", str(folder.parent / "ivy-cache")]
        try:
            told = subprocess.run(  # noqa: S603 - PySpark's own Ivy
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unreachable(coordinates, str(error)) from error
        if not (folder / f"{artifact}-{version}.jar").exists():
            lines = [line for line in told.stdout.splitlines() if line.strip()]
            raise _unreachable(coordinates, " ".join(lines[-3:])[-400:])
        done.touch()
    if conf == "master":
        return [folder / f"{artifact}-{version}.jar"]
    return sorted(folder.glob("*.jar"))


def _unreachable(coordinates: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"The Java package {coordinates} cannot be fetched.",
        why=why,
        do="Check the connection to the registry, or put the jar into the folder yourself.",
    )
