"""Nodes that fail together, in the simulator: how much of the output goes on, and for how long.

The engine itself runs (:mod:`tether.simulate.epochs`), at the size of PPA 2016 §VI (35 nodes) and with a
thousand: copies that stand by, a rack that dies, and at last all nodes but those that stand by.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import tether
from bench.harness import say
from tether.core.graph import SlotId
from tether.core.ids import Epoch, Slot
from tether.simulate.epoch_faults import EpochFault
from tether.simulate.epoch_query import EpochScenario
from tether.simulate.epochs import simulate_epochs

if TYPE_CHECKING:
    from bench.results import ResultLog

SIZES = {"paper": (35, 5, 60), "thousand": (1_000, 20, 500)}
"""Nodes, racks, slots of all operators."""
RACK, ALL = Epoch(8), Epoch(18)
"""Epochs before which a rack dies, and all nodes but those that stand by."""
EPOCHS, INTERVAL = 26, 10
SHARES = (0.0, 0.25, 0.5, 1.0)


def racks(log: ResultLog, *, quick: bool, seed: int) -> list[dict[str, Any]]:
    """For each size and share of copied slots: fidelity of every epoch's rows as given first.

    Args:
        log: Keeps each of them as it ends.
        quick: The paper's size only.
        seed: Of rows and failures.
    """
    sizes = ["paper"] if quick else list(SIZES)
    cases = [(name, share) for name in sizes for share in (SHARES if name == "paper" else (0.5,))]
    return [
        log.once("racks", at, partial(_fail, name, share, seed))
        for at, (name, share) in enumerate(cases)
    ]


def _fail(name: str, share: float, seed: int) -> dict[str, Any]:
    """One simulated cluster whose rack dies, and then all nodes but those that stand by."""
    nodes, number, slots = SIZES[name]
    report = simulate_epochs(
        EpochScenario(
            copies=slots // 2,
            operators=2,
            policy=_policy(share, nodes // 7),
            epochs=EPOCHS,
            nodes=nodes,
            racks=number,
            seed=seed,
        ),
        faults=[
            EpochFault("rack", RACK, SlotId("000", Slot(0))),
            EpochFault("all-but-standby", ALL, SlotId("000", Slot(0))),
        ],
    )
    say(f"availability: {nodes} nodes, share {share:g}: fidelity {min(report.fidelity):.3f}")
    return {
        "size": name,
        "nodes": nodes,
        "racks": number,
        "slots": slots,
        "share": share,
        "fidelity": list(report.fidelity),
        "after_rack": report.fidelity[RACK],
        "after_all": report.fidelity[ALL],
        "tentative_epochs": sum(one < 1.0 for one in report.fidelity),
        "promotions": report.promotions,
        "take_overs": report.take_overs,
        "wrong": len(report.violations) + sum(error > 0 for error in report.state_error),
        "seconds": round(report.wall_seconds, 1),
    }


def _policy(share: float, standby: int) -> tether.Barrier | tether.PartiallyActive:
    snapshots = tether.Barrier(INTERVAL, meanwhile="skip")
    if not share:
        return snapshots
    return tether.PartiallyActive(share=share, snapshots=snapshots, standby=standby)
