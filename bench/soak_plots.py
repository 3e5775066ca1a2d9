"""The samples of a soak as pictures, one below the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def draw(report: dict[str, Any], path: Path) -> None:
    """Write an SVG with one curve a measure; the part that is judged is shaded."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("svg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    from bench.soak_samples import SETTLING  # noqa: PLC0415

    measures, samples = report["measures"], report["samples"]
    minutes = [seconds / 60 for seconds in samples["seconds"]]
    figure, axes = plt.subplots(
        len(measures), 1, sharex=True, figsize=(8, 1.7 * len(measures)), layout="constrained"
    )
    for axis, (name, found) in zip(axes, measures.items(), strict=True):
        axis.plot(minutes, samples[name], linewidth=0.8)
        judged_from = minutes[0] + SETTLING * (minutes[-1] - minutes[0])
        axis.axvspan(judged_from, minutes[-1], color="0.95")
        axis.set_ylim(bottom=0)
        unit = f", {found['unit']}" if found["unit"] else ""
        axis.set_title(f"{found['what']}{unit}: {'flat' if found['flat'] else 'grows'}", fontsize=9)
    axes[-1].set_xlabel("minutes")
    figure.savefig(path, format="svg")
    plt.close(figure)
