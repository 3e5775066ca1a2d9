"""How plots look: colours that the colour-blind can tell apart, text that stays text, no frames."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tether.core.errors import TetherError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Okabe and Ito's palette: distinct for all common kinds of colour blindness.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY, BLACK = "#CC79A7", "#56B4E9", "#8C8C8C", "#222222"
KINDS = {"tether": BLUE, "spark": ORANGE, "peer": GREEN, "limit": GREY}
KIND_NAMES = {
    "tether": "Tether",
    "spark": "Spark's own",
    "peer": "another system",
    "limit": "a limit: nothing durable",
}
LINES = {
    "tether": [BLUE, SKY],
    "spark": [ORANGE, RED],
    "peer": [GREEN, PURPLE],
    "limit": [GREY, BLACK],
}
MARKERS = "osD^vPX"


class Plot(NamedTuple):
    """A picture with what must be said about it."""

    name: str
    title: str
    svg: str
    caption: str
    command: str


@contextmanager
def drawing(name: str, width: float, height: float) -> Iterator[tuple[Any, list[str]]]:
    """A figure; its SVG is appended to the list when the block ends.

    Raises:
        TetherError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        raise TetherError(
            "The report cannot be drawn.",
            why="matplotlib is not installed.",
            do="Install Tether's extra: tether[plots].",
        ) from None
    settings: dict[Any, Any] = {
        "svg.hashsalt": name,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titleweight": "bold",
        "axes.titlesize": 11,
        "hatch.linewidth": 0.6,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained")
        out: list[str] = []
        yield figure, out
        file = io.StringIO()
        # Without a date the same results give the same file.
        figure.savefig(file, format="svg", metadata={"Date": None})
        text = file.getvalue()
        text = text[text.index("<svg") :]
        # Scales with the page; the size in points stays as the view box.
        text = re.sub(r' width="[\d.]+pt"| height="[\d.]+pt"', "", text, count=2)
        out.append(text)


def short(number: float) -> str:
    """A number for people.

    Example:
        >>> short(1_234_567), short(45_300), short(812), short(3.14159)
        ('1.23 M', '45.3 k', '812', '3.14')
    """
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
