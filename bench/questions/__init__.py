"""Questions by algorithm: what all contenders of a scenario are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.questions.heavy import HeavyHitters
from bench.questions.join import Join
from bench.questions.regression import Regression
from bench.questions.top_k import TopK
from bench.questions.totals import Totals

if TYPE_CHECKING:
    from bench.questions.question import Question
    from bench.scenario import Scenario

QUESTIONS: dict[str, type[Question]] = {
    "keyed-sum": Totals,
    "word-count": Totals,
    "heavy-hitters": HeavyHitters,
    "top-k": TopK,
    "join": Join,
    "logistic-regression": Regression,
}


def question_of(scenario: Scenario) -> Question:
    """What a scenario asks."""
    return QUESTIONS[scenario.algorithm](scenario)
