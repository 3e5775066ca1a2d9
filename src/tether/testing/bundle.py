"""Everything that explains a run that went wrong, in one directory: who died when, and all logs."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tether.backup.inspect import describe_store
from tether.backup.opening import open_store
from tether.core.errors import TetherError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tether.testing.injector import Injector

_REASONS = re.compile(
    r"lost|exited|removed|removing|killed|timed out|disassociated|fetchfailed|exception|error",
    re.IGNORECASE,
)
_LONGEST_LOG = 200_000


@contextmanager
def explained_run(
    work: Path,
    *,
    injector: Injector | None = None,
    stories: list[Any] | None = None,
    logs: Sequence[Path] = (),
) -> Iterator[None]:
    """Write a bundle when the block fails, and name it in the failure.

    Args:
        work: Where the run keeps its logs, checkpoint and backups; the bundle is written below it.
        injector: Whose strikes to tell.
        stories: Events of queries, as far as the test has them; may be filled during the block.
        logs: Further directories with logs, such as a cluster's.

    Example:
        >>> import pathlib, tempfile
        >>> work = pathlib.Path(tempfile.mkdtemp())
        >>> (work / "log").write_text("ERROR Lost executor 1: worker lost") > 0
        True
        >>> try:
        ...     with explained_run(work):
        ...         raise AssertionError("the counts differ")
        ... except AssertionError as error:
        ...     print(error.__notes__[0].startswith("Log bundle: "))
        True
        >>> (work / "bundle" / "reasons.txt").read_text().strip()
        'log: ERROR Lost executor 1: worker lost'
    """
    try:
        yield
    except BaseException as error:
        written = write_bundle(work, injector=injector, stories=stories, logs=logs)
        error.add_note(f"Log bundle: {written}")
        raise


def write_bundle(
    work: Path,
    *,
    injector: Injector | None = None,
    stories: list[Any] | None = None,
    logs: Sequence[Path] = (),
) -> Path:
    """Write the bundle now; gives its directory.

    Files: ``strikes.txt`` (what was caused, when, to whom), ``reasons.txt`` (lines of all logs that
    tell of losses and errors), ``backups.json`` (what the store holds), ``stories.json``, and the end
    of every log.
    """
    bundle = work / "bundle"
    bundle.mkdir(exist_ok=True)
    if injector is not None:
        lines = [f"{strike.at:.3f} {strike.what}: {strike.victim}" for strike in injector.struck()]
        planned = [repr(fault) for fault in injector.faults]
        told = [f"seed {injector.seed}", *lines, "", "planned:", *planned]
        (bundle / "strikes.txt").write_text("\n".join(told) + "\n")
    reasons = []
    found = [(log, root) for root in (work, *logs) for log in _logs(root)]
    for number, (log, root) in enumerate(found):
        text = log.read_bytes()[-_LONGEST_LOG:].decode(errors="replace")
        name = log.relative_to(root).as_posix()
        reasons += [f"{name}: {line}" for line in text.splitlines() if _REASONS.search(line)]
        (bundle / f"{number:02}-{name.replace('/', '-')}").write_text(text)
    (bundle / "reasons.txt").write_text("\n".join(reasons) + "\n")
    (bundle / "backups.json").write_bytes(_backups(work / "backup"))
    (bundle / "stories.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(stories or [], enc_hook=str))
    )
    return bundle


def _logs(work: Path) -> list[Path]:
    found = [
        path
        for path in sorted(work.rglob("*"))
        if path.is_file()
        and (path.suffix == ".log" or path.name in ("log", "stderr"))
        and not {"backup", "bundle", "checkpoint", "spark-home"} & set(path.parts)
    ]
    return [path for path in found if path.stat().st_size]


def _backups(directory: Path) -> bytes:
    if not directory.exists():
        return b"null\n"
    try:
        report = msgspec.json.encode(describe_store(open_store(str(directory))), enc_hook=str)
    except TetherError as error:
        report = msgspec.json.encode(str(error))
    files = {
        path.relative_to(directory).as_posix(): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    whole = {"report": msgspec.Raw(report), "files": files}
    return msgspec.json.format(msgspec.json.encode(whole))
