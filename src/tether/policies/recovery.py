"""Recovery strategies: what a policy promises after a loss, and what the runtime must keep for that.

A policy names one of these strategies. The engine carries it out (:mod:`tether.engine.recovery`), and
uses its properties instead of the type of the policy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A strategy; use one of the five below.

    Example:
        >>> REPLAY.exact, REPLAY.logs_rows, FROM_BACKUP.exact
        (True, True, False)
    """

    name: str
    exact: bool = True
    """Whether the answer after a loss is the same as without it."""
    bounded: bool = True
    """Whether it is known how much a loss can cost at most."""
    every_epoch: bool = False
    """Whether every epoch must leave a commit record: an older one would be a wrong answer."""
    every_change: bool = False
    """Whether each change is backed up in its own epoch, so that an old backup can be current."""
    logs_rows: bool = False
    """Whether a slot's rows are made durable before it processes them."""
    counts_all: bool = False
    """Whether a slot counts a failure whenever its state was gone, also where that cost nothing."""
    rewinds: bool = False
    """Whether slots go back together, to a snapshot, and the stream is read again from there."""


EMPTY = Recovery(name="nothing", exact=False, bounded=False)
"""The slot starts again with the state that operators start with."""

FROM_BACKUP = Recovery(name="within-bound", exact=False)
"""The slot continues from its newest backup; the bound covers the rest."""

LAST_EPOCH = Recovery(name="last-epoch", every_epoch=True, every_change=True)
"""The slot continues from its backup, which holds the end of the epoch before."""

REPLAY = Recovery(name="replay", every_epoch=True, logs_rows=True, counts_all=True)
"""The slot restores its backup, and processes its logged rows since then again."""

FROM_SNAPSHOT = Recovery(name="rewind", rewinds=True, counts_all=True)
"""Slots restore their parts of the newest complete snapshot; see :mod:`tether.protocols.rewind`."""
