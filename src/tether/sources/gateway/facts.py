"""What a stream's log says, all of it together: entries folded into one summary."""

from __future__ import annotations

from dataclasses import dataclass, field

from tether.sources.gateway.records import Account, Boundary, Entry


@dataclass
class Facts:
    """All that is durable of a stream, but for the items themselves.

    Example:
        >>> from tether.sources.gateway.records import SavedRun
        >>> facts = Facts()
        >>> facts.add(Entry(runs=(SavedRun(1, "a", 1, 3, 0),)))
        >>> facts.backed_up, facts.heard
        (3, {'a': 3})
    """

    backed_up: int = 0
    """All items up to this number were durable, or are told as lost."""
    shown: int = 0
    used: int = 0
    """Newest number that must not be given again."""
    committed: int = 0
    life: int = 0
    heard: dict[str, int] = field(default_factory=dict)
    boundaries: list[Boundary] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    clean: bool = False

    def add(self, entry: Entry) -> None:
        """Take one more entry in."""
        self.clean = entry.clean
        for run in entry.runs:
            self.backed_up = max(self.backed_up, run.number + run.items - 1)
            self._hear(run.producer, run.first + run.items - 1)
        for producer, newest in entry.heard.items():
            self._hear(producer, newest)
        self.shown = max(self.shown, entry.shown or 0)
        self.committed = max(self.committed, entry.committed or 0)
        self.life = max(self.life, entry.life or 0)
        if entry.used is not None:
            self.backed_up = max(self.backed_up, entry.used)
        for boundary in entry.boundaries:
            if not self.boundaries or boundary.number > self.boundaries[-1].number:
                self.boundaries.append(boundary)
                self.backed_up = max(self.backed_up, boundary.number)
        self.used = max(self.used, self.backed_up, self.shown, self.committed)
        if entry.account is not None:
            self.account = entry.account

    def summary(self) -> Entry:
        """One entry that says it all."""
        self._forget_boundaries()
        return Entry(
            shown=self.shown,
            used=self.backed_up,
            committed=self.committed,
            life=self.life,
            heard=dict(self.heard),
            boundaries=tuple(self.boundaries),
            account=self.account,
            clean=self.clean,
        )

    def _hear(self, producer: str, newest: int) -> None:
        self.heard[producer] = max(newest, self.heard.get(producer, 0))

    def _forget_boundaries(self) -> None:
        """Forget boundaries that every reader is past, except the newest one of each producer."""
        newest = {boundary.producer: boundary.number for boundary in self.boundaries}
        self.boundaries = [
            boundary
            for boundary in self.boundaries
            if boundary.number > self.committed or newest[boundary.producer] == boundary.number
        ]
