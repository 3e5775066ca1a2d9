"""The page's colours: words can be read on every ground; parts are told apart with fewer hues too."""

from __future__ import annotations

import importlib.resources
import itertools
import re

import numpy as np
import pytest

from tether.observe import plotting

STYLE = (importlib.resources.files("tether.ui") / "static" / "style.css").read_text("utf-8")
# Machado, Oliveira and Fernandes 2009, at full severity: linear RGB as seen without one kind of cone.
SIGHTS = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}
TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], float
)
WHITE = np.array([0.9505, 1.0, 1.089])
WORDS, PARTS = 4.5, 3.0
"""Contrast that WCAG 2.2 (AA) asks of text, and of what graphics are made of."""
APART = 14.0
"""CIE 1976 distance at which two fills side by side are plainly two."""


def colours(theme: str) -> dict[str, str]:
    dark = STYLE.index(':root[data-theme="dark"]')
    block = STYLE[:dark] if theme == "light" else STYLE[dark : STYLE.index("}", dark)]
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})\b", block))


def linear(colour: str) -> np.ndarray:
    part = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, sight: str) -> np.ndarray:
    """A colour in CIE L*a*b*, as somebody sees it."""
    xyz = TO_XYZ @ np.clip(np.array(SIGHTS[sight]) @ linear(colour), 0, 1) / WHITE
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), xyz * 24389 / 27 / 116 + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_written_and_drawn_stands_out_from_its_ground(theme: str) -> None:
    told = colours(theme)
    for ink, ground in itertools.product(("ink", "soft", "faint"), ("paper", "card")):
        assert contrast(told[ink], told[ground]) >= WORDS, (ink, ground)
    for part, ground in itertools.product(("well", "risk", "lost", "focus"), ("card", "track")):
        assert contrast(told[part], told[ground]) >= PARTS, (part, ground)
    for cause in (name for name in told if name.startswith("cause-")):
        assert contrast(told[cause], told["card"]) >= PARTS, cause


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_parts_side_by_side_are_told_apart_without_some_hues(theme: str, sight: str) -> None:
    told = colours(theme)
    causes = [name for name in told if name.startswith("cause-")]
    assert len(causes) == 7
    for group in (causes, ["well", "risk", "lost"]):
        for one, other in itertools.combinations(group, 2):
            apart = float(np.linalg.norm(seen(told[one], sight) - seen(told[other], sight)))
            assert apart >= APART, (one, other, round(apart, 1))


def test_pictures_have_the_colours_of_the_page() -> None:
    told = colours("light")
    assert {f"cause-{cause}": colour for cause, colour in plotting.CAUSES.items()} == {
        name: colour for name, colour in told.items() if name.startswith("cause-")
    }
    shown = (plotting.WELL, plotting.RISK, plotting.LOST, plotting.SOFT)
    assert shown == tuple(told[name] for name in ("well", "risk", "lost", "soft"))
