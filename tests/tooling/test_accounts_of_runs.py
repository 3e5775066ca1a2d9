"""What runs of the tests leave behind: which points saw a kill, and which cells of chaos have run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

from tests import chaos_progress, kills

from tether.chaos.faults import Point


def ended(nodeid, outcome, told):
    return SimpleNamespace(nodeid=nodeid, outcome=outcome, user_properties=[("chaos", told)])


def test_a_run_goes_on_where_the_last_one_on_the_same_commit_stopped(tmp_path):
    file = tmp_path / "chaos.jsonl"
    first = chaos_progress.Progress(file)
    first.add(ended("a::cell[exact-kill-17]", "passed", ("exact", "kill", 17)))
    first.add(ended("a::cell[exact-hang-3]", "failed", ("exact", "hang", 3)))
    second = chaos_progress.Progress(file)
    assert second.passed("a::cell[exact-kill-99]")  # another seed
    assert not second.passed("a::cell[exact-hang-3]")
    assert "red: exact, hang, seed 3" in second.table()
    second.add(ended("a::cell[exact-hang-4]", "passed", ("exact", "hang", 4)))
    assert chaos_progress.Progress(file).passed("a::cell[exact-hang-3]")
    file.write_text(file.read_text().replace(kills.commit(), "another"))
    assert chaos_progress.Progress(file).cells == {}


def test_a_point_counts_once_all_have_been_killed_at_it_who_can_be():
    def told(point, but=""):
        return [("here", "exact", one, point) for one in kills.victims(point) if one != but]

    every = [one for point in get_args(Point) for one in told(point)]
    assert kills.report(every, {})["share"] == 1
    some = kills.report([*told("halfway", but="driver"), *told("after-job")], {})
    assert some["share"] == 1 / len(get_args(Point))
    assert "halfway" in some["missing"]
    more = kills.report([("there", "exact", "driver", "halfway")], some)
    assert more["share"] == 2 / len(get_args(Point))
    elsewhere = {**some, "commit": "another"}
    assert kills.report([], elsewhere)["share"] == 0
