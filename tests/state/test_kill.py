"""Whatever instruction a process dies at, the next one finds the last committed epoch."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.state.workload import (
    ME,
    apply_epoch,
    durable_side,
    make,
    open_state,
    reference,
    snapshot,
)

from tether.state import Arena, Phase, SlotState, segment, slot

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = str(Path(segment.__file__).parent)
SIZE = 12


class CutOff(BaseException):
    """Stands for the death of the process, right before some line of the package."""


def cut_off_before(
    line: int, run: Callable[[], Any], die: Callable[[], Any], within: str = SOURCES
) -> bool:
    """Run something and die right before the given line of the package, counted as they are run.

    ``within`` counts only the lines of one file. Returns False if ``run`` came to its end.
    """
    left = line

    def on_event(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(within):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                die()
        return on_event

    sys.settrace(on_event)
    try:
        run()
    except CutOff:
        return True
    finally:
        sys.settrace(None)
    return False


def raise_cut_off() -> None:
    raise CutOff


def check(directory: Path, expected: dict[str, Any], backups: dict[str, Any]) -> None:
    arena, state = open_state(directory)
    assert state.phase in (Phase.CLEAN, Phase.COMMITTED)
    assert snapshot(state) == expected
    assert durable_side(state) == backups
    arena.release()


@pytest.mark.parametrize("epoch", [0, 4, 5, 8])
def test_cut_off_at_every_nth_line_of_an_epoch(ram: Path, epoch: int) -> None:
    """Epochs: 0 makes everything, 4 backs up in part and clears, 5 backs up all, 8 is plain."""
    directory = ram / "a"
    before = reference(epoch, SIZE)
    expected, backups = snapshot(before), durable_side(before)
    arena, state = open_state(directory)
    for earlier in range(epoch):
        apply_epoch(state, earlier, SIZE)
    arena.release()
    draw = random.Random(epoch)
    line = 0
    cut = True
    while cut:
        arena, state = open_state(directory)
        cut = cut_off_before(line, partial(apply_epoch, state, epoch, SIZE), raise_cut_off)
        arena.release()
        if cut and draw.random() < 0.5:  # and once more, while rolling back
            arena = Arena.attach(directory, ME)  # type: ignore[assignment]
            half = SlotState.open(arena)
            if half.phase is Phase.APPLYING:
                cut_off_before(draw.randrange(200), half.rollback, raise_cut_off)
            arena.release()
        if cut:
            check(directory, expected, backups)
        line += draw.randrange(1, 250)
    assert line > 1000
    arena, state = open_state(directory)
    assert state.rollback()  # the committed epoch
    assert snapshot(state) == expected
    apply_epoch(state, epoch, SIZE)
    assert snapshot(state) == snapshot(reference(epoch + 1, SIZE))
    arena.release()


def test_cut_off_at_every_line_of_the_protocol(ram: Path) -> None:
    """The same, at every single line that says in what phase a slot is."""
    epoch = 5
    before, earlier = reference(epoch, SIZE), reference(epoch - 1, SIZE)
    expected, backups, expected_earlier = snapshot(before), durable_side(before), snapshot(earlier)
    arena, state = open_state(ram / "pristine")
    for number in range(epoch):
        apply_epoch(state, number, SIZE)
    arena.release()
    line, cut = 0, True
    while cut:
        directory = shutil.copytree(ram / "pristine", ram / str(line))
        arena, state = open_state(directory)
        run = partial(apply_epoch, state, epoch, SIZE)
        cut = cut_off_before(line, run, raise_cut_off, within=slot.__file__)
        arena.release()
        arena, state = open_state(directory)
        if cut and state.phase is Phase.COMMITTED:  # then the epoch before can still be undone
            assert state.rollback()
            assert snapshot(state) == expected_earlier
            arena.release()
        elif cut:
            arena.release()
            check(directory, expected, backups)
        shutil.rmtree(directory)
        line += 1
    assert line > 40


def test_cut_off_at_every_line_of_a_rollback(ram: Path) -> None:
    epoch = 4
    before = reference(epoch, SIZE)
    expected, backups = snapshot(before), durable_side(before)
    arena, state = open_state(ram / "a")
    for number in range(epoch):
        apply_epoch(state, number, SIZE)
    arena.release()
    line, cut = 0, True
    while cut:
        arena, state = open_state(ram / "a")
        apply_epoch(state, epoch, SIZE)  # with backups and cleared tables, and committed
        run = state.rollback
        cut = cut_off_before(line, run, raise_cut_off, within=slot.__file__)
        arena.release()
        arena, state = open_state(ram / "a")
        if state.phase is Phase.COMMITTED:
            assert state.rollback()
        arena.release()
        check(ram / "a", expected, backups)
        line += 1
    assert line > 8


def test_cut_off_while_states_are_made(ram: Path) -> None:
    expected = snapshot(reference(0, SIZE))
    line, cut = 0, True
    while cut:
        directory = ram / str(line)

        def make_all(directory: Path = directory) -> None:
            nonlocal arena
            arena = Arena.create(directory, ME)
            make(SlotState.open(arena))

        arena: Arena | None = None
        cut = cut_off_before(line, make_all, raise_cut_off)
        if arena is not None:
            arena.release()
        arena, state = open_state(directory)
        assert snapshot(state) == expected
        apply_epoch(state, 0, SIZE)
        arena.release()
        line += 97
    assert line > 500


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(directory: Path, line: int | None, seconds: float) -> None:
    """In a process of its own: epochs without end, until death comes in one of two ways."""
    arena, state = open_state(directory)
    del arena

    def forever() -> None:
        while True:
            apply_epoch(state, state.version + 1, 100)

    if line is not None:
        cut_off_before(line, forever, die)
    # After so much CPU time the kernel ends the process, in whatever instruction it is.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    forever()


@pytest.mark.chaos
def test_real_kills_at_random_moments(ram: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    # Arrow imports pandas when it makes an array; that must not take up the time until death.
    context.set_forkserver_preload(["pandas", "tests.state.test_kill"])
    draw = random.Random(7)
    directory = ram / "a"
    epochs = 0
    cut_in_the_middle = 0
    right = SlotState.heap()
    make(right)
    for trial in range(12):
        line = draw.randrange(6000) if trial % 2 else None
        seconds = draw.uniform(0.01, 0.2)
        process = context.Process(target=run_until_killed, args=(directory, line, seconds))
        process.start()
        process.join(240)
        assert process.exitcode == -(signal.SIGPROF if line is None else signal.SIGKILL)
        found = Arena.attach(directory, ME)
        if not isinstance(found, Arena):
            continue  # killed while it made the arena: the next one makes it
        state = SlotState.open(found)
        if state.phase is Phase.APPLYING:
            cut_in_the_middle += 1
            state.rollback()
        make(state)
        assert state.version >= epochs - 1
        for epoch in range(epochs, state.version + 1):
            apply_epoch(right, epoch, 100)
        epochs = state.version + 1
        seen = snapshot(state)
        assert seen == snapshot(right)
        found.release()
    assert epochs > 0
    assert cut_in_the_middle > 0
    arena, state = open_state(directory)
    assert durable_side(state) == durable_side(right)
    arena.release()
