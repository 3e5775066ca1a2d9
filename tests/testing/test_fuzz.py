"""Random programs: one number builds one program, it is right without failures, and faults are seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tether.testing.fuzz import build, decode, encode, run, shrunk
from tether.testing.fuzz.program import Event, Policy, Program, Stage, State, Step, Strike
from tether.testing.fuzz.shrinking import kind_of

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.json"))


def row(number, k, n, p):
    return {"k": k, "u": k % 4, "n": n, "v": 0.25, "m": 0, "i": number, "p": p}


COUNT = Stage(
    name="s0",
    slots=2,
    key=("k",),
    states=(State(name="t0", kind="table", divergence="l1", keys=("k",)),),
    steps=(Step(state="t0", what="add"),),
)
SMALL = Program(
    stages=(COUNT,),
    policy=Policy(kind="approximate", theta=40.0),
    epochs=tuple(tuple(row(8 * p + n, n, 1, p) for n in range(6)) for p in range(4)),
)


def test_a_program_is_its_number_and_its_text():
    for seed in range(20):
        assert decode(encode(build(seed))) == build(seed)
    assert len({encode(build(seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.stem)
def test_what_was_found_once_is_not_found_again(file):
    outcome = run(decode(file.read_bytes()))
    assert outcome.findings == []
    assert outcome.looked > 0


@pytest.mark.parametrize("block", range(4))
def test_nothing_is_wrong_where_nothing_happens(block):
    """Also the meaning is tried by this: it says the same as the runtime."""
    for seed in range(8 * block, 8 * block + 8):
        outcome = run(replace(build(seed), strikes=(), events=(), arena_scope="node"))
        assert outcome.findings == [], f"seed {seed}"
        assert outcome.looked > 0
        assert outcome.looseness == []


def test_a_loss_is_judged_and_told_of():
    lost = replace(SMALL, events=(Event(what="lose", epoch=2),))
    outcome = run(lost)
    assert outcome.findings == []
    assert outcome.looseness
    assert min(outcome.looseness) >= 1


@pytest.mark.parametrize("action", ["kill", "raise"])
def test_a_driver_that_dies_lives_again(action):
    struck = replace(SMALL, strikes=(Strike(point="after-job", action=action, epoch=1),))
    outcome = run(struck)
    assert (outcome.findings, outcome.lives, outcome.epochs) == ([], 2, 4)
    assert outcome.struck == [("after-job", action)]


def test_a_driver_that_crashes_between_epochs_loses_what_its_executors_held():
    crashed = replace(SMALL, arena_scope="executor", events=(Event(what="crash", epoch=3),))
    outcome = run(crashed)
    assert (outcome.findings, outcome.lives) == ([], 2)
    assert outcome.looseness


def test_what_is_spoiled_may_be_refused_by_an_exact_policy():
    damage = Event(what="damage", epoch=3, damage="flip-frame", place=0.5)
    exact = replace(SMALL, policy=Policy(kind="mini-batch"), events=(damage,))
    outcome = run(exact)
    assert outcome.findings == []
    assert outcome.ended.startswith("BackupUnreadableError")


def test_a_wrong_answer_is_found_and_made_small(monkeypatch):
    """A runtime that forgets to count one key."""
    from tether.testing.fuzz import operators

    honest = operators._change

    def forgetful(state, live, what, rows):
        honest(state, live, what, rows.filter(operators.pc.not_equal(rows["k"], 3)))

    monkeypatch.setattr(operators, "_change", forgetful)
    program = replace(build(11), strikes=(), events=(), stages=(COUNT, COUNT_TWICE))
    (finding, *_) = run(program).findings
    assert kind_of(finding) == "the answer is outside its bound"
    small = shrunk(program, finding, 60)
    assert len(small.stages) == 1
    assert sum(map(len, small.epochs)) == 1
    assert [each["k"] for rows in small.epochs for each in rows] == [3]


COUNT_TWICE = replace(COUNT, name="s1")
