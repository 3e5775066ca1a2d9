"""Who has read an exchange how far: what all known readers are done with may be trimmed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from tether.backup.sealed import seal, unseal
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from tether.sources.exchange.log import ExchangeLog

_FOLDER = "readers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    needs: int


def check_reader(name: str) -> str:
    """The name of a reader, if it can be one.

    Example:
        >>> check_reader("totals")
        'totals'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadValueError(
            f"reader={name!r} cannot name a reader.",
            why="A file of that name is kept in every exchange that it reads.",
            do="Use letters, digits, dots, dashes and underscores, and begin with a letter or digit.",
        )
    return name


def note_reader(log: ExchangeLog, name: str, needs: int) -> None:
    """A reader needs entries from this number on; it is known from now on."""
    log.folder.replace(f"{_FOLDER}/{check_reader(name)}.json", seal(_Note(needs=needs)))


def forget_reader(log: ExchangeLog, name: str) -> None:
    """A reader will not come back: nothing is kept for it any more."""
    log.folder.delete([f"{_FOLDER}/{check_reader(name)}.json"])


def known_readers(log: ExchangeLog) -> dict[str, int]:
    """For each known reader the first entry that it needs.

    A note that cannot be read counts as one that needs everything: too much is kept then, not too
    little.
    """
    found = {}
    for name in log.folder.sizes(_FOLDER):
        try:
            needs = msgspec.convert(unseal(log.folder.read(name)), _Note).needs
        except FileNotFoundError:
            continue
        except (ValueError, msgspec.ValidationError):
            needs = 0
        found[name.rsplit("/", 1)[-1].removesuffix(".json")] = needs
    return found


def trim_read(log: ExchangeLog) -> int:
    """Drop what all known readers are done with; without any reader nothing. Give how many entries."""
    needs = known_readers(log)
    return log.trim(min(needs.values())) if needs else 0
