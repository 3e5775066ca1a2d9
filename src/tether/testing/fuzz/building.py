"""Random programs, each from one number."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tether.testing.fuzz.moves import with_moves
from tether.testing.fuzz.program import (
    KEYS,
    USERS,
    Event,
    Policy,
    Program,
    Row,
    Stage,
    State,
    Step,
    Strike,
    Taking,
    Window,
)
from tether.testing.fuzz.twins import with_twins

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBERS = ("add", "put", "maximum", "minimum")
_OPERATIONS = {
    "number": _NUMBERS,
    "vector": _NUMBERS,
    "matrix": _NUMBERS,
    "table": _NUMBERS,
    "set": ("add",),
    "object": ("add",),
}
_NORMS = {
    "number": ("difference",),
    "vector": ("l1", "l2", "max"),
    "matrix": ("l1", "l2", "max"),
    "table": ("l1", "l1", "l2", "max", "count"),
    "set": ("count",),
    "object": ("own",),
}
_WORKER_POINTS = (
    "before-attach",
    "halfway",
    "after-apply",
    "during-backup",
    "during-compaction",
    "after-commit",
    "during-recovery",
    "during-replay",
    "after-log",
)
_DRIVER_POINTS = ("after-job", "before-spark-commit", "during-rewind")
_STORE_FAULTS = (
    ("store-append", "fail"),
    ("store-append", "fail"),
    ("store-append", "tear"),
    ("store-read", "fail"),
    ("store-read", "stale"),
    ("store-commit", "fail"),
    ("store-append", "kill"),
    ("store-read", "kill"),
    ("store-commit", "kill"),
)
_TAKINGS: tuple[Taking, ...] = (
    "all",
    "twice",
    "part",
    "part-unheard",
    "nothing",
    "all-part",
    "part-all",
    "fail",
)


def build(seed: int) -> Program:
    """The program of a number.

    Example:
        >>> build(7) == build(7), build(7) == build(8)
        (True, False)
    """
    program = _Builder(random.Random(seed)).program()  # noqa: S311 - chance, not secrecy
    # Chance of their own: the rest of the program is what it was before there were such events.
    program = with_moves(program, random.Random(f"rescale {seed}"))  # noqa: S311
    program = with_twins(program, random.Random(f"twins {seed}"))  # noqa: S311
    return _with_rounding(program, random.Random(f"rounding {seed}"))  # noqa: S311


def _with_rounding(program: Program, chance: random.Random) -> Program:
    """Let backups of floats be rounded, in half of the programs."""
    rounding = chance.choice([0.0, 0.0, 0.05, 0.2])
    return replace(program, policy=replace(program.policy, rounding=rounding))


def build_divisible(seed: int) -> Program:
    """A program whose operators can get other numbers of slots, and do.

    Example:
        >>> any(event.what == "rescale" for event in build_divisible(7).events)
        True
    """
    number = 0
    while True:
        made = build(hash((seed, number)))
        if any(event.what == "rescale" for event in made.events) and made.policy.kind != "none":
            return made
        number += 1


def _disjoint(key: Sequence[str], states: Sequence[State]) -> bool:
    """Whether no entry of the only state, a table by its worst entry, can be in two slots."""
    (first, *more) = states
    worst = first.kind == "table" and first.divergence == "max" and not more
    return bool(key) and worst and set(key) <= set(first.keys)


class _Builder:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def _maybe(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _one_of(self, *options: Any) -> Any:
        return self._chance.choice(options)

    def program(self) -> Program:
        """Any program."""
        policy = self._policy()
        window = self._window(policy)
        stages = self._stages(window)
        epochs = self._chance.randint(3, 8)
        scope = "executor" if self._maybe(0.3) else "node"
        shared = len(stages) == 1 or policy.kind == "barrier" or self._maybe(0.75)
        return Program(
            stages=stages,
            policy=policy,
            epochs=self._rows(epochs),
            window=window,
            own_policies=not shared,
            batch_rows=self._one_of(2, 4, 100),
            arena_scope=scope,  # type: ignore[arg-type]  # one of the two
            sinks=self._sinks(),
            strikes=self._strikes(epochs, stages, scope),
            events=self._events(epochs, stages, scope),
            compacts=self._maybe(0.3),
        )

    # ---- the query -----------------------------------------------------------------------------

    def _policy(self) -> Policy:
        kinds = ["approximate"] * 12 + ["mini-batch"] * 3 + ["upstream-backup", "barrier"] * 3
        early, target = self._one_of((1.0, 0.5), (1.0, 0.5), (0.6, 0.3), (0.5, 0.0), (1.0, 0.0))
        return Policy(
            kind=self._one_of(*kinds, "none"),
            theta=self._one_of(0.0, 4.0, 10.0, 24.0, 60.0, 200.0),
            lost_items=self._one_of(0, 0, 4, 12),
            early=early,
            target=target,
            every=self._one_of(0.1, 0.4, 1.0),
            interval=self._one_of(1, 2, 3),
            mode=self._one_of("async", "sync"),
        )

    def _window(self, policy: Policy) -> Window | None:
        if policy.kind == "none" or self._maybe(0.6):
            return None
        by = self._one_of("epochs", "epochs", "items", "seconds")
        length = self._chance.randint(2, 6) if by == "items" else self._chance.randint(1, 3)
        kind = self._one_of("hopping", "hopping", "sliding", "sliding", "decaying")
        if policy.exact:
            kind = "hopping"  # the others say how losses fade, and there are none
        if kind == "decaying":
            by, length = "epochs", 1  # halved in every epoch
        return Window(kind=kind, length=length, by=by)

    def _stages(self, window: Window | None) -> tuple[Stage, ...]:
        number = self._one_of(1, 1, 1, 1, 2, 2, 3, 4)
        loop = number > 1 and self._maybe(0.4)
        stages = []
        for at in range(number):
            states = tuple(self._state(f"t{n}", window) for n in range(self._one_of(1, 1, 1, 2, 3)))
            key = self._one_of((), ("k",), ("u",), ("k", "u"))
            steps = self._steps(states, window, fed=loop and at == 0)
            states = tuple(self._started(state, steps) for state in states)
            last = at == number - 1
            emits = self._one_of("rows", "rows", "sums", "totals", "nothing")
            plain = states[0].kind == "table" and states[0].keys == ("k",)
            if (emits == "totals" and not plain) or (emits == "nothing" and not last):
                emits = "rows"
            stages.append(
                Stage(
                    name=f"s{at}",
                    slots=self._chance.randint(1, 3),
                    key=key,
                    states=states,
                    steps=steps,
                    disjoint=_disjoint(key, states) and self._maybe(0.7),
                    # Other rows than its own have no place in a window.
                    emits=emits if window is None else "rows",
                    feeds_back=loop and last,
                )
            )
        if number > 1 and window is None and not loop and self._maybe(0.3):
            stages[:2] = self._putting(stages[0], stages[1])
        return tuple(stages)

    def _putting(self, first: Stage, second: Stage) -> tuple[Stage, Stage]:
        """Two stages, the second of which keeps the newest totals of the first."""
        norm, dtype = self._one_of("l1", "l2", "max"), self._one_of("int64", "float64")
        state = State(name="t0", kind="table", divergence=norm, keys=("k",), dtype=dtype)
        plain = replace(first, states=(state,), disjoint=False, emits="totals")
        return (
            replace(plain, steps=(Step(state="t0", what="add"),)),
            replace(
                plain,
                name=second.name,
                slots=second.slots,
                emits=second.emits,
                key=("k",),
                steps=(Step(state="t0", what="put"),),
            ),
        )

    def _state(self, name: str, window: Window | None) -> State:
        kinds = ("table", "table", "table", "vector", "matrix", "number", "set", "object")
        kind = self._one_of(*kinds)
        keys = self._one_of(("k",), ("k",), ("u",), ("k", "u"))
        dtype = self._one_of("int64", "int64", "float64")
        if window is not None and window.kind == "sliding":
            kind, keys = "table", ("i",) if window.by == "items" else ("p", "k")
        if window is not None and window.kind == "decaying":
            kind, dtype = self._one_of("vector", "matrix"), "float64"
        weighted = kind in ("table", "vector", "matrix", "number") and self._maybe(0.2)
        divergence = self._one_of(*_NORMS[kind])
        return State(
            name=name,
            kind=kind,
            divergence=divergence,
            dtype="int64" if kind in ("set", "object") else dtype,
            keys=keys if kind in ("table", "set") else (),
            weight=self._one_of(0.5, 2.0) if weighted and divergence != "count" else 1.0,
        )

    def _started(self, state: State, steps: Sequence[Step]) -> State:
        """The state with what its keys start from: maxima and minima need it."""
        what = {step.what for step in steps if step.state == state.name} - {"clear", "put"}
        if state.kind != "table" or not what & {"maximum", "minimum"}:
            return state
        if what == {"maximum"}:
            return replace(state, start=self._one_of("-inf", -40.0))
        if what == {"minimum"}:
            return replace(state, start=self._one_of("inf", 40.0))
        return replace(state, start=self._one_of(-3.0, 3.0))

    def _steps(
        self, states: Sequence[State], window: Window | None, *, fed: bool
    ) -> tuple[Step, ...]:
        steps: list[Step] = []
        fades = window is not None and window.kind in ("sliding", "decaying")
        for state in states:
            operations = ("add",) if fades else _OPERATIONS[state.kind]
            steps.append(Step(state=state.name, what=self._one_of(*operations)))
            if self._maybe(0.3):
                steps.append(Step(state=state.name, what=self._one_of(*operations), mark=1))
            if state.kind == "set" and self._maybe(0.6):
                steps.append(Step(state=state.name, what="discard", mark=1))
            if not fades and self._maybe(0.35):
                clear = Step(state=state.name, what="clear", mark=2)
                steps.insert(self._chance.randint(0, len(steps)), clear)
            if fed:
                steps.append(Step(state=state.name, what="add", on="feedback"))
            if window is not None and window.kind == "hopping":
                steps.append(Step(state=state.name, what="clear", on="window"))
            if window is not None and window.kind == "decaying":
                steps.append(Step(state=state.name, what="halve", on="epoch"))
        return tuple(steps)

    def _rows(self, epochs: int) -> tuple[tuple[Row, ...], ...]:
        number, made = 0, []
        for epoch in range(epochs):
            rows: list[Row] = []
            for _ in range(self._one_of(0, 1, 3, 6, 12, 20)):
                row = {
                    "k": min(int(self._chance.expovariate(0.4)), KEYS - 1),
                    "u": self._chance.randrange(USERS),
                    "n": self._one_of(1, 1, 1, 2, 5, 9, -1, -6, 0),
                    "v": self._chance.randint(-24, 40) / 4,
                    "m": self._one_of(0, 0, 0, 0, 0, 0, 1, 1, 2),
                    "i": number,
                    "p": epoch,
                }
                rows.append(row)
                number += 1
            made.append(tuple(rows))
        return tuple(made)

    # ---- its fate ------------------------------------------------------------------------------

    def _sinks(self) -> tuple[Taking, ...]:
        if self._maybe(0.5):
            return ("all",)
        return tuple(self._one_of(*_TAKINGS) for _ in range(3))

    def _strikes(self, epochs: int, stages: Sequence[Stage], scope: str) -> tuple[Strike, ...]:
        number = self._one_of(0, 0, 1, 1, 2, 3, 4)
        return tuple(self._strike(epochs, stages, scope) for _ in range(number))

    def _strike(self, epochs: int, stages: Sequence[Stage], scope: str) -> Strike:
        epoch, stage = self._chance.randrange(epochs), self._one_of(*stages)
        slot = self._one_of(None, self._chance.randrange(stage.slots))
        where: dict[str, Any] = {"epoch": epoch, "slot": slot, "operator": stage.name}
        kind = self._chance.randrange(10)
        if kind < 3:
            return Strike(point="before-attach", action="forget", **where)
        if kind < 6:
            fatal = "executor" if scope == "executor" else "kill"
            action = self._one_of("kill", "kill", "raise", fatal)
            return Strike(point=self._one_of(*_WORKER_POINTS), action=action, **where)
        if kind < 8:
            action = self._one_of("kill", "raise")
            return Strike(point=self._one_of(*_DRIVER_POINTS), action=action, epoch=epoch)
        if kind == 8:
            until = epoch + self._chance.randint(1, 3)
            action = self._one_of("hold", "hold", "raise", "kill")
            return Strike(point="during-writing", action=action, until=until, **where)
        point, action = self._one_of(*_STORE_FAULTS)
        return Strike(point=point, action=action, epoch=epoch)

    def _events(self, epochs: int, stages: Sequence[Stage], scope: str) -> tuple[Event, ...]:
        kinds = ["lose"] * 5 + ["restart"] * 3 + ["crash"] * 2 + ["damage"]
        kinds += ["executor"] * 3 if scope == "executor" else []
        events = []
        for _ in range(self._one_of(0, 1, 1, 2, 2, 3, 5)):
            what, stage = self._one_of(*kinds), self._one_of(*stages)
            one = what == "lose" and self._maybe(0.6)
            changes = what == "restart" and self._maybe(0.4)
            damage = self._one_of("flip-commit", "cut-commits", "flip-frame", "cut-frame")
            events.append(
                Event(
                    what=what,
                    epoch=self._chance.randint(1, epochs - 1),
                    operator=stage.name if one else None,
                    slot=self._chance.randrange(stage.slots) if one or what == "executor" else None,
                    policy=self._policy() if changes else None,
                    damage=damage if what == "damage" else None,
                    place=round(self._chance.random(), 3),
                )
            )
        return tuple(sorted(events, key=lambda event: event.epoch))
