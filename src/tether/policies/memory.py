"""What a policy remembers of a slot between events."""

from __future__ import annotations

import msgspec


class SlotPolicyState(msgspec.Struct, frozen=True, kw_only=True):
    """All that a policy remembers of one slot between events."""

    failures: int = 0
    """k: losses of resident state recovered from so far (in the window, if there is one)."""
    failed_at: tuple[float, ...] = ()
    """Where in the stream those losses were, elder first, in the window's unit: the newest thing
    that may be wrong. Kept only for a window; one whose place is not yet known has no entry."""
    items: int = 0
    """Rows taken in so far. Kept only for a window that is counted in items, and for a policy that
    backs up every so many items."""
    items_saved: int = 0
    """Rows taken in as of the newest backup of the state. Kept only for such a policy."""
    part: int | None = None
    """Newest snapshot that the slot has written a part of: what its next part can build on."""
