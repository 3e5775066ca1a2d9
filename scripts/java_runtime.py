"""Finds a Java that Spark runs on, or makes one from the runtime that pip can install.

Standard library only: this runs before anything of the project is installed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# The releases of Java on which Spark 4.3 was tried. A newer one may have dropped what Spark still
# uses (access to raw memory, above all), and then fails late and obscurely; so it is passed over.
OLDEST, NEWEST = 17, 25

# Spark always starts Java with this option, for faster linear algebra in its ML library, which
# works without it. But a Java that lacks the module, as trimmed ones do, then refuses to start.
VECTOR_MODULE = "jdk.incubator.vector"
VECTOR_OPTION = f"--add-modules={VECTOR_MODULE}"

_PROBE_SECONDS = 60


@dataclass(frozen=True)
class JavaRuntime:
    """One Java: where it lives, its release (17, 21, ...), whether Spark's option would stop it."""

    home: Path
    release: int
    has_vector_module: bool

    @property
    def usable(self) -> bool:
        """Whether Spark runs on this release."""
        return OLDEST <= self.release <= NEWEST


def parse_release(version: str) -> int | None:
    """Give the release in a version as Java prints it; None when there is none in it.

    Until Java 8 the release was the second number.

    >>> [parse_release(version) for version in ("17.0.15", "21", "1.8.0_412", "25-ea")]
    [17, 21, 8, 25]
    """
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version.strip())
    if numbers is None:
        return None
    first, second = numbers.groups()
    return int(second) if first == "1" and second else int(first)


def parse_settings(text: str) -> tuple[Path, int] | None:
    """Read home and release out of what ``java -XshowSettings:properties -version`` prints."""
    settings = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+?)\s*$", text, re.MULTILINE))
    release = parse_release(settings.get("java.version", ""))
    home = settings.get("java.home")
    return (Path(home), release) if home and release is not None else None


def probe(executable: str) -> JavaRuntime | None:
    """Ask a java program what it is; None when it does not run or does not say.

    The program is asked, and its path not trusted, because a name on PATH may be a shim or, on
    macOS, a stub.
    """
    settings = parse_settings(_output(executable, "-XshowSettings:properties", "-version"))
    if settings is None:
        return None
    home, release = settings
    return JavaRuntime(home, release, VECTOR_MODULE in _output(executable, "--list-modules"))


def find(environment: Mapping[str, str]) -> tuple[JavaRuntime | None, list[str]]:
    """Look for a usable Java in JAVA_HOME, then on PATH; also tell why others were passed over."""
    passed_over: list[str] = []
    for origin, executable in _candidates(environment):
        runtime = probe(executable)
        if runtime is not None and runtime.usable:
            return runtime, passed_over
        found = "does not run" if runtime is None else f"is Java {runtime.release}"
        passed_over.append(f"the Java of {origin} {found}, needed: {OLDEST} to {NEWEST}")
    return None, passed_over


def write_launcher(home: Path, runtime: JavaRuntime) -> Path:
    """Make a Java home whose ``bin/java`` starts ``runtime`` without the option that would stop it.

    The launcher becomes the Java process (exec), so process ids and signals are those of Java.
    """
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    java = shlex.quote(str(runtime.home / "bin" / "java"))
    launcher.write_text(
        "#!/bin/sh\n"
        f"# Leaves out {VECTOR_OPTION}: this Java lacks the module, and Spark works without.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {VECTOR_OPTION} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {java} "$@"\n',
        encoding="utf-8",
    )
    launcher.chmod(0o755)
    return home


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    candidates = []
    if home := environment.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", str(Path(home) / "bin" / "java")))
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        candidates.append(("PATH", on_path))
    return candidates


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr
