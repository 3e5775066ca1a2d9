"""A query as a small card of HTML, for notebooks: the bound first."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tether.observe.feed import Feed

_CARD = (
    "border:1px solid #8886;border-radius:12px;padding:14px 18px;max-width:34em;"
    "font-family:system-ui,sans-serif;font-variant-numeric:tabular-nums"
)


_AT_RISK = "repeating-linear-gradient(-55deg,#b87a00 0 5px,#f6e3b8 5px 9px)"
"""Striped, so that it is told from what was lost without colours."""


def amount(value: float | None) -> str:
    """An amount of error as people read it.

    Example:
        >>> amount(1234.2), amount(0.5), amount(None)
        ('1,235', '0.5', '∞')
    """
    if value is None:
        return "∞"
    return f"{value:.3g}" if value < 100 else f"{-(-value // 1):,.0f}"


def _promise(promised: float | None) -> str:
    """What the budget says, in the page's words."""
    if promised is None:
        return "nothing is promised"
    return f"of {amount(promised)}" if promised else "exact: no error is allowed"


def card(feed: Feed) -> str:
    """The card; nothing in it is fetched from anywhere, and names are shown as text.

    Example:
        >>> from tether.observe.feed import Feed
        >>> "no epoch has ended" in card(Feed())
        True
    """
    last, query = feed.history.newest, feed.query
    name = html.escape(query.name if query else "query")
    if last is None:
        return f'<div style="{_CARD}"><b>{name}</b>: no epoch has ended yet</div>'
    state = (feed.ended.how or "stopped") if feed.ended is not None else last.state
    whole = last.promised or last.worst or 1.0
    spent = 100.0 if last.spent is None else min(100.0, 100 * last.spent / whole)
    risk = 100.0 if last.at_risk is None else min(100.0 - spent, 100 * last.at_risk / whole)
    bar = "".join(
        f'<span style="display:inline-block;height:8px;width:{part:.2f}%;background:{fill}"></span>'
        for part, fill in ((spent, "#a83a08"), (risk, _AT_RISK))
    )
    total = feed.history.total
    more = (
        f"epoch {last.epoch:,} · {total.rows_in:,} rows in · "
        f"{sum(total.backups.values()):,} backups, "
        f"{sum(total.backup_bytes.values()) / 1e6:,.1f} MB · {len(feed.failures):,} failures"
    )
    return (
        f'<div style="{_CARD}"><div><b>{name}</b> <span style="opacity:.7">{html.escape(state)}</span>'
        '</div><div style="opacity:.7;margin-top:6px">The answer is wrong by at most</div>'
        f'<div><span style="font-size:2.6em;font-weight:600">{amount(last.spent)}</span> '
        f'<span style="opacity:.7">{_promise(last.promised)}; {amount(last.worst)} if every slot '
        'died now</span></div><div style="background:#8883;border-radius:4px;overflow:hidden;'
        f'line-height:0;margin:6px 0 8px">{bar}</div>'
        f'<div style="opacity:.7;font-size:.9em">{more}</div></div>'
    )
