"""The identity of an arena: what must be the same for its content to be usable."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tether.process import Owner, boot_id
from tether.state.header import LAYOUT

__all__ = ["Identity", "Owner", "boot_id"]


@dataclass(frozen=True)
class Identity:
    """Everything that an arena's content depends on. Any difference makes it unusable."""

    query: str
    """Name or id of the query, unique on this node."""
    operator: str
    slot: int
    slots: int
    """Number of slots of the operator, which decides to which slot a key belongs."""
    fingerprint: str
    """Digest of the program: operator code, state schema, policy."""
    boot: str = field(default_factory=boot_id)
    layout: int = LAYOUT

    def to_dict(self) -> dict[str, Any]:
        """The identity as plain values."""
        return asdict(self)

    def difference(self, other: dict[str, Any]) -> str:
        """Why an arena of another identity cannot be used; empty if it is the same."""
        for entry in fields(self):
            mine, theirs = getattr(self, entry.name), other.get(entry.name)
            if mine != theirs:
                return f"{_MEANING[entry.name]} ({theirs!r} there, {mine!r} here)"
        return ""


_MEANING = {
    "query": "it belongs to another query",
    "operator": "it belongs to another operator",
    "slot": "it belongs to another slot",
    "slots": "the operator had another number of slots",
    "fingerprint": "the program has changed",
    "boot": "the machine was started again since",
    "layout": "it was written by another version of Tether",
}
