"""A long search by random programs goes on where it stopped, and its parts add up honestly."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from tether.testing.fuzz.record import Record, code_of_programs
from tether.testing.fuzz.running import Outcome

FOUND = ["s0: epoch 1: the answer is outside its bound: off by 1, told 0"]


def test_what_has_run_is_found_again(tmp_path):
    file = tmp_path / "truth" / "programs.jsonl"
    outcome = Outcome(looked=3, looseness=[1.5, math.inf], struck=[("halfway", "kill")], lives=2)
    Record(file, "a").add(7, outcome)
    again = Record(file, "a")
    assert again.ran[7].outcome == outcome
    assert again.missing(range(6, 9)) == [6, 8]


def test_a_line_that_a_kill_has_cut_off_runs_again(tmp_path):
    file = tmp_path / "programs.jsonl"
    record = Record(file, "a")
    record.add(1, Outcome())
    record.add(2, Outcome())
    file.write_bytes(file.read_bytes()[:-9])
    cut = Record(file, "a")
    assert cut.missing([1, 2]) == [2]
    cut.add(2, Outcome(looked=5))
    assert Record(file, "a").ran[2].outcome.looked == 5


def test_other_code_keeps_what_was_searched_and_looks_at_findings_again(tmp_path):
    file = tmp_path / "programs.jsonl"
    old = Record(file, "old")
    old.add(1, Outcome())
    old.add(2, Outcome(findings=FOUND))
    assert old.missing([1, 2, 3]) == [3]
    new = Record(file, "new")
    assert new.missing([1, 2, 3]) == [2, 3]
    assert (new.by_code([1, 2, 3]), new.mended) == ({"old": 2}, set())
    new.add(2, Outcome())
    assert (new.by_code([1, 2]), new.mended) == ({"old": 1, "new*": 1}, {2})
    assert Record(file, "new").mended == {2}
    new.add(2, Outcome(findings=FOUND))
    assert new.mended == set()


@pytest.mark.long
def test_the_code_is_what_programs_load_and_nothing_else():
    """Whoever asks, and whatever else they have loaded."""
    look = (
        "import tether.cli.app; from tether.testing.fuzz.record import code_of_programs as code; "
    )
    done = subprocess.run(
        [sys.executable, "-c", look + "print(code())"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == code_of_programs()
