"""A plan as an SVG picture: the graph with its copied slots, and fidelity against copies."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tether.planning.wiring import pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.planning.plans import Plan, Point
    from tether.planning.topology import Link, Topology

# Okabe and Ito's colours, which people tell apart however they see colours.
BLUE, ORANGE, GREEN, RED, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
BLACK, GREY = "#222222", "#8C8C8C"
LINES = (BLUE, ORANGE, GREEN, RED, PURPLE, BLACK)
COLUMN, HEIGHT, LEFT, TOP = 170, 360, 90, 96
"""Distance of operators, height of their slots, and where they begin, in pixels."""
MOST_LINES = 400
"""Substreams of a link beyond which it is drawn as one band."""


class _Place(NamedTuple):
    x: float
    y: float
    gap: float
    """Distance of two slots."""

    def slot(self, number: int) -> float:
        """Height of a slot."""
        return self.y + number * self.gap


def draw(
    topology: Topology, plan: Plan, curves: Mapping[str, Sequence[Point]] | None = None
) -> str:
    """The text of an SVG file.

    Columns are operators, from the source on the left to the output; circles are slots, filled if
    they get a copy. Below, where curves are given: fidelity against the number of copies.

    Args:
        topology: The topology.
        plan: A plan of it.
        curves: Points by the name of their planner.

    Example:
        >>> from tether.planning import Link, Node, Topology, plan
        >>> topology = Topology((Node("a", 2, rates=1.0), Node("b")), (Link("a", "b"),))
        >>> draw(topology, plan(topology, 2))[:4]
        '<svg'
    """
    places = _places(topology)
    body = [_link(topology, link, places) for link in topology.links]
    body += [_slots(topology, name, places[name], set(plan.numbers(name))) for name in places]
    width = LEFT + max(380, *(place.x for place in places.values())) + 80
    bottom = TOP + HEIGHT + 50
    body += [
        _text(20, 28, _title(topology, plan), size=16, anchor="start"),
        _text(20, 48, _subtitle(plan), anchor="start"),
    ]
    if curves:
        body.append(f'<g transform="translate({LEFT},{bottom})">{_curves(curves, plan)}</g>')
        bottom += 300
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{bottom}" '
        f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(body)}</svg>\n"
    )


def _title(topology: Topology, plan: Plan) -> str:
    return (
        f"{plan.planner}: {len(plan.copied)} copies for {len(topology.slots)} slots, "
        f"output fidelity {plan.fidelity:.3f}"
    )


def _subtitle(plan: Plan) -> str:
    if plan.bound is None:
        return "filled: slots with a copy; fidelity is that with all others lost"
    return f"filled: slots with a copy; no plan of {plan.allowed} copies has more than {plan.bound:.3f}"


def _places(topology: Topology) -> dict[str, _Place]:
    """Positions of the operators: the column is their distance from the source."""
    depth: dict[str, int] = {}
    for name in topology.in_order():
        depth[name] = max((depth[link.source] + 1 for link in topology.inputs_of(name)), default=0)
    places = {}
    for column in range(max(depth.values()) + 1):
        names = [name for name in depth if depth[name] == column]
        slots = [topology.node(name).slots for name in names]
        room = HEIGHT - 34 * (len(names) - 1)
        gap = min(26.0, room / max(1, sum(slots) - 1) if sum(slots) > 1 else 26.0)
        used = gap * (sum(slots) - len(names)) + 44 * (len(names) - 1)
        top = TOP + max(0.0, (HEIGHT - used) / 2)
        for name, number in zip(names, slots, strict=True):
            places[name] = _Place(LEFT + column * COLUMN, top, gap)
            top += gap * (number - 1) + 44
    return places


def _slots(topology: Topology, name: str, place: _Place, copied: set[int]) -> str:
    radius = max(1.5, min(9.0, place.gap * 0.4))
    node = topology.node(name)
    joins = " (joins)" if node.inputs == "correlated" else ""
    circles = [
        f'<circle cx="{place.x:.0f}" cy="{place.slot(at):.1f}" r="{radius:.1f}" '
        f'fill="{BLUE if slot in copied else "white"}" stroke="{BLACK}"/>'
        for at, slot in enumerate(node.in_order)
    ]
    label = f"{name}{joins}: {len(copied)} of {node.slots}"
    return "".join(circles) + _text(place.x, place.y - radius - 8, label)


def _link(topology: Topology, link: Link, places: Mapping[str, _Place]) -> str:
    one, other = places[link.source], places[link.target]
    senders, receivers = pairs(topology, link)
    if len(senders) > MOST_LINES:
        last = topology.node(link.source).slots - 1, topology.node(link.target).slots - 1
        corners = [
            (one.x, one.y),
            (other.x, other.y),
            (other.x, other.slot(last[1])),
            (one.x, one.slot(last[0])),
        ]
        points = " ".join(f"{x:.0f},{y:.1f}" for x, y in corners)
        return f'<polygon points="{points}" fill="{GREY}" fill-opacity="0.18"/>'
    return "".join(
        f'<line x1="{one.x:.0f}" y1="{one.slot(sender):.1f}" x2="{other.x:.0f}" '
        f'y2="{other.slot(receiver):.1f}" stroke="{GREY}" stroke-opacity="0.55"/>'
        for sender, receiver in zip(senders.tolist(), receivers.tolist(), strict=True)
    )


def _curves(curves: Mapping[str, Sequence[Point]], plan: Plan) -> str:
    width, height = 380, 220
    most = max(point.copies for points in curves.values() for point in points) or 1
    parts = [
        f'<path d="M0,0 V{height} H{width}" fill="none" stroke="{BLACK}"/>',
        _text(width / 2, height + 36, "copies"),
        _text(0, height + 18, "0"),
        _text(width, height + 18, str(most)),
        _text(-8, height, "0", anchor="end"),
        _text(-8, 10, "1", anchor="end"),
        _text(-8, -14, "output fidelity", anchor="start"),
    ]
    for number, (name, points) in enumerate(curves.items()):
        colour = LINES[number % len(LINES)]
        places = [(point.copies / most * width, (1 - point.fidelity) * height) for point in points]
        dash = ' stroke-dasharray="6 4"' if name == "bound" else ""
        parts += [
            f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke="{colour}" '
            f'stroke-width="2"{dash}/>'
            for (a, b), (c, d) in pairwise(places)
        ]
        parts.append(_text(width + 12, 14 + 18 * number, name, anchor="start", colour=colour))
    x, y = plan.allowed / most * width, (1 - plan.fidelity) * height
    parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{BLACK}"/>')
    return "".join(parts)


def _text(
    x: float, y: float, words: str, *, size: int = 12, anchor: str = "middle", colour: str = BLACK
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(words)}</text>'
    )
