"""What a policy remembers of a slot between events: the part that all policies share."""

from __future__ import annotations

import msgspec

from tether.core.ids import Failures


class SlotPolicyState(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime may ask of any policy's state; a policy adds fields in a type of its own.

    It is stored beside the resident state and in commit records. A query may be restarted under another
    policy: that one reads these two fields of the old one's state, and ignores the rest.
    """

    failures: Failures = Failures(0)
    """k: losses of resident state recovered from so far (in the window, if there is one)."""
    items: int = 0
    """Rows taken in so far. Kept only for a window that is counted in items, and by exact policies."""
