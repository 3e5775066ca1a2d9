"""Who of several replicas puts its answers right first: a lease, in the store that they share.

While one of them is busy with corrections, and perhaps gives no new answers, the others postpone theirs
and keep answering (DPC 2005 §3.4). Nothing depends on it but that: two that hold it at once, because a
clock is wrong or a holder was stopped for longer than the lease lasts, do the same work at the same
time, and both come to the same rows.

A lease is a row of small files of which the newest counts. Its number can be taken once only, so of two
that want it one gets it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec

from tether.backup.sealed import seal, unseal
from tether.core.errors import BackupError
from tether.sources.exchange.folder import open_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.sources.exchange.folder import Folder

_log = logging.getLogger(__name__)
_FOLDER = "lease"
SECONDS = 10.0
"""How long a lease lasts that is not renewed: so late do others notice that its holder has died."""


class LeaseAddress(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a lease, and who asks: small, and fit to be sent to other processes."""

    url: str
    holder: str
    """Name of the replica; no other one has it."""
    seconds: float = SECONDS
    options: dict[str, Any] = {}

    def open(self) -> Lease:
        """Open it here."""
        return Lease(open_folder(self.url, self.options), self.holder, seconds=self.seconds)


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    holder: str
    until: float
    """Unix seconds."""


class Lease:
    """One replica's end of the lease.

    Args:
        folder: The store.
        holder: Name of this replica.
        seconds: How long the lease lasts from each time that it is asked for.
        clock: Unix seconds.

    Example:
        >>> import tempfile
        >>> shared = open_folder(tempfile.mkdtemp() + "/totals")
        >>> one, other = Lease(shared, "a"), Lease(shared, "b")
        >>> one.hold(), other.hold(), one.hold()
        (True, False, True)
        >>> one.release()
        >>> other.hold()
        True
    """

    def __init__(
        self,
        folder: Folder,
        holder: str,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._holder = folder, holder
        self._seconds, self._clock = seconds, clock
        self._until = float("-inf")

    def hold(self) -> bool:
        """Take the lease, or keep it; False while another one has it."""
        now = self._clock()
        if self._until - now > self._seconds / 2:
            return True
        try:
            number, held = self._newest()
            if held is not None and held.holder != self._holder and held.until > now:
                return False
            until = now + self._seconds
            self._folder.create(_name(number + 1), seal(_Held(holder=self._holder, until=until)))
            self._folder.delete([_name(number)])
            if self._too_late(number + 1):
                return False
        except FileExistsError:
            return False  # another one was quicker
        except BackupError as error:
            _log.warning("Nobody can tell who is to correct its answers first: %s", error)
            return True
        self._until = until
        return until > self._clock()  # this process may have been suspended in between

    def release(self) -> None:
        """Let another one have it, if this one has."""
        if self._until <= self._clock():
            return
        self._until = float("-inf")
        try:
            number, held = self._newest()
            if held is not None and held.holder == self._holder:
                self._folder.create(_name(number + 1), seal(_Held(holder=self._holder, until=0.0)))
                self._folder.delete([_name(number)])
                self._too_late(number + 1)
        except (FileExistsError, BackupError) as error:
            _log.warning("The lease could not be given back, and ends by itself: %s", error)

    def _too_late(self, taken: int) -> bool:
        """Whether another one went on from here meanwhile: its file of this number was deleted again."""
        # So a process that was suspended after it looked, and before it wrote its file, must look again.
        if self._newest()[0] == taken:
            return False
        self._folder.delete([_name(taken)])
        return True

    def _newest(self) -> tuple[int, _Held | None]:
        names = list(self._folder.sizes(_FOLDER))
        if not names:
            return -1, None
        number = int(names[-1].rsplit("/", 1)[-1].removesuffix(".json"))
        try:
            return number, msgspec.convert(unseal(self._folder.read(names[-1])), _Held)
        except (FileNotFoundError, ValueError, msgspec.ValidationError):
            return number, None  # taken meanwhile, or damaged: the next number decides


def _name(number: int) -> str:
    return f"{_FOLDER}/{number:012}.json"
