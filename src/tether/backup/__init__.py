"""Durable backups of slots' states, and the commit log that says which of them count.

Slot tasks append frames; the driver, under the store's lock, commits the epoch that wrote them.
Only a frame that a commit record names is ever restored. See :class:`BackupStore` for the operations,
and :func:`recover_chain` for restoring.
"""

from tether.backup.audit import Audit, Expected, audit
from tether.backup.commitcodec import LogEnd
from tether.backup.commitlog import CommitLog
from tether.backup.commits import CommitRecord, SlotCommit
from tether.backup.framecodec import Compression
from tether.backup.frames import Frame, FrameHeader, FrameKind, FrameRef
from tether.backup.history import CommitHistory
from tether.backup.inspect import StoreReport, as_plain, describe_store
from tether.backup.local import LocalStore
from tether.backup.manifest import Manifest, check_manifest
from tether.backup.mark import LogMark
from tether.backup.names import slot_key
from tether.backup.objects import ObjectStore
from tether.backup.opening import StoreAddress, open_store
from tether.backup.parts import RestoredPart, read_part, read_rows
from tether.backup.protocol import BackupStore, HeldLock
from tether.backup.recorded import CompleteSnapshot, SlotFacts
from tether.backup.recovery import RestoredChain, recover_chain
from tether.backup.sweeping import sweep

__all__ = [
    "Audit",
    "BackupStore",
    "CommitHistory",
    "CommitLog",
    "CommitRecord",
    "CompleteSnapshot",
    "Compression",
    "Expected",
    "Frame",
    "FrameHeader",
    "FrameKind",
    "FrameRef",
    "HeldLock",
    "LocalStore",
    "LogEnd",
    "LogMark",
    "Manifest",
    "ObjectStore",
    "RestoredChain",
    "RestoredPart",
    "SlotCommit",
    "SlotFacts",
    "StoreAddress",
    "StoreReport",
    "as_plain",
    "audit",
    "check_manifest",
    "describe_store",
    "open_store",
    "read_part",
    "read_rows",
    "recover_chain",
    "slot_key",
    "sweep",
]
