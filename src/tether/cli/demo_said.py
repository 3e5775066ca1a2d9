"""What the demo's figures say, in words: made of what was measured, whatever the result."""

from __future__ import annotations

from typing import Any

CLOSE = 0.05
"""Two figures that are no further apart than this are called the same."""


def times(ours: float, theirs: float, more: str, less: str) -> str:
    """How two figures compare.

    Example:
        >>> times(300, 100, "as many", "as few"), times(100, 300, "as many", "as few")
        ('3.0 times as many', '3.0 times as few')
        >>> times(101, 100, "as many", "as few")
        'about the same'
    """
    if not ours or not theirs:
        return "not to be compared"
    if abs(ours / theirs - 1) <= CLOSE:
        return "about the same"
    ratio, word = (ours / theirs, more) if ours > theirs else (theirs / ours, less)
    return f"{ratio:.1f} times {word}"


def in_words(result: dict[str, Any]) -> list[str]:
    """The demo's last lines."""
    ours, theirs, healed = result["tether"], result["spark"], result["healed"]
    speed = times(ours["rows_per_second"], theirs["rows_per_second"], "as fast", "as slow")
    written = times(ours["bytes_written"], theirs["bytes_written"], "as much", "as little")
    silent = times(ours["pause"], theirs["pause"], "as long", "as short")
    return [
        f"Every request to the store took {result['latency_ms']:g} ms, as an object store's do. Spark's "
        f"RocksDB store sent {theirs['requests_per_epoch']:.0f} an epoch: {_rate(theirs)}. Tether sent "
        f"{ours['requests_per_epoch']:.0f}: {_rate(ours)}, {speed}.",
        f"Spark made {_mb(theirs)} durable: every change of every epoch. Tether made {_mb(ours)}, "
        f"{written}: what had drifted by more than θ, {ours['theta']:,.0f} now, and an exact state to "
        "heal from.",
        f"Both were killed, driver and all. Spark's stream stood still for {theirs['pause']:.1f} s, "
        f"Tether's for {ours['pause']:.1f} s, {silent}; {theirs['up_again']:.1f} s and "
        f"{ours['up_again']:.1f} s of it until Spark itself was up again.",
        _error(ours, theirs),
        _healing(ours, healed),
    ]


def _rate(side: dict[str, Any]) -> str:
    return f"{side['rows_per_second'] / 1e3:,.0f},000 words a second"


def _mb(side: dict[str, Any]) -> str:
    return f"{side['bytes_written'] / 1e6:.1f} MB"


def _error(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    exact = theirs["worst_error"]
    spark = "Spark's answer was exact." if exact == 0 else f"Spark's answer was wrong by {exact:,}."
    if ours["outside"]:
        return f"{spark} Tether's was OUTSIDE ITS BOUND: wrong by {ours['worst_error']:,}."
    return (
        f"{spark} Tether's was wrong by {ours['worst_error']:,} for the worst word. It had said: "
        f"by at most {ours['spent']:,.0f} now, and never by more than {ours['promised']:,.0f}."
    )


def _healing(ours: dict[str, Any], healed: dict[str, Any]) -> str:
    if not healed["whole"]:
        return "What was lost has not been read again in time: the bound goes on covering it."
    if not ours["healing_when_counted"]:
        return "What was lost had been read again before the last epoch: nothing was wrong by then."
    if healed["outside"] or healed["worst_error"]:
        return f"Healing ended with an error of {healed['worst_error']:,}: please report it."
    return (
        f"{healed['seconds']:.1f} s after the kill Tether had read again what was lost, beside the "
        f"running stream: error {healed['worst_error']:,}, bound {healed['spent']:,.0f}."
    )
