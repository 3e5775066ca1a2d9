"""Who sends to a stream now, and what dying producers may have lost: at most γ each, Γ in all.

A producer that breaks off may be back with its memory (a broken connection) or never (it was
killed). Until it is back, or has said goodbye, its γ counts as possibly lost. If another process
takes over its name, the γ of the old one is lost for good, unless the new one can read everything
again from where it keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.core.budget import Budget
from tether.core.ids import Failures
from tether.core.placement import Placement
from tether.core.thresholds import after_failures, initial_thresholds
from tether.sources.gateway.errors import SupersededError
from tether.sources.gateway.records import Account, OpenProducer

if TYPE_CHECKING:
    from tether.sources.gateway.messages import Hello


class Census:
    """Live connections by producer. The stream's lock guards it."""

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}
        self._next = 0

    @property
    def connected(self) -> int:
        """Producers with a connection."""
        return len(self._sessions)

    def enter(self, producer: str) -> int:
        """A producer has connected; an elder connection of it counts no more."""
        self._next += 1
        self._sessions[producer] = self._next
        return self._next

    def check(self, producer: str, session: int | None) -> None:
        """Refuse what comes over a connection that another one has replaced."""
        if session is not None and self._sessions.get(producer) != session:
            raise SupersededError(
                f"The producer {producer!r} has another connection, which has taken over.",
                why="Two senders under one id could not be told apart.",
                do="Give every producer an id of its own; or let this one end.",
            )

    def leave(self, producer: str, session: int) -> None:
        """A connection has ended."""
        if self._sessions.get(producer) == session:
            del self._sessions[producer]

    def missing(self, account: Account) -> float:
        """Most items that producers may have lost that are not here now, or never come back."""
        away = (
            one.max_unacked for name, one in account.producers.items() if name not in self._sessions
        )
        return sum(away) + sum(account.died)


def entered(account: Account, producer: str, hello: Hello, gamma: float) -> Account:
    """The account after a producer has connected.

    Example:
        >>> from tether.sources.gateway.messages import Hello
        >>> first = Hello(stream="s", producer="p", life="a")
        >>> account = entered(Account(), "p", first, 10.0)
        >>> again = Hello(stream="s", producer="p", life="b")
        >>> entered(account, "p", again, 10.0).died
        (10.0,)
    """
    before = account.producers.get(producer)
    now = OpenProducer(life=hello.life, max_unacked=gamma)
    if before is not None and before.life != hello.life and not hello.replays:
        account = replace(account, died=(*account.died, before.max_unacked))
    if before is not None and before.life == hello.life:
        now = replace(now, max_unacked=max(gamma, before.max_unacked))
    return replace(account, producers={**account.producers, producer: now})


def left(account: Account, producer: str) -> Account:
    """The account after a producer has ended in good order."""
    rest = {name: one for name, one in account.producers.items() if name != producer}
    return replace(account, producers=rest)


def share_of_losses(max_lost: float, failures: int) -> float:
    """L of a gateway: half of L, halved by every loss (AF-Stream 2019 §3.5.2).

    Example:
        >>> share_of_losses(10_000, 0), share_of_losses(10_000, 2)
        (5000.0, 1250.0)
    """
    whole = initial_thresholds(Budget(max_lost_items=max_lost), Placement())
    return after_failures(whole, Failures(failures)).l


def share_of_unacked(max_unacked: float, producers: int, deaths: int) -> float:
    """γ of one producer, given the number of producers and how many of them have died so far.

    Example:
        >>> share_of_unacked(1000, 5, 0)
        100.0
    """
    whole = initial_thresholds(Budget(max_unacked_items=max_unacked), Placement(copies=producers))
    return after_failures(whole, Failures(deaths)).gamma
