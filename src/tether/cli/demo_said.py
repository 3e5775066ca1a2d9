"""What the demo's figures say, in words: made of what was measured, whatever the result."""

from __future__ import annotations

from typing import Any

CLOSE = 0.05
"""Two figures that are no further apart than this are called the same."""


def times(ours: float, theirs: float, more: str, less: str) -> str:
    """How two figures compare.

    Example:
        >>> times(300, 100, "more", "fewer"), times(100, 300, "more", "fewer")
        ('3.0 times more', '3.0 times fewer')
        >>> times(101, 100, "more", "fewer")
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
    speed = times(ours["rows_per_second"], theirs["rows_per_second"], "as fast", "slower")
    written = times(ours["bytes_written"], theirs["bytes_written"], "more", "less")
    silent = times(ours["pause"], theirs["pause"], "longer", "shorter")
    return [
        f"Speed. Every request to the store took {result['latency_ms']:g} ms, as an object store's do. "
        f"Spark's RocksDB store sent {theirs['requests_per_epoch']:.0f} an epoch and counted "
        f"{rounded(theirs['rows_per_second'])} words a second. Tether sent "
        f"{ours['requests_per_epoch']:.0f} and counted {rounded(ours['rows_per_second'])}: {speed}.",
        f"Writing. Spark made every change of every epoch durable: {_mb(theirs)}. Tether wrote "
        f"{_mb(ours)}, {written}: what had drifted by more than a slot may (θ, "
        f"{ours['theta']:,.0f} now), and an exact state to heal from.",
        f"The kill. Both died whole, driver and all. Spark's stream stood still for "
        f"{theirs['pause']:.1f} s, Tether's for {ours['pause']:.1f} s: {silent}. Of that, "
        f"{theirs['up_again']:.1f} s and {ours['up_again']:.1f} s passed until Spark itself was up "
        "again.",
        _error(ours, theirs),
        _healing(ours, healed),
    ]


def rounded(figure: float) -> str:
    """Three digits of a figure: the next ones would be others in the next run.

    Example:
        >>> rounded(167_432.1), rounded(84.21), rounded(0.0)
        ('167,000', '84', '0')
    """
    size = len(str(int(figure)))
    return f"{round(figure, min(0, 3 - size)):,.0f}"


def _mb(side: dict[str, Any]) -> str:
    return f"{side['bytes_written'] / 1e6:.1f} MB"


def _error(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    exact = theirs["worst_error"]
    spark = "Spark's was exact." if exact == 0 else f"Spark's was wrong by {exact:,}."
    if ours["outside"]:
        return (
            f"The answer. {spark} Tether's was OUTSIDE ITS BOUND: wrong by {ours['worst_error']:,}."
        )
    return (
        f"The answer. {spark} Tether's was wrong by {ours['worst_error']:,} for the worst word. It had "
        f"said: by at most {ours['spent']:,.0f} now, and never by more than {ours['promised']:,.0f}. "
        "The bound held."
    )


def _healing(ours: dict[str, Any], healed: dict[str, Any]) -> str:
    if not healed["whole"]:
        return (
            "Healing. What was lost has not been read again in time: the bound goes on covering it."
        )
    if healed["outside"] or healed["worst_error"]:
        return f"Healing. It ended with an error of {healed['worst_error']:,}: please report it."
    if not ours["healing_when_counted"]:
        return (
            "Healing. What was lost had been read again before the last epoch: nothing was wrong by "
            "then."
        )
    return (
        f"Healing. {healed['seconds']:.1f} s after the kill Tether had read again what was lost, beside "
        f"the running stream: error {healed['worst_error']:,}, bound {healed['spent']:,.0f}."
    )
