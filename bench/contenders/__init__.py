"""All contenders, by algorithm and id: how one is run over a course, and what reports call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.contenders.heavy import HEAVY
from bench.contenders.join import JOIN
from bench.contenders.regression import REGRESSION
from bench.contenders.top_k import TOP_K
from bench.contenders.totals import TOTALS
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from bench.contenders.contender import Contender

CONTENDERS: dict[str, dict[str, Contender]] = {
    "keyed-sum": TOTALS,
    "word-count": TOTALS,
    "heavy-hitters": HEAVY,
    "top-k": TOP_K,
    "join": JOIN,
    "logistic-regression": REGRESSION,
}


def find(algorithm: str, contender: str) -> Contender:
    """The contender of an id, among those that compute an algorithm.

    Raises:
        BadValueError: There is none.
    """
    known = CONTENDERS[algorithm]
    if contender not in known:
        raise BadValueError(
            f"There is no contender {contender!r} for {algorithm}.",
            why=f"Known are: {', '.join(known)}.",
            do="Correct the scenario file.",
        )
    return known[contender]
