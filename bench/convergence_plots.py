"""Plots of convergence, as PNG and SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from bench.convergence_runs import Run


def draw(directory: Path, name: str, title: str, runs: dict[str, Run]) -> list[str]:
    """Two panels: the L1 norm of the change per iteration, and the test loss.

    Returns:
        Names of the files; none where matplotlib is not installed (``tether[plots]``).
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for label, run in runs.items():
            left.semilogy(np.arange(5, len(run.l1_change) + 1), run.smoothed, label=label)
            right.plot(np.arange(1, len(run.test_loss) + 1), run.test_loss, label=label)
        left.set(xlabel="iteration", ylabel="L1 norm of the change (mean of 5)")
        right.set(xlabel="iteration", ylabel="test loss (nats)")
        left.legend()
        figure.suptitle(title)
        for kind in ("png", "svg"):
            # Without a date the same run gives the same file.
            figure.savefig(
                directory / f"{name}.{kind}", metadata={"Date": None} if kind == "svg" else None
            )
    return [f"{name}.png", f"{name}.svg"]
