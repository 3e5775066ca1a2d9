"""A feed as a picture: the bound, how full the fullest slot is, backups, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.errors import BadValueError, TetherError

if TYPE_CHECKING:
    from tether.observe.feed import Feed

WELL, RISK, LOST, SOFT = "#1268a3", "#b87a00", "#a83a08", "#5d6878"
CAUSES = {
    "theta": WELL,
    "every-epoch": "#028d5d",
    "every-items": "#874375",
    "snapshot": "#5296d9",
    "compaction": RISK,
    "flush": "#7c8591",
    "items": "#70552c",
}
"""The live page's colours: told apart by the colour-blind too."""


def plot(feed: Feed) -> Any:
    """Draw a feed; give the matplotlib figure.

    Raises:
        BadValueError: No epoch has ended yet.
        TetherError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise TetherError(
            "The picture cannot be drawn.",
            why="matplotlib is not installed.",
            do="Install it with: pip install 'tether[plots]'",
        ) from error
    epochs = feed.epochs()
    if not epochs:
        raise BadValueError("There is nothing to draw: no epoch has ended yet.")
    x = [one.epoch for one in epochs]
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    bound, fullness, backups = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    bound.fill_between(x, [one.worst or 0 for one in epochs], color=RISK, alpha=0.3, linewidth=0)
    bound.plot(x, [one.worst or 0 for one in epochs], color=RISK, label="if every slot died")
    spent = [one.spent or 0 for one in epochs]
    bound.plot(x, spent, color=LOST, drawstyle="steps-post", label="lost so far, at most")
    if (promised := epochs[-1].promised) is not None:
        bound.axhline(promised, color=SOFT, linestyle="--", label="budget")
    bound.set_ylabel("error")
    # Above its axes: a line that goes up may be anywhere in them.
    above = {"loc": "lower right", "bbox_to_anchor": (1, 1), "frameon": False, "borderaxespad": 0.1}
    bound.legend(**above, ncols=3)
    fullness.plot(x, [one.fullness for one in epochs], color=WELL)
    fullness.axhline(1, color=RISK, linestyle="--")
    fullness.set_ylabel("fullest slot, of θ")
    causes = sorted({cause for one in epochs for cause in one.backups})
    bottom = [0] * len(x)
    for cause in causes:
        counts = [one.backups.get(cause, 0) for one in epochs]
        backups.bar(x, counts, bottom=bottom, width=1.0, label=cause, color=CAUSES.get(cause, SOFT))
        bottom = [low + more for low, more in zip(bottom, counts, strict=True)]
    if causes:
        backups.legend(**above, ncols=len(causes))
    backups.set_ylabel("backups")
    backups.set_xlabel("epoch")
    for failure in feed.failures_after():
        for axes in (bound, fullness, backups):
            axes.axvline(failure.epoch, color=LOST, linewidth=1, alpha=0.7)
    for axes in (bound, fullness, backups):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    name = feed.query.name if feed.query else "query"
    figure.suptitle(f"{name} (upright lines: failures)", x=0.01, ha="left")
    return figure
