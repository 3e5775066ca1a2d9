"""The page on failures shows the matrix as it is run."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from tests.chaos.matrix import FAULTS, as_table

from tether.chaos.faults import Point

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "failures.md").read_text(encoding="utf-8")
NOT_IN_PROTOCOL = {"between epochs", "random", "every"}


def test_the_table_is_that_of_the_matrix() -> None:
    _, _, rest = PAGE.partition("checked against tests/chaos/matrix.py -->\n")
    shown, _, _ = rest.partition("\n<!-- matrix: end")
    assert shown.strip() == as_table()


def test_every_point_of_the_protocol_is_in_the_matrix() -> None:
    points = {point for kind in FAULTS.values() for point in kind.points}
    assert points - NOT_IN_PROTOCOL == set(get_args(Point))
