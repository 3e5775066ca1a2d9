"""The small fixed part of a slot's state: counters, phase, and what rollback puts back.

The header is one array of 64-bit words. Every page of it (one for the slot, one for each primitive)
has three parts: *logical* words describe the state as the program sees it; *saved* words are their
copy from the start of the epoch, so that rolling back all counters is one assignment; *physical*
words describe files and logs and are never rolled back. A word is written by one aligned store,
so a kill leaves either the old or the new value.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from tether.state.segment import Array, Segment
    from tether.state.store import Store

LAYOUT = 5
"""Version of everything stored in an arena; any change of a format raises it."""
MAGIC = 0x7E7E_5107_57A7_E001

LOGICAL = 24
PAGE = 64
MOST_PRIMITIVES = 100

BLOB_BYTES = 4096
_BLOB_COPIES = 3  # current, saved, and one free to write the next into
_BLOB_WORDS = BLOB_BYTES * _BLOB_COPIES // 8

# Logical words of the slot's page.
VERSION = 0
BLOB = 1
PENDING = 2  # token of the export that is being written; 0 if there is none
PENDING_EPOCH = 3  # the epoch in which it was begun
# Physical words of the slot's page.
MAGIC_WORD = 48
LAYOUT_WORD = 49
PHASE = 50
EPOCH = 51
PRIMITIVES = 52
SERIAL = 53
TRACKED = 54
TOKENS = 55  # how many exports were ever begun

# Logical words of a primitive's page.
ROWS = 0  # rows (keys) that exist
BACKED = 1  # rows that exist in the backups
DIRTY_LIST = 2  # which of the two lists of dirty rows is in use
DIRTY_COUNT = 3
SUM_LOW = 4  # exact integer part of the divergence, 128 bits
SUM_HIGH = 5
SUM_FLOAT = 6  # floating part of the divergence
SLACK = 7  # bound on the rounding error of SUM_FLOAT
PEAK = 8  # largest absolute integer ever held
GENERATION = 9  # which generation of files is in use; clear() starts a new one
CLEARED = 10  # size of the durable state that clear() dropped, in units of the divergence
CLEARED_KEYS = 11  # number of durable keys that clear() dropped
PENDING_LIST = 12  # number of the list of pending rows in use
PENDING_COUNT = 13
PENDING_PART = 14  # what is being written: NO_PART, SOME_ENTRIES or ALL_ENTRIES
PENDING_GENERATION = 15  # the generation of files that it was taken from
PENDING_KEYS = 16  # keys that the backups do not know yet and come to know by it
MEMBERS = 17  # members of a set
# Logical words of tables and sets: what CLEARED and CLEARED_KEYS become if an export is settled that
# was begun before clear().
SETTLED_CLEARED = 18
SETTLED_CLEARED_KEYS = 19
# Logical words of kinds without rows, in the same places: bits of a number, or which image of an object.
LIVE = 18
DURABLE = 19
IN_FLIGHT = 20
DRIFT = 21  # an object's divergence at its last commit
PACKED = 22  # rows of a set when it last gave up those without a use
PRECISE = 23  # whether changes are compared with durable values; else only a bound is kept
# Physical words of a primitive's page.
UNDO_COUNT = 48
DURABLE_COUNT = 49
LITTER = 50  # files of no use may lie about
INDEX = 51  # of even generations; those of odd ones lie KEY_WORDS further on
KEY_WORDS = 4
IMAGES = 59  # how many images an object ever stored
LISTS = 60  # how many lists of pending rows were ever made
STEP_UNDO = 61  # entries of the journal when the epoch's newest step began
STEP_ROWS = 62  # rows that existed then

NO_PART, SOME_ENTRIES, ALL_ENTRIES = 0, 1, 2


class Phase(IntEnum):
    """What a slot's state is in the middle of.

    * ``CLEAN``: the state is that of ``version``; there is nothing to roll back to.
    * ``APPLYING``: an epoch is being applied, or was when the process died: roll back first.
    * ``COMMITTED``: the state is that of ``version``, and that epoch can still be rolled back.
    * ``RESTORING``: backups are being loaded, or were when the process died: recreate it.
    """

    CLEAN = 0
    APPLYING = 1
    COMMITTED = 2
    RESTORING = 3


class Page:
    """One page of the header: the same words as integers and as floats."""

    __slots__ = ("floats", "words")

    def __init__(self, row: Array) -> None:
        self.words = row.data
        self.floats = self.words.cast("B").cast("d")

    def saved(self, word: int) -> int:
        """A logical word's value at the start of the epoch."""
        return int(self.words[LOGICAL + word])


class Header:
    """The header of one slot."""

    def __init__(self, store: Store) -> None:
        self._segment: Segment = store.segment("head", "i8", slack=False)
        self._segment.ensure(_BLOB_WORDS + PAGE * (1 + MOST_PRIMITIVES))
        words = self._segment.data
        self._blobs = words[:_BLOB_WORDS].data.cast("B")
        self._pages = words[_BLOB_WORDS : _BLOB_WORDS + PAGE * (1 + MOST_PRIMITIVES)]
        self._pages = self._pages.reshape(-1, PAGE)
        self.slot = Page(self._pages[0])

    def page(self, number: int) -> Page:
        """The page of a primitive, counted from 0."""
        return Page(self._pages[1 + number])

    def blank(self, number: int) -> None:
        """Zero the page of a primitive that is about to be made."""
        self._pages[1 + number] = 0

    def settle(self, number: int) -> None:
        """Let a rollback keep a primitive as it is now: it was just made, perhaps in an epoch."""
        page = self._pages[1 + number]
        page[LOGICAL : 2 * LOGICAL] = page[:LOGICAL]

    def save(self) -> None:
        """Remember all logical words, for ``restore``."""
        used = 1 + self.slot.words[PRIMITIVES]
        self._pages[:used, LOGICAL : 2 * LOGICAL] = self._pages[:used, :LOGICAL]

    def restore(self) -> None:
        """Put all logical words back to what they were at ``save``."""
        used = 1 + self.slot.words[PRIMITIVES]
        self._pages[:used, :LOGICAL] = self._pages[:used, LOGICAL : 2 * LOGICAL]

    @property
    def blob(self) -> bytes:
        """Opaque bytes of the runtime, rolled back like everything else."""
        copy, length = divmod(self.slot.words[BLOB], 1 << 32)
        return bytes(self._blobs[copy * BLOB_BYTES : copy * BLOB_BYTES + length])

    @blob.setter
    def blob(self, value: bytes) -> None:
        if len(value) > BLOB_BYTES:
            raise BadValueError(
                f"The slot's blob of {len(value)} bytes is too large.",
                why=f"It is kept in the header, which has {BLOB_BYTES} bytes for it.",
                do="Keep only what is needed to go on with the next epoch.",
            )
        taken = {self.slot.words[BLOB] >> 32, self.slot.saved(BLOB) >> 32}
        copy = next(copy for copy in range(_BLOB_COPIES) if copy not in taken)
        self._blobs[copy * BLOB_BYTES : copy * BLOB_BYTES + len(value)] = value
        self.slot.words[BLOB] = copy << 32 | len(value)  # one store switches to the new copy
