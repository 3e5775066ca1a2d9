"""Totals by key: the keyed sum and word count, compared by a digest; see ``bench.inputs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import inputs
from bench.questions.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from bench.inputs import Digest


class Totals(Question):
    """How much is there of each key?"""

    @property
    def schema(self) -> str:
        """Keys and values, or lines."""
        return inputs.schema_of(self.scenario)

    def tables(self) -> Iterator[pa.Table]:
        """All keys once, then what is drawn from them."""
        return inputs.tables(self.scenario)

    def truth(self, files: Sequence[Path]) -> Digest:
        """By Arrow and numpy."""
        return inputs.truth(self.scenario, files)

    def shown(self, answer: Digest) -> list[int]:
        """The digest's three numbers."""
        return list(answer)
