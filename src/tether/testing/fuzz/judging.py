"""What a program told, brought before the judge."""

from __future__ import annotations

import copy
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from tether.testing.fuzz.meaning import Meaning
from tether.testing.judge import Failure, Measure, Told, judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.testing.fuzz.program import Program, Stage, State
    from tether.testing.fuzz.running import Outcome
    from tether.testing.judge import Answer

LOSING = ("forget", "tear")
_LARGEST = (1 << 63) - 1


def judged(program: Program, entries: list[dict[str, Any]], outcome: Outcome) -> None:
    """Judge every stage after every epoch, and the output where it must be exact."""
    later = moved(program, entries)
    meaning = Meaning(program, later)
    truths, covered = [], []
    for epoch, slots in enumerate(meaning.run()):
        truths.append(copy.deepcopy(slots))
        covered.append({stage.name: meaning.covered(stage, epoch) for stage in program.stages})
    failures = list(schedule(program))
    decays = program.window is not None and program.window.kind == "decaying"
    for stage in program.stages:
        # Of a state that was divided, only its whole is bounded: what was lost of a slot before may be
        # in several now.
        whole = stage.disjoint or any(name == stage.name for name, _ in later)
        right = [_answer(stage, slots[stage.name], whole=whole) for slots in truths]
        kept = [_kept(stage, one[stage.name]) for one in covered]
        told = []
        for entry in entries:
            if "told" in entry and None not in entry["states"][stage.name]:
                found = [_read(slot) for slot in entry["states"][stage.name]]
                answer = _within(_answer(stage, found, whole=whole), kept)
                told.append(_told(entry, stage, answer, decays=decays))
        answers = [_only(one, kept[epoch]) for epoch, one in enumerate(right)]
        verdict = judge(
            program.epochs,
            lambda _, answers=answers: answers,  # type: ignore[misc]  # mypy knows no defaults here
            failures,
            told,
            _measures(stage),
            alpha=_alpha(program, stage),
        )
        outcome.looked += verdict.looked
        outcome.looseness += verdict.looseness
        outcome.findings += [f"{stage.name}: {one}" for one in verdict.outside]
    if all(policy.exact for policy in program.policies()) and not outcome.ended:
        _judge_output(program, meaning, entries, outcome)


def moved(program: Program, entries: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    """Which stages got other numbers of slots, and from which epoch on, as far as that was told.

    A query that died over it has the old number afterwards, or the new one.
    """
    found = {}
    for event in program.events:
        if event.what != "rescale":
            continue
        assert event.operator is not None
        after = [one for one in entries if one.get("told", -1) >= event.epoch]
        first = min(after, key=lambda one: one["told"], default=None)
        if first is not None and len(first["states"][event.operator]) == event.slots:
            found[event.operator, event.epoch] = event.slots
    return found


def _judge_output(
    program: Program, meaning: Meaning, entries: list[dict[str, Any]], outcome: Outcome
) -> None:
    # What was given and taken back was right, too.
    told = [
        Told(epoch=entry["gave"], answer={"output": _bag(entry["rows"])}, spent=0.0)
        for entry in entries
        if entry.get("gave", outcome.epochs) < outcome.epochs
    ]
    verdict = judge(
        program.epochs,
        lambda _: ({"output": _bag(rows)} for rows in meaning.emitted),
        list(schedule(program)),
        told,
        {"output": Measure("l1")},
    )
    outcome.looked += verdict.looked
    outcome.findings += [f"output: {one}" for one in verdict.outside]


def schedule(program: Program) -> Iterable[Failure]:
    """The program's strikes and events, as the judge takes them."""
    # A query that has ended for whatever reason takes its executors with it.
    always = program.arena_scope == "executor"
    careless = any(policy.kind == "none" for policy in program.policies())
    # A driver that dies loses the feedback that its policy lets wait unsaved.
    unsaved = any(stage.feeds_back for stage in program.stages) and any(
        policy.kind == "approximate" and policy.lost_items for policy in program.policies()
    )
    for strike in program.strikes:
        yield Failure(
            epoch=strike.epoch,
            loses=always or careless or unsaved or strike.action in LOSING,
            unforeseen=strike.action == "tear",
            what=f"{strike.action} at {strike.point}",
        )
    for event in program.events:
        if event.what == "rescale":
            continue
        spared = ("restart",) if unsaved else ("restart", "crash")
        loses = always or careless or event.what not in spared
        yield Failure(
            epoch=event.epoch,
            loses=loses or event.policy is not None,
            unforeseen=event.what == "damage" or event.policy is not None,
            what=event.what,
        )
    if (always or careless or unsaved) and "fail" in program.sinks:
        yield Failure(epoch=0, what="the sink fails")


def _told(entry: dict[str, Any], stage: Stage, answer: Any, *, decays: bool) -> Told:
    bound = {name: float(value) for name, value in entry["bounds"][stage.name].items()}
    return Told(
        epoch=entry["told"],
        answer=answer(entry["told"]),
        spent=bound["spent"],
        worst_now=bound["worst_now"],
        # Of a decaying window no sum is promised.
        ceiling=math.inf if decays else bound["ceiling"],
        items_lost=float(entry["bounds"][""]["items_lost"]),
    )


def _read(slot: dict[str, Any]) -> dict[str, dict[Any, Any]]:
    return {name: {tuple(key): value for key, value in entries} for name, entries in slot.items()}


def _answer(stage: Stage, slots: list[dict[str, dict[Any, Any]]], *, whole: bool = False) -> Answer:
    if whole:  # no entry is in two slots
        return {
            state.name: {key: x for slot in slots for key, x in slot[state.name].items()}
            for state in stage.states
        }
    return {
        f"{name}/{number}": dict(values)
        for number, slot in enumerate(slots)
        for name, values in slot.items()
    }


def _measures(stage: Stage) -> dict[str, Measure]:
    measures = {}
    for state in stage.states:
        measure = _measure(state)
        measures[state.name] = measure
        measures |= {f"{state.name}/{number}": measure for number in range(stage.slots)}
    return measures


def _measure(state: State) -> Measure:
    norm = {"difference": "l1", "own": "l1"}.get(state.divergence, state.divergence)
    return Measure(norm, state.weight, _start(state))


def _start(state: State) -> float:
    """What an absent key stands for: of whole numbers, infinity is the largest that int64 can hold."""
    start = float(state.start)
    if state.dtype == "float64" or math.isfinite(start):
        return start
    return _LARGEST if start > 0 else -_LARGEST - 1


def _kept(stage: Stage, covered: list[set[Any]] | None) -> dict[str, set[Any]] | None:
    if covered is None:
        return None
    kept = {
        f"{state.name}/{number}": keys
        for number, keys in enumerate(covered)
        for state in stage.states
    }
    return kept | {state.name: set().union(*covered) for state in stage.states}


def _within(answer: Answer, kept: list[dict[str, set[Any]] | None]) -> Any:
    return lambda epoch: _only(answer, kept[epoch])


def _only(answer: Answer, kept: dict[str, set[Any]] | None) -> Answer:
    if kept is None:
        return answer
    return {
        part: {key: value for key, value in entries.items() if key in kept[part]}
        for part, entries in answer.items()
    }


def _alpha(program: Program, stage: Stage) -> float:
    """Most error that one lost feedback item brings: it goes to every slot."""
    if stage is not program.stages[0]:
        before = program.stages[: program.stages.index(stage)]
        return math.inf if any(one.emits == "totals" for one in before) else 0.0
    weights = {state.name: max(1.0, state.weight) for state in stage.states}
    steps = [weights[step.state] for step in stage.steps if step.on == "feedback"]
    return stage.slots * sum(steps)


def _bag(rows: list[dict[str, Any]]) -> dict[Any, int]:
    return dict(Counter(tuple(sorted(row.items())) for row in rows))
