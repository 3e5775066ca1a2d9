"""What a scenario asks: its rows, the right answer, and whether a given answer is right."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from bench.scenario import Scenario


class Question(ABC):
    """One for each algorithm; contenders of every kind are asked the same.

    Args:
        scenario: Sizes, distribution and seed.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    @property
    @abstractmethod
    def schema(self) -> str:
        """The files' schema, as Spark writes it."""

    @abstractmethod
    def tables(self) -> Iterator[pa.Table]:
        """Rows of each epoch: loading, warm-up and measured ones."""

    @abstractmethod
    def truth(self, files: Sequence[Path]) -> Any:
        """The right answer over the files, by plain tools in one process."""

    def is_right(self, answer: Any, truth: Any) -> bool:
        """Whether an answer is equal to the truth, or within the bound that it claims."""
        return bool(answer == truth)

    @abstractmethod
    def shown(self, answer: Any) -> Any:
        """The answer as reports keep it: small, and plain JSON."""
