"""The state of a policy for a slot between events: the fields that all policies share."""

from __future__ import annotations

import msgspec

from tether.core.ids import Failures


class SlotPolicyState(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every policy's state has; a policy adds others in a type of its own.

    It is stored beside the resident state and in commit records. A query may be restarted under another
    policy: the new policy reads these two fields of the old state, and ignores the others.
    """

    failures: Failures = Failures(0)
    """k: losses of resident state recovered from so far (in the window, if there is one)."""
    items: int = 0
    """Rows taken in so far. Kept only for a window that is counted in items, and by exact policies."""
