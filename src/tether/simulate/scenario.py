"""What is simulated: a pipeline, its stream, its hardware, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from tether.core.amplification import amplification_of
from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.core.placement import Placement
from tether.core.windows import Hopping, Sliding

if TYPE_CHECKING:
    from tether.core.amplification import Amplification
    from tether.policies.approximate import Approximate
    from tether.simulate.sums import Kind, Norm


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long things take, in virtual seconds (and bytes)."""

    item: float = 1e-4
    """Processing of one item."""
    interval: float = 0.05
    """Between two messages of a source."""
    channel: float = 5e-4
    """From a sender to its receiver, and back for an acknowledgement."""
    store_latency: float = 1e-3
    """Seconds of any operation of the store, besides its transfer."""
    store_bandwidth: float = 2e8
    """Bytes a second of one server of the store."""
    store_servers: int = 32
    detection: float = 0.05
    """Until a lost slot is known to be lost and started elsewhere."""
    outage: float = 0.1
    """How long an outage of the store lasts."""

    def __post_init__(self) -> None:
        for name, unit in (("store_bandwidth", "bytes a second"), ("interval", "seconds")):
            amount(name, getattr(self, name), unit=unit, zero=None, infinite=None)
        for name in ("item", "channel", "store_latency", "detection", "outage"):
            amount(name, getattr(self, name), unit="seconds", zero="at once", infinite=None)
        count("store_servers", self.store_servers, unit="servers")


def operator_name(operator: int) -> str:
    """Name of an operator (0 is the first) in reports; in order also as text."""
    return f"{operator:03}"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A query to simulate: ``operators`` in a row, ``copies`` of each, copy j feeding copy j.

    Args:
        copies: n: slots of each operator.
        operators: m: length of the pipeline.
        fan_out: β: outputs that each item causes.
        policy: Fault-tolerance policy; a window, if any, must be ``Hopping`` or ``Sliding`` by
            seconds. States hold all of the stream; with ``Sliding`` it is checked what each window
            lost.
        rounds: Messages that each source sends.
        batch: Items in a message, and most items that a slot processes at once.
        keys: Keys of a slot's state.
        alpha: α: most that one item changes the state by.
        worst_items: Whether every item changes the state by just α, upwards; else random amounts
            up to α, in both directions.
        kind: State primitive: "vector" or "table".
        norm: Its divergence: "l1", "l2" or "max".
        slots_per_node: Slots that a node's failure takes.
        nodes_per_rack: Nodes that a rack's failure takes.
        seed: Of the stream and the faults.
        timing: How long things take.

    Example:
        >>> from tether.policies.approximate import Approximate
        >>> Scenario(copies=4, operators=2, policy=Approximate(1000)).slots
        8
        >>> Scenario(copies=0, policy=Approximate(1))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        tether.core.errors.BadValueError: copies=0 cannot be used. Why: ...
    """

    copies: int
    policy: Approximate
    operators: int = 1
    fan_out: int = 1
    rounds: int = 10
    batch: int = 16
    keys: int = 32
    alpha: int = 5
    worst_items: bool = False
    kind: Kind = "vector"
    norm: Norm = "l1"
    slots_per_node: int = 8
    nodes_per_rack: int = 4
    seed: int = 1
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        units = {
            "copies": "slots",
            "operators": "operators",
            "fan_out": "outputs",
            "rounds": "messages",
            "batch": "items",
            "keys": "keys",
            "alpha": "units of the divergence",
            "slots_per_node": "slots",
            "nodes_per_rack": "nodes",
        }
        for name, unit in units.items():
            count(name, getattr(self, name), unit=unit)
        window = self.policy.window
        if window is not None and (
            not isinstance(window, Hopping | Sliding)
            or window.by != "seconds"
            or (isinstance(window, Hopping) and window.every is not None)
        ):
            raise BadValueError(
                f"The simulator cannot follow {window!r}.",
                why="Its windows go by times of the stream, and what they lose is summed up in full.",
                do="Use Hopping(seconds) without every, Sliding(seconds), or no window.",
            )

    @property
    def slots(self) -> int:
        """Slots of all operators together."""
        return self.copies * self.operators

    def placement(self, operator: int) -> Placement:
        """Where the slots of an operator (0 is the first) stand in the query."""
        return Placement(
            copies=self.copies,
            position=operator + 1,
            length=self.operators,
            fan_out=float(self.fan_out),
            sharers=self.operators,
        )

    @property
    def amplification(self) -> Amplification:
        """How state errors spread: not at all, as each operator sends its items on, not its sums.

        They are counted as if each showed once in every state after it, so that their sum over the
        whole pipeline is held to Θ.
        """
        names = [operator_name(operator) for operator in range(self.operators)]
        links = dict.fromkeys(pairwise(names), 1.0)
        return amplification_of(dict.fromkeys(names, 1.0), links)

    @property
    def most_state_error(self) -> float:
        """Θ + L·α, and in a pipeline, where lost outputs are lost input, Θ + (L + Γ)·α."""
        budget = self.policy.budget
        items = budget.max_lost_items
        if self.operators > 1:
            items += budget.max_unacked_items
        return budget.max_state_error + (items * self.alpha if items else 0.0)

    @property
    def most_lost_outputs(self) -> float:
        """Γ + L·β."""
        return self.policy.budget.lost_outputs(self.fan_out)
