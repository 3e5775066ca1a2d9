"""What a query tells of itself, without Spark."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import tether
from tether.core.amplification import amplification_of
from tether.core.placement import Placement
from tether.engine.query.ledger import Ledger, Spread
from tether.observe.story import Event, What
from tether.policies.approximate import Approximate
from tether.spark.running.recent import RecentGlimpses


def told_anywhere() -> set[str]:
    """First arguments of all calls of ``story.add`` and the like in the runtime."""
    found = set()
    for path in Path(tether.__file__).parent.rglob("*.py"):
        if path.parts[-2:] == ("observe", "story.py"):
            continue  # passes on what others tell
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func).split(".") if isinstance(node, ast.Call) else []
            if called[-1:] == ["add"] and called[-2].strip("_") in ("story", "reports"):
                assert isinstance(node, ast.Call)
                assert isinstance(node.args[0], ast.Constant)
                found.add(node.args[0].value)
    return found


def test_every_kind_of_event_that_is_told_has_a_name_in_its_type() -> None:
    kinds = set(get_args(What))
    assert told_anywhere() <= kinds
    assert "resent" in told_anywhere()
    assert Event.__annotations__["what"] == "What"


def test_reports_of_epochs_say_what_was_known_then() -> None:
    ledger = Ledger("count", 1, Approximate(100), Placement())
    recent = RecentGlimpses(Spread(amplification_of({"count": 1.0}, {}), shared=True))
    recent.keep(2)
    for epoch in (3, 4, 6):
        ledger.totals["rows"] += 10
        recent.note(epoch, [ledger.glimpse()])
    recent.begin_run()
    ledger.totals["rows"] += 10
    recent.note(4, [ledger.glimpse()])

    def rows(run: int, epoch: int) -> int | None:
        told = recent.progress(run, epoch)
        return None if told is None else told["totals"]["rows"]

    # Epoch 3 is forgotten; 5 had no rows; 4 was run again.
    assert [rows(0, epoch) for epoch in (3, 4, 5, 6)] == [None, 20, 20, 30]
    assert [rows(1, epoch) for epoch in (3, 4)] == [None, 40]
