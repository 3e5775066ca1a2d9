"""The three ways to look at changes."""

from __future__ import annotations

from typing import Literal, get_args

from tether.core.errors import BadValueError

View = Literal["stable", "newest", "history"]
"""``stable``: final rows only. ``newest``: for each epoch the stable rows if they are there, else the
tentative ones. ``history``: every change in the order in which it was made."""


def check_view(view: str) -> None:
    """Refuse an unknown view.

    Raises:
        BadValueError: Names the known views.
    """
    if view not in get_args(View):
        raise BadValueError(
            f"view={view!r} is not known.", do='Use "stable", "newest" or "history".'
        )
