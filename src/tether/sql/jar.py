"""The jar with the state store: found in the package, or built from the checkout's ``jvm`` folder.

PySpark's own jars carry the Scala compiler, so a Java runtime is all that a build needs. It takes about
20 seconds and happens once for each state of the sources: the jar says which one it was built from.

What is compiled runs in every JVM of a query. So sources are looked for only where this package lies in
a checkout, and are taken only if nobody else could have put them there: a package that was installed
into a folder of everybody's (``pip install --target /tmp/…``) could find a stranger's ``jvm`` beside it.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tether.core.errors import TetherError

if TYPE_CHECKING:
    from collections.abc import Iterable

JAR = Path(__file__).parent / "jars" / "tether-sql.jar"
PACKAGE = Path(__file__).resolve().parents[1]
SOURCES = PACKAGE.parents[1] / "jvm" / "src"
COMPILER = "scala.tools.nsc.Main"
MOST_SECONDS = 300


class JarError(TetherError):
    """The jar with the state store is missing and cannot be built."""

    code = "jar"


def jar_path() -> Path:
    """The jar, built first if this is a checkout whose sources have changed since.

    Raises:
        JarError: There is no jar, and none can be built.
    """
    sources = own_sources(PACKAGE)
    if not sources:  # an installed package: the jar came with it
        if not JAR.is_file():
            raise JarError(
                "Tether's state store is not in this installation.",
                why=f"{JAR.name} is missing beside {Path(__file__).parent.name}.",
                do="Install Tether from a wheel, or work in a checkout of its sources.",
            )
        return JAR
    jars = spark_jars()
    wanted = digest(sources, jars)
    if built_from(JAR) != wanted:
        JAR.parent.mkdir(exist_ok=True)
        # Several processes (tests, a demo) may find it missing at the same time.
        with (JAR.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if built_from(JAR) != wanted:
                build(sources, jars, JAR, wanted)
    return JAR


@functools.cache
def without_spaces(jar: Path) -> Path:
    """A jar, or a copy of it where its path has a space: Spark finds no jar behind one."""
    if " " not in str(jar):
        return jar
    folder = Path(tempfile.mkdtemp(prefix="tether-jar-"))  # ours alone, so that nobody exchanges it
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(shutil.copy2(jar, folder))


def own_sources(package: Path) -> list[Path]:
    """The state store's sources, where a package lies in a checkout; none where it is installed.

    Args:
        package: The folder ``tether``.

    Raises:
        JarError: Others than the package's owner could have changed them.
    """
    top = package.parents[1]
    if package.parent.name != "src" or not (top / "pyproject.toml").is_file():
        return []
    folder = top / "jvm" / "src"
    found = sorted(folder.rglob("*.scala"))
    folders = {parent for path in found for parent in path.parents if parent.is_relative_to(top)}
    owners = {0, os.geteuid(), package.stat().st_uid}
    for path in [*sorted(folders), *found]:
        there = path.lstat()
        if (
            stat.S_ISLNK(there.st_mode)
            or there.st_mode & stat.S_IWOTH
            or there.st_uid not in owners
        ):
            raise JarError(
                "Tether's state store was not built.",
                why=f"Others than you may have changed its sources: {path} is a link, belongs to "
                "another user, or may be written by everybody.",
                do=f"Look at who made {folder}. If it is your checkout: chmod -R o-w {top}.",
            )
    return found


def spark_jars() -> Path:
    """The folder of jars of the Spark in use.

    Raises:
        JarError: PySpark is not installed, or has no jars.
    """
    home = os.environ.get("SPARK_HOME")
    if home and (Path(home) / "jars").is_dir():
        return Path(home) / "jars"
    try:
        import pyspark  # noqa: PLC0415 - an optional dependency, needed for this alone
    except ImportError:
        raise JarError(
            "PySpark is not installed.",
            why="The state store is compiled against its jars, by the compiler among them.",
            do="Install Tether with its extra: tether[spark].",
        ) from None
    return Path(pyspark.__file__).parent / "jars"


def digest(sources: Iterable[Path], jars: Path) -> str:
    """What a jar is built from: the sources, and the Spark and Scala that they are compiled against."""
    text = hashlib.sha256()
    for source in sources:
        text.update(str(source.relative_to(SOURCES)).encode() + b"\0" + source.read_bytes() + b"\0")
    for pattern in ("spark-sql_*.jar", "scala-compiler-*.jar"):
        text.update("".join(sorted(path.name for path in jars.glob(pattern))).encode())
    return text.hexdigest()


def built_from(jar: Path) -> str:
    """The digest that a jar was built from; empty where there is no whole jar."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.comment.decode()
    except (OSError, zipfile.BadZipFile):
        return ""


def build(sources: list[Path], jars: Path, target: Path, comment: str) -> None:
    """Compile the sources and pack them into ``target``, which appears whole or not at all.

    Raises:
        JarError: There is no Java, or the compiler found errors.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        _compile(sources, jars, classes)
        packed = Path(scratch) / target.name
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(classes.rglob("*.class")):
                archive.write(path, path.relative_to(classes))
            archive.comment = comment.encode()
        packed.replace(target)


def _compile(sources: list[Path], jars: Path, classes: Path) -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise JarError(
            "Tether's state store cannot be built.",
            why="There is no Java: JAVA_HOME is not set, and no java is on the PATH.",
            do="Install Java 17 or newer, or run make setup, which brings one.",
        )
    # A short run of a big program: the slower, quicker starting compiler of the JVM halves its time.
    flags = ["-Xmx1g", "-Xss8m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [java, *flags, "-cp", f"{jars}/*", COMPILER, "-usejavacp", "-release", "17"]
    command += ["-deprecation", "-d", str(classes), *map(str, sources)]
    print("tether: building the state store (about 20 s, once)", file=sys.stderr)  # noqa: T201
    try:
        done = subprocess.run(  # noqa: S603 - our own sources, the user's own Java
            command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JarError(
            "Tether's state store could not be built.",
            why=str(error),
            do="Check that JAVA_HOME names a working Java of version 17 or newer.",
        ) from error
    if done.returncode != 0:
        raise JarError(
            "Tether's state store could not be built.",
            why=f"The Scala compiler said:\n{(done.stderr or done.stdout).strip()}",
            do="If the sources were not changed, check the version of PySpark: 4.3 is needed.",
        )


if __name__ == "__main__":
    print(jar_path())  # noqa: T201 - for make and scripts/setup
