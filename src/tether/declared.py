"""What an operator has declared, as far as the bound of its query depends on it.

Spark's runtime and ``tether.testing.local`` both ask here, so that a pipeline is given the same
thresholds in a test as in production.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from tether.core.amplification import Amplification, Link, amplification_of
from tether.core.checks import amount
from tether.core.errors import BadValueError
from tether.core.numbers import exactly, rounded_up, times
from tether.core.windows import Hopping
from tether.state.norms import DURABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tether.core.windows import Window
    from tether.operator import Operator

Told = float | Mapping[str, float]
"""A factor that was given to ``apply``: for all operators before, or by name, feedback included."""


@dataclass(frozen=True, kw_only=True)
class Linked:
    """An operator of a query, as its neighbours see it.

    Args:
        operator: The operator, bound.
        losing: Whether it keeps state whose loss counts; see ``counted``.
        window: After which its losses are forgotten, if ever.
        told: What was given to ``apply`` in place of what the operator itself declares.
        senders: Operators whose rows come to it, by name: whether they come as they were sent, along
            one way only. Otherwise code lies between that nobody has declared.
        feedback: Names of the operators that send it feedback.
        slots: In how many slots it runs.
        key: The columns that its rows are routed by.
        specs: Descriptions of its primitives.
    """

    operator: Operator
    losing: bool = True
    window: Window | None = None
    told: Told | None = None
    senders: Mapping[str, bool]
    feedback: Collection[str] = ()
    slots: int = 1
    key: Sequence[str] = ()
    specs: Sequence[Mapping[str, Any]] = ()


def amplification_between(linked: Mapping[str, Linked]) -> Amplification:
    """How errors spread through a query, from what its operators have declared.

    Raises:
        BadValueError: What was declared is no factor, or is of an operator that sends nothing.
    """
    growths = {name: _growth(name, one.operator) for name, one in linked.items()}
    links: dict[Link, float] = {}
    of_losses: dict[Link, float] = {}
    for name, one in linked.items():
        _check_names(name, one)
        for sender in (*one.senders, *one.feedback):
            together = _forgotten_together(linked[sender], one, sender)
            often = _times_counted(one, fed_back=sender in one.feedback)
            any_error, of_loss = (
                rounded_up(times(exactly(factor), often))
                for factor in _factors(name, one, sender, linked[sender].operator)
            )
            links[sender, name] = any_error if together or not any_error else math.inf
            of_losses[sender, name] = of_loss if together or not of_loss else math.inf
    losing = [name for name, one in linked.items() if one.losing]
    return amplification_of(growths, links, of_losses=of_losses, losing=losing)


def _times_counted(one: Linked, *, fed_back: bool) -> Fraction:
    """How often an error that comes to an operator counts in it, by its slots.

    What is declared is for one slot. Several may each hold the same wrong value, and the errors of
    slots add up. Where no two slots share an entry, each value is in one of them: then a sum of
    differences stays what it is, and roots of sums of squares grow by the root of their number at most.
    Feedback goes to every slot.
    """
    of_errors = counted(one.specs)
    if one.slots == 1 or not of_errors:
        return Fraction(1)
    if fed_back:
        return Fraction(one.slots)
    if errors_of_copies(one.operator, one.key, one.specs) == "max":
        return Fraction(1)
    norms = {spec.get("divergence") if "keys" in spec else "" for spec in of_errors}
    if one.operator.disjoint and one.key:
        if norms <= {"l1", "count"}:
            return Fraction(1)
        if norms <= {"l1", "count", "l2"}:
            return Fraction(math.nextafter(math.sqrt(one.slots), math.inf))
    return Fraction(one.slots)


def _growth(name: str, operator: Operator) -> float:
    growth = operator.growth
    if isinstance(growth, bool) or not isinstance(growth, (int, float)) or not growth >= 1:
        raise BadValueError(
            f"growth={growth!r} of {name!r} is not a number of 1 or more.",
            why="An error is there when it is made: it counts once at least.",
            do="Give the largest factor by which later rows can enlarge it, or math.inf.",
        )
    return float(growth)


def _check_names(name: str, one: Linked) -> None:
    if not isinstance(one.told, Mapping):
        return
    unknown = sorted(set(one.told) - {*one.senders, *one.feedback})
    if unknown:
        raise BadValueError(
            f"amplification of {name!r} names {unknown}.",
            why=f"Rows or feedback come to it from {sorted({*one.senders, *one.feedback})}.",
            do="Name those, or give one number for all operators before it.",
        )


def _factors(name: str, one: Linked, sender: str, operator: Operator) -> tuple[float, float]:
    """For any error of a sender, and for what it has lost itself."""
    told = one.told.get(sender) if isinstance(one.told, Mapping) else one.told
    if sender in one.feedback and not isinstance(one.told, Mapping):
        told = None  # one number is for the operators before
    if told is None and one.senders.get(sender, True):
        any_error = one.operator.amplification(operator)
        of_loss = one.operator.amplification_of_losses(operator)
    else:
        # What the code between makes of an error, only who wrote it can tell.
        any_error = math.inf if told is None else told
        of_loss = any_error if operator.sends_losses else 0.0
    what = f"amplification of {name!r} from {sender!r}"
    unit = "units of error for each one before"
    checked = [
        amount(what, factor, unit=unit, zero="none", infinite="not known")
        for factor in (any_error, of_loss)
    ]
    return checked[0], checked[1]


def _forgotten_together(sender: Linked, receiver: Linked, name: str) -> bool:
    """Whether a loss that the sender's window has left has left the receiver's state as well.

    Only windows that end in the same epoch do that: a sliding one holds what another one sent long
    ago, others end when their own rows say so, and feedback comes after the end.
    """
    window = sender.window
    if window is None:
        return True
    together = isinstance(window, Hopping) and window.by == "epochs"
    return together and window == receiver.window and name not in receiver.feedback


def counted(specs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The primitives, out of ``SlotState.specs().values()``, whose differences count as an error.

    Left out are those that weigh nothing in any column: their loss costs nothing by declaration.

    Example:
        >>> from tether.state.slot import SlotState
        >>> state = SlotState.heap()
        >>> _ = state.vector("shown", 2, weights={"value": 0.0}), state.number("total")
        >>> [spec["kind"] for spec in counted(state.specs().values())]
        ['number']
    """
    return [spec for spec in specs if _counts(spec)]


def _counts(spec: Mapping[str, Any]) -> bool:
    if spec.get("divergence") == "count" or "weights" not in spec:
        return True
    columns = [name for name, kind in spec.get("values", {"value": ""}).items() if kind != "uint8"]
    return any(spec["weights"].get(name, 1.0) > 0 for name in columns)


def check_durable(name: str, specs: Iterable[Mapping[str, Any]], theta: float) -> None:
    """Refuse a threshold by which what must never be lost could be.

    Raises:
        BadValueError: It is finite, and not below the weight ``DURABLE`` of something in the state.
    """
    kept = [w for spec in specs for w in spec.get("weights", {}).values() if w >= DURABLE]
    if kept and min(kept) <= theta < math.inf:
        raise BadValueError(
            f"The threshold {theta:g} of a slot of {name!r} is too large.",
            why="The operator keeps things that must never be lost, and weighs one at 1e15.",
            do="Give a smaller max_state_error; or an infinite one, which keeps nothing.",
        )


def errors_of_copies(
    operator: Operator, key: Sequence[str], specs: Iterable[Mapping[str, Any]]
) -> Literal["add", "max"]:
    """How the errors of an operator's slots make up the operator's own: the sum, or the largest.

    The sum is always safe. The largest is enough where the error is that of the worst entry (one
    table under ``max``) and every entry is in one slot only. Names of columns do not show that: a
    table may have the key's names and other values. So it takes the operator's own promise,
    ``Operator.disjoint``, and a key that the rows are routed by.

    Args:
        operator: The operator, bound.
        key: The columns that its rows are routed by.
        specs: Descriptions of its primitives.
    """
    of_errors = counted(specs)
    worst_counts = len(of_errors) == 1 and of_errors[0].get("divergence") == "max"
    apart = operator.disjoint and bool(key) and "keys" in of_errors[0] if worst_counts else False
    return "max" if apart else "add"
