"""The buttons: what the running query can be asked for, once, or after being asked twice."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from tether.core.errors import BadValueError, TetherError

if TYPE_CHECKING:
    from tether.observe.feed import Feed

ASKED_SECONDS = 30.0
"""How long a second question stands."""
TWICE = {
    "drill": "This kills a process of the running query, for real, to show what a failure costs.",
}


class Actions:
    """Carries out what is asked for; drills only where the server was told to allow them.

    Args:
        drills: Whether a drill may be asked for.
    """

    def __init__(self, *, drills: bool) -> None:
        self._drills = drills
        self._asked: dict[str, tuple[str, str, float]] = {}

    def ask(self, feed: Feed, name: str, confirm: str = "") -> dict[str, str]:
        """Do it, and say what was done; or give the question that has to be answered first.

        Args:
            feed: Of the query.
            name: Of the action.
            confirm: What the question came with.

        Raises:
            TetherError: The query cannot do this, or it is not allowed, or it failed.
        """
        action = feed.actions.get(name)
        if action is None or feed.query is None:
            raise BadValueError(
                f"The query cannot be asked for {name!r}.",
                why="It is over, or its policy knows no such thing.",
            )
        if name == "drill" and not self._drills:
            raise BadValueError(
                "Drills are off.", do="Serve the page with drills=True to allow them."
            )
        if name in TWICE and not self._confirmed(confirm, feed.query.id, name):
            code = secrets.token_urlsafe(16)
            self._asked = {code: (feed.query.id, name, time.monotonic())}
            return {"ask": TWICE[name], "confirm": code}
        return {"done": action()}

    def _confirmed(self, code: str, query: str, name: str) -> bool:
        asked = self._asked.pop(code, None)
        if asked is None:
            return False
        return asked[:2] == (query, name) and time.monotonic() - asked[2] < ASKED_SECONDS


def told(error: Exception) -> dict[str, str]:
    """An error as the page shows it."""
    if isinstance(error, TetherError):
        return {"error": " ".join(filter(None, (error.what, error.why, error.do)))}
    return {"error": f"{type(error).__name__}: {error}"}
