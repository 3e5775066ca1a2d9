"""The report: one page made of all results that are there, with what is missing named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.report import availability, bars, copies, curves, glance, page, silences
from bench.report.load import load
from tether.core.errors import TetherError

if TYPE_CHECKING:
    from pathlib import Path

    from bench.report.load import Measured
    from bench.report.style import Plot

FIGURES = (
    glance.at_a_glance,
    bars.throughput,
    curves.intervals,
    curves.checkpoint_intervals,
    bars.durable_bytes,
    curves.recovery,
    curves.error_against_bound,
    curves.growth,
    bars.speed_kept,
    bars.epoch_times,
    copies.fidelity_and_accuracy,
    copies.planners_on_queries,
    copies.random_topologies,
    availability.recovery_latency,
    availability.fidelity_through_failures,
    availability.cost_of_copies,
    silences.against_alpha,
    silences.against_length_of_failure,
    silences.along_a_chain,
    silences.checkpoint_and_undo,
    silences.against_bucket,
)


def plots_of(measured: Measured) -> list[Plot]:
    """All pictures that the results allow, in the order of the page."""
    return [plot for figure in FIGURES for plot in figure(measured)]


def write_report(results: Path, target: Path, known: list[str]) -> list[Path]:
    """Write ``report.html``, ``report.md`` and the Markdown's pictures.

    Args:
        results: Folder with the JSON files of ``tether bench``.
        target: Folder to write to.
        known: Names of all experiments, to say which have no results.

    Returns:
        The two pages.

    Raises:
        TetherError: There are no results at all.
    """
    measured = load(results, known)
    if not measured.reports:
        raise TetherError(
            "There is nothing to report.",
            why=f"{results.name} holds no results of an experiment.",
            do="Measure first: tether bench peers --quick.",
        )
    plots = plots_of(measured)
    images = target / "images"
    images.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        (images / f"measured-{plot.name}.svg").write_text(plot.svg + "\n", encoding="utf-8")
    pages = {
        target / "report.html": page.as_html(measured, plots),
        target / "report.md": page.as_markdown(measured, plots, "images/measured-"),
    }
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return list(pages)
