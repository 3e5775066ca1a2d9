"""One driver at a time on an object store, by a lease.

An object store releases nothing when a process dies. So the lock is an object with an expiry time, which
a thread of the holder renews well before.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING

import msgspec

from tether.backup.local_lock import LockOwner, locked_error
from tether.backup.protocol import HeldLock
from tether.core.errors import BackupError, BackupLockedError

if TYPE_CHECKING:
    from tether.backup.objectio import ObjectFolder

_log = logging.getLogger(__name__)
_NAME = "lock.json"


class _Lease(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    expires_at: float
    holder: LockOwner


class ObjectLock(HeldLock):
    """A lock object with an owner and a lease.

    Guaranteed:

    * On S3 (and what speaks its conditional puts) the object is created, taken over and renewed
      only if nobody else changed it meanwhile; so of several that try, one gets it.
    * ``check`` asks the store, and refuses once the lease has run out by this process's clock.
    * If a holder dies without releasing it, the lock is free when its lease has expired; at once for a
      successor on the same machine, which can see that the process has ended.

    Not guaranteed:

    * On stores without conditional puts, two drivers that start within the same instant may both
      believe to hold it, until the first ``check`` or renewal tells one of them.
    * Machines whose clocks differ by a large part of the lease may consider a living holder dead. * A
    process that is frozen between ``check`` and its commit for longer than the lease may still
      write. Its commit then has the same number as one of the newer driver, and the store refuses it
      where it has conditional puts: see :class:`ObjectCommits`.

    Args:
        folder: The store.
        owner: Name for messages.
        lease_seconds: How long a dead holder blocks the store; renewed at a third of it.
    """

    def __init__(self, folder: ObjectFolder, owner: str, lease_seconds: float = 60.0) -> None:
        self._folder = folder
        self._seconds = lease_seconds
        self._holder = LockOwner.here(owner)
        self._token = uuid.uuid4().hex
        self._mutex = (
            threading.Lock()
        )  # the fields below are shared by the renewing thread and check()
        self._deadline = 0.0
        self._lost = ""
        self._acquire()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="tether-lease", daemon=True)
        self._thread.start()

    # --- taking ------------------------------------------------------------------------------

    def _acquire(self) -> None:
        started = time.monotonic()
        while True:
            try:
                self._folder.create(_NAME, self._encoded())
                break
            except FileExistsError:
                if self._take_over():
                    break
        there = self._read()
        if there is None or there.token != self._token:
            raise locked_error(self._folder.url, _described(there))
        self._deadline = started + self._seconds

    def _take_over(self) -> bool:
        """Replace an expired lease; False if it has just been released."""
        # Read the version first: if the holder renews the lease in between, our version is out of date.
        version = self._version()
        there = self._read()
        if there is None:
            return False
        if there.expires_at > time.time() and not there.holder.surely_dead():
            raise locked_error(self._folder.url, _described(there))
        _log.warning("Taking over the lock that was left by %s.", _described(there))
        try:
            self._folder.replace(_NAME, self._encoded(), version=version)
        except BackupError as error:
            rival = self._read()
            if rival is not None and rival.token not in (self._token, there.token):
                raise locked_error(self._folder.url, _described(rival)) from error
            raise
        return True

    def _version(self) -> str | None:
        try:
            return self._folder.version(_NAME)
        except FileNotFoundError:
            return None

    def _encoded(self) -> bytes:
        lease = _Lease(
            token=self._token, expires_at=time.time() + self._seconds, holder=self._holder
        )
        return msgspec.json.encode(lease)

    def _read(self) -> _Lease | None:
        try:
            return msgspec.json.decode(self._folder.read(_NAME), type=_Lease)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, ValueError) as error:
            raise BackupLockedError(
                f"The lock of the backup store {self._folder.url} cannot be read.",
                why=f"{_NAME} is damaged: {error}.",
                do=f"Make sure that no query uses the store, then delete {_NAME}.",
            ) from error

    # --- keeping -----------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            try:
                self.renew()
            except BackupLockedError:
                return
            except BackupError as error:
                # The lease has time left, and the next round may succeed. If none does, check() raises.
                _log.warning("The lock could not be renewed: %s", error)

    def renew(self) -> None:
        """Renew the lease; called by a separate thread after each third of it.

        Raises:
            BackupLockedError: another one has taken the lock.
        """
        with self._mutex:
            started = time.monotonic()
            version = self._version()
            self._confirm()
            self._folder.replace(_NAME, self._encoded(), version=version)
            self._deadline = started + self._seconds

    def check(self) -> None:
        """Raise unless the store confirms that the lock is ours."""
        with self._mutex:
            if time.monotonic() > self._deadline and not self._lost:
                self._lost = "Its lease ran out before it could be renewed."
            self._confirm()

    def _confirm(self) -> None:
        if not self._lost:
            there = self._read()
            if there is None or there.token != self._token:
                self._lost = f"It is held by {_described(there)}."
        if self._lost:
            raise BackupLockedError(
                f"The lock of the backup store {self._folder.url} is no longer held.",
                why=self._lost,
                do="Stop this query; nothing that it did since was committed.",
            )

    def release(self) -> None:
        """Release the lock; does nothing if it has been released or lost."""
        self._stop.set()
        self._thread.join()
        with self._mutex:
            try:
                self._confirm()
                self._folder.delete([_NAME])
            except BackupLockedError:
                return
            except BackupError as error:
                _log.warning("The lock stays until its lease runs out: %s", error)
            self._lost = "It was given up."


def _described(lease: _Lease | None) -> str:
    if lease is None:
        return "nobody: the lock object is gone"
    until = time.strftime("%H:%M:%S UTC", time.gmtime(lease.expires_at))
    return f"{lease.holder.described()}, until {until} if not renewed"
