"""Metrics as a scraper reads them, the dashboard made of them, spans."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tether.observe.facts import EpochFigures
from tether.observe.feed import Feed
from tether.observe.metrics import exposition
from tether.observe.plotting import plot
from tether.observe.spans import trace
from tether.observe.story import Event
from tether.testing.feeds import MadeUpQuery

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana-dashboard.json"


def feed() -> Feed:
    query = MadeUpQuery(Feed(), slots=6, began=time.time() - 30, name='a "query"\\ of\nmine')
    for number in range(50):
        if number == 25:
            query.fail()
        query.epoch()
    return query.feed


def samples(*feeds: Feed) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(exposition(feeds).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_samples_are_the_feeds_figures() -> None:
    told = feed()
    found, total, last = samples(told), told.history.total, told.history.newest
    assert last is not None
    [(labels, spent)] = found["tether_bound_spent"]
    assert (labels["query"], spent) == ('a "query"\\ of\nmine', last.spent)
    assert found["tether_rows_in_total"][0][1] == total.rows_in
    by_cause = {labels["cause"]: value for labels, value in found["tether_backups_total"]}
    assert by_cause == total.backups
    assert found["tether_failures_total"][0][1] == 1
    assert found["tether_losses_total"][0][1] == 2
    assert found["tether_up"][0][1] == 1
    told.close("stopped")
    assert samples(told)["tether_up"][0][1] == 0


def test_what_has_no_limit_is_infinite_and_nothing_is_no_error() -> None:
    told = feed()
    told.take(EpochFigures(at=time.time(), epoch=99, promised=None, spent=None))
    assert samples(told)["tether_bound_spent"][0][1] == float("inf")
    assert "tether_bound_spent" not in samples(Feed())


def test_every_query_of_the_dashboard_names_real_metrics_and_labels() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found = samples(feed())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked.append(board["templating"]["list"][1]["query"]["query"])
    assert len(asked) > 15
    for expression in asked:
        names = re.findall(r"tether_\w+", re.sub(r"\{[^}]*\}", "", expression))
        assert names, expression
        for name in names:
            assert name in found, (expression, name)
        labels = {label for name in names for told, _ in found[name] for label in told}
        for label in re.findall(r"(\w+)(?:=~|!=|!~|=)\"", expression):
            assert label in labels, (expression, label)
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", group)) <= labels, expression
    shown = {name for expression in asked for name in re.findall(r"tether_\w+", expression)}
    unseen = set(found) - shown - {"tether_query_info", "tether_slots", "tether_epoch"}
    assert unseen <= {"tether_resident_bytes", "tether_changed_entries_total"}


def test_spans_of_backups_and_restores() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    told = Feed()
    trace(told, provider.get_tracer("test"))
    query = MadeUpQuery(told, slots=4, began=time.time() - 30)
    for _ in range(20):
        query.epoch()
    query.fail()
    told.event(Event(at=100.0, epoch=3, what="backup", cause="theta", detail={"seconds": 0.5}))
    spans = exporter.get_finished_spans()
    kinds = {span.name for span in spans}
    assert kinds == {"tether.backup", "tether.restore"}
    last = spans[-1]
    assert last.end_time - last.start_time == pytest.approx(0.5e9, rel=1e-6)
    restore = next(span for span in spans if span.name == "tether.restore")
    assert [event.name for event in restore.events][:2] == ["find begins", "read begins"]
    assert restore.attributes["tether.bound"] <= restore.attributes["tether.allowed"]


@pytest.mark.parametrize("end", ["taken-over", "twin-lost", "no-twin", "stopped"])
def test_a_twin_is_a_span_however_it_ends(end: str) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    told = Feed()
    trace(told, provider.get_tracer("test"))
    began = time.time()
    told.event(Event(at=began, epoch=3, what="twin", cause="it starts from a snapshot"))
    assert exporter.get_finished_spans() == ()
    if end == "stopped":
        told.close("stopped")
    else:
        told.event(Event(at=began + 2, epoch=9, what=end, cause="why"))  # type: ignore[arg-type]
    [span] = exporter.get_finished_spans()
    assert (span.name, span.attributes["tether.ended_by"]) == ("tether.twin", end)
    if end != "stopped":
        assert span.end_time - span.start_time == pytest.approx(2e9, rel=1e-6)


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    plot(feed()).savefig(tmp_path / "feed.png")
    assert (tmp_path / "feed.png").stat().st_size > 10_000
