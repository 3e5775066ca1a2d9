"""Plans of the matrix: which faults a cell gets, in which epochs, at which operators.

A plan gets the injector, the workload and the cell's point; it may give what the driver is to do in an
epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.chaos.faults import DRIVER_POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.chaos.workloads import Workload

    from tether.testing.injector import Injector

    Plan = Callable[[Injector, Workload, Any], Any]

PASSES = ("before-attach", "halfway", "after-apply", "after-commit")
"""Points that every slot of every operator passes in every epoch."""


def lose_all(injector: Injector, workload: Workload, epoch: int) -> None:
    for operator, slot in workload.all_slots():
        injector.at("before-attach", "forget", operator=operator, slot=slot, epoch=epoch)


def lose_one(injector: Injector, workload: Workload, epoch: int) -> None:
    operator, slot = workload.all_slots()[-1]
    injector.at("before-attach", "forget", operator=operator, slot=slot, epoch=epoch)


def strike(action: Any, **more: Any) -> Plan:
    """Twice: the first operator, then the last, where all of them come to the point."""

    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        operators = list(workload.slots)
        for epoch, operator in ((2, operators[0]), (4, operators[-1])):
            aim = operator if point in PASSES else None
            injector.at(point, action, operator=aim, epoch=epoch, **more)

    return plan


def strike_everywhere(injector: Injector, workload: Workload, point: Any) -> None:
    for epoch, place in enumerate((*PASSES, "during-backup"), 1):
        injector.at(place, "kill", epoch=epoch)  # type: ignore[arg-type]


def strike_one_after_the_other(points: Sequence[Any], *, apart: int = 1) -> Plan:
    """A process ended at each point, each in an epoch of its own, at one operator after the other.

    It is the executor, and with it the driver where both are one process; at the driver's points the
    driver alone.
    """

    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        operators = list(workload.slots)
        for number, place in enumerate(points):
            injector.at(
                place,
                "kill" if place in DRIVER_POINTS else "executor",
                operator=operators[number % len(operators)] if place in PASSES else None,
                epoch=1 + apart * number,
            )

    return plan


def strike_after_loss(action: Any) -> Plan:
    """State is lost, and the process that restores it is struck, twice."""

    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        lose_all(injector, workload, 4)
        for _ in range(2):
            injector.at(point, action, epoch=4)

    return plan


def lose(injector: Injector, workload: Workload, point: Any) -> None:
    lose_one(injector, workload, 2)
    lose_all(injector, workload, 5)


def mix(injector: Injector, workload: Workload, point: Any) -> None:
    """What chance wants, but always a loss of everything in the end."""
    injector.scatter(3, epochs=5, slots=2, points=PASSES, actions=("kill", "raise"))
    injector.scatter(1, epochs=4, slots=1, points=("before-attach",), actions=("forget",))
    lose_all(injector, workload, 5)
    injector.at("during-recovery", "kill", epoch=5)


def remove_arenas(injector: Injector, workload: Workload, point: Any) -> Any:
    def hook(epoch: int, place: Any) -> None:
        if epoch == 4:
            for arena in place.arenas():
                injector.remove(arena)

    return hook


def fill_disk(injector: Injector, workload: Workload, point: Any) -> Any:
    """From one epoch to another, or until the query stops; once."""

    def hook(epoch: int, place: Any) -> None:
        if epoch == 3 and not injector.struck():
            injector.fill(place.disk)
        elif epoch == 5:
            place.disk.free()

    return hook


def spoil_append(action: Any) -> Plan:
    """A backup goes wrong, and then it is needed."""

    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        operator, slot = workload.all_slots()[-1]
        injector.at("store-append", action, operator=operator, slot=slot, epoch=2)
        lose_all(injector, workload, 5)

    return plan


def spoil_read(action: Any) -> Plan:
    def plan(injector: Injector, workload: Workload, point: Any) -> None:
        lose_all(injector, workload, 5)
        injector.at("store-read", action, seconds=1.0)

    return plan
