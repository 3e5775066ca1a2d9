"""The report as one HTML page that needs nothing beside it, and as Markdown with pictures beside it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from bench.report.load import Measured, command_of

if TYPE_CHECKING:
    from bench.report.style import Plot

TITLE = "Tether, side by side"
INTRODUCTION = (
    "Every contender reads the same files with the same number of cores; rounds are interleaved; the "
    "answer of every run is checked before its time counts; ratios are medians over rounds of the ratio "
    "within a round. Every Spark contender has the same checkpoint file manager, one that forks no "
    "helper processes. What is lost is shown as what is won."
)
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.9rem; margin-bottom: .3rem; } h2 { margin-top: 2.6rem; border-bottom: 1px solid #ddd; }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; }
figcaption, .small { color: #555; font-size: .9rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.met { color: #005a8c; font-weight: 600; } .not { color: #a33b00; font-weight: 600; }
code { background: #f3f3f3; padding: .1rem .3rem; border-radius: 3px; font-size: .88em; }
code { overflow-wrap: anywhere; }
"""

Row = list[str]


def goal_rows(measured: Measured) -> list[Row]:
    """All goals: those that are not reached first."""
    rows = []
    for name, report in measured.reports.items():
        for goal in report["goals"]:
            value = goal["value"]
            # A scenario file of its own leaves most goals of the experiment unmeasured: no news.
            if value is None and "was not measured: it is not among" in goal.get("why", ""):
                continue
            state = "met" if goal["met"] else ("not measured" if value is None else "NOT met")
            form = "quick" if report.get("quick") else "full"
            shown = goal.get("why", "") if value is None else _number(value)
            rows.append([goal["id"], goal["target"], shown, state, form, name])
    return sorted(rows, key=lambda row: (row[3] == "met", row[0]))


def _number(value: float) -> str:
    """Four digits, and never an exponent.

    Example:
        >>> _number(1_294_870.0), _number(0.04821), _number(0)
        ('1,294,870', '0.04821', '0')
    """
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def lost_rows(measured: Measured) -> list[Row]:
    """Every contender that was faster than Tether's, by scenario."""
    rows = []
    by_scenario: dict[str, list[dict[str, Any]]] = {}
    for result in measured.results("peers"):
        by_scenario.setdefault(result["scenario"], []).append(result)
    for scenario, results in by_scenario.items():
        for ours in (one for one in results if one["kind"] == "tether"):
            for other in results:
                times = other["rows_per_second"] / ours["rows_per_second"]
                if other["kind"] != "tether" and times > 1:
                    what = "a limit: nothing durable" if other["kind"] == "limit" else "a peer"
                    rows.append([scenario, ours["label"], other["label"], f"{times:.2f}×", what])
    return sorted(rows, key=lambda row: (row[4] != "a peer", row[0], row[1]))


def request_rows(measured: Measured) -> list[Row]:
    """Requests that an epoch sent to a slow store, where there was one."""
    return [
        [
            one["scenario"],
            one["label"],
            f"{one['detail']['requests_per_epoch']:g}",
            f"{one['median_ms']:,.0f}",
        ]
        for one in measured.results("peers")
        if one.get("detail", {}).get("requests_per_epoch")
    ]


def skipped_rows(measured: Measured) -> list[Row]:
    """What was left out, and why."""
    return [
        [what, why]
        for report in measured.reports.values()
        for what, why in report.get("skipped", {}).items()
    ]


def environment_rows(measured: Measured) -> list[Row]:
    """Where and when each report was measured."""
    rows = []
    for name, report in measured.reports.items():
        where = ", ".join(f"{key} {value}" for key, value in report["environment"].items())
        rows.append([name, where, command_of(report)])
    return rows


TABLES: list[tuple[str, str, list[str], Any]] = [
    (
        "Goals",
        "What the issues ask for, those not reached first.",
        ["goal", "asked", "measured", "", "form", "results"],
        goal_rows,
    ),
    (
        "Where Tether is slower",
        "Every contender that was faster than one of ours, and by how much.",
        ["scenario", "ours", "faster", "by", "what it is"],
        lost_rows,
    ),
]
LAST_TABLES: list[tuple[str, str, list[str], Any]] = [
    (
        "Requests to the slow store",
        "With start, loading and Spark's own logs of offsets and commits, shared out over all epochs.",
        ["scenario", "contender", "requests an epoch", "milliseconds an epoch"],
        request_rows,
    ),
    ("Left out", "Contenders that could not run here.", ["contender", "why"], skipped_rows),
    (
        "Measured where, and again how",
        "One command for each.",
        ["results", "environment", "command"],
        environment_rows,
    ),
]


def as_html(measured: Measured, plots: list[Plot]) -> str:
    """One self-contained page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{TITLE}</title><style>{STYLE}</style></head><body>",
        f"<h1>{TITLE}</h1><p>{INTRODUCTION}</p>{_missing_html(measured)}",
    ]
    parts += [_table_html(*table, measured) for table in TABLES]
    for plot in plots:
        parts.append(
            f"<h2 id='{plot.name}'>{html.escape(plot.title)}</h2><figure role='img' "
            f"aria-label='{html.escape(plot.title, quote=True)}'>{plot.svg}<figcaption>"
            f"{html.escape(plot.caption)} Again: {_commands_html(plot.command)}</figcaption></figure>"
        )
    parts += [_table_html(*table, measured) for table in LAST_TABLES]
    return "\n".join([*parts, "</body></html>\n"])


def _commands_html(commands: str) -> str:
    return ", ".join(f"<code>{html.escape(one)}</code>" for one in commands.split("; "))


def _missing_html(measured: Measured) -> str:
    if not measured.missing:
        return ""
    names = ", ".join(f"<code>tether bench {name}</code>" for name in measured.missing)
    return f"<p class='small'>Not measured yet, and so not shown: {names}.</p>"


def _table_html(title: str, text: str, heads: list[str], rows_of: Any, measured: Measured) -> str:
    rows = rows_of(measured)
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(one)}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f"<h2>{html.escape(title)}</h2><p class='small'>{html.escape(text)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(text: str) -> str:
    state = {"met": "met", "NOT met": "not"}.get(text)
    if state:
        return f"<td class='{state}'>{text}</td>"
    if text.startswith("tether bench"):
        return f"<td><code>{html.escape(text)}</code></td>"
    number = text.replace(",", "").removesuffix("×").replace(".", "").isdigit()
    return f"<td{' class=number' if number else ''}>{html.escape(text)}</td>"


def as_markdown(measured: Measured, plots: list[Plot], images: str) -> str:
    """The same for the documentation; pictures are ``{images}NAME.svg``."""
    parts = [f"# {TITLE}", INTRODUCTION]
    if measured.missing:
        names = ", ".join(f"`tether bench {name}`" for name in measured.missing)
        parts.append(f"Not measured yet, and so not shown: {names}.")
    parts += [_table_markdown(*table, measured) for table in TABLES]
    for plot in plots:
        again = ", ".join(f"`{one}`" for one in plot.command.split("; "))
        picture = f"![{plot.title}]({images}{plot.name}.svg)"
        parts.append(f"## {plot.title}\n\n{picture}\n\n{plot.caption} Again: {again}")
    parts += [_table_markdown(*table, measured) for table in LAST_TABLES]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table_markdown(
    title: str, text: str, heads: list[str], rows_of: Any, measured: Measured
) -> str:
    rows = rows_of(measured)
    if not rows:
        return ""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return f"## {title}\n\n{text}\n\n" + "\n".join(lines)
