"""All state of one slot: its primitives, and the epochs that change them together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tether.core.errors import ArenaError, BadValueError
from tether.state.cells import LAST_STAMP
from tether.state.declare import KINDS, Declarations
from tether.state.divergence import sum_up
from tether.state.exporting import Exporting
from tether.state.header import (
    EPOCH,
    MOST_PRIMITIVES,
    PHASE,
    PRIMITIVES,
    SERIAL,
    TRACKED,
    VERSION,
    Header,
    Phase,
)
from tether.state.place import Place
from tether.state.store import HeapStore, PrivateStore, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from tether.state.arena import Arena
    from tether.state.primitive import Primitive


class SlotState(Exporting, Declarations):
    """Everything that a slot remembers between epochs.

    An epoch is applied between ``begin`` and ``commit``. A process may die at any instruction:
    the next process that attaches finds ``phase`` APPLYING and calls ``rollback``, which leaves exactly
    the state of the last committed epoch: values, keys, divergence, what counts as durable, and
    ``blob``. A committed epoch can be rolled back too, until the next one begins, because its
    task may be retried.

    Example:
        >>> state = SlotState.heap()
        >>> weights = state.vector("weights", 3)
        >>> state.begin(0); weights.add(None, 1.5); state.commit(0)
        >>> state.begin(1); weights.add([0], 9.0); state.rollback()
        True
        >>> weights.values.tolist(), state.version
        ([1.5, 1.5, 1.5], 0)
    """

    def __init__(
        self, store: Store, header: Header, *, arena: Arena | None = None, track: bool = True
    ) -> None:
        self._store = store
        self._header = header
        self._arena = arena
        self._words = header.slot.words
        self._primitives: dict[str, Primitive] = {}
        wanted = 2 if track else 1
        if not self._words[TRACKED]:
            self._words[TRACKED] = wanted
        if self._words[TRACKED] != wanted:
            raise ArenaError(
                "This arena was made for another policy.",
                why=f"It does {'not ' if track else ''}keep track of backups.",
                do="Recreate it and restore the state from its backups.",
            )
        self._track = track
        self._load()

    @classmethod
    def heap(cls, *, track: bool = True) -> SlotState:
        """State in this process's memory: for batch runs, tests and the simulator.

        Args:
            track: Whether to keep track of what is durable; without it divergences are 0.
        """
        store = HeapStore()
        header = Header(store)
        header.slot.words[VERSION] = -1
        return cls(store, header, track=track)

    def heap_copy(self) -> SlotState:
        """A state on the heap as it is now, in memory of its own.

        Example:
            >>> state = SlotState.heap()
            >>> total = state.number("total")
            >>> state.begin(0); total.add(5); state.commit(0)
            >>> view = state.heap_copy()
            >>> view.rollback(), view.number("total").value, total.value
            (True, 0.0, 5.0)
        """
        if not isinstance(self._store, HeapStore):
            raise ArenaError("Only state on the heap can be copied so.", do="Use private().")
        store = self._store.copy()
        return type(self)(store, Header(store), track=self._track)

    @classmethod
    def open(cls, arena: Arena, *, track: bool = True) -> SlotState:
        """State in an arena, with all primitives that were made in it before.

        Args:
            arena: An arena that was attached or created, and whose lock is held.
            track: As for ``heap``; must be what the arena was first opened with.
        """
        return cls(arena.store, arena.header, arena=arena, track=track)

    @classmethod
    def private(cls, arena: Arena, *, track: bool = True) -> SlotState:
        """The state in an arena as it is now; whatever is done to it here, the arena stays the same.

        Args:
            arena: An arena whose lock is held, and will be while the view is used.
            track: As for ``open``.

        Example:
            >>> import tempfile, pathlib, shutil
            >>> from tether.state import Arena, Identity, SlotState
            >>> root = pathlib.Path(tempfile.mkdtemp())
            >>> arena = Arena.create(root / "a", Identity("q", "count", 0, 1, "f"))
            >>> state = SlotState.open(arena)
            >>> total = state.number("total")
            >>> state.begin(0); total.add(5); state.commit(0)
            >>> view = SlotState.private(arena)
            >>> view.rollback(), view.number("total").value, total.value
            (True, 0.0, 5.0)
            >>> arena.destroy(); shutil.rmtree(root)
        """
        store = PrivateStore(arena.directory)
        return cls(store, Header(store), track=track)

    def _load(self) -> None:
        for number in range(len(self._primitives), self._words[PRIMITIVES]):
            spec = self._read_spec(f"p{number:03d}.spec")
            place = Place(self._store, self._header, number, track=self._track)
            self._primitives[spec["name"]] = KINDS[spec["kind"]](place, spec)

    def _read_spec(self, name: str) -> dict[str, Any]:
        try:
            spec: dict[str, Any] = json.loads(self._store.read_text(name))
        except (OSError, ValueError) as error:
            raise ArenaError(
                f"The arena is damaged: its file {name} cannot be read.",
                why=str(error),
                do="Recreate the arena and restore the state from its backups.",
            ) from error
        return spec

    def primitive(self, spec: Mapping[str, Any]) -> Primitive:
        """The primitive with this stored description, made if it is not there yet."""
        known = self._primitives.get(spec["name"])
        if known is not None:
            if known.spec != spec:
                both = sorted({*spec, *known.spec})
                changed = [key for key in both if known.spec.get(key) != spec.get(key)]
                raise BadValueError(
                    f"The state {spec['name']!r} exists already and is another one.",
                    why=f"It differs in: {', '.join(changed)}.",
                    do="Use another name, or the same description every time.",
                )
            return known
        number = self._words[PRIMITIVES]
        if number == MOST_PRIMITIVES:
            raise BadValueError(
                f"A slot cannot have more than {MOST_PRIMITIVES} states.",
                do="Use one table with more columns or with a further key column.",
            )
        self._header.blank(number)
        for leftover in self._store.names(f"p{number:03d}."):
            self._store.remove(leftover)  # of a process killed while it made the primitive
        self._store.write_text(f"p{number:03d}.spec", json.dumps(dict(spec)))
        place = Place(self._store, self._header, number, track=self._track)
        made = KINDS[spec["kind"]](place, spec)
        made.create()
        self._header.settle(number)
        self._words[PRIMITIVES] = number + 1
        self._primitives[made.name] = made
        return made

    def __getitem__(self, name: str) -> Primitive:
        return self._primitives[name]

    def specs(self) -> dict[str, dict[str, Any]]:
        """Every primitive's description as plain values, for the program's fingerprint."""
        return {name: primitive.describe() for name, primitive in self._primitives.items()}

    # Epochs

    @property
    def version(self) -> int:
        """The last epoch that is applied and committed; -1 if there is none."""
        return int(self._words[VERSION])

    @property
    def phase(self) -> Phase:
        """What the state is in the middle of."""
        return Phase(self._words[PHASE])

    @property
    def epoch(self) -> int:
        """The epoch that was begun last, committed or not; -1 if there is none."""
        return int(self._words[EPOCH]) if self._words[SERIAL] else -1

    @property
    def blob(self) -> bytes:
        """Up to 4096 bytes of the runtime's own, replaced as a whole, rolled back with the rest."""
        return self._header.blob

    @blob.setter
    def blob(self, value: bytes) -> None:
        self._header.blob = value

    def begin(self, epoch: int) -> None:
        """Start to apply an epoch; the one before can no longer be rolled back.

        Raises:
            BadValueError: An epoch is being applied already, or the state is not fully restored.
        """
        self._expect(Phase.CLEAN, Phase.COMMITTED)
        self._words[PHASE] = Phase.CLEAN  # from here on the old journal is not used any more
        for primitive in self._primitives.values():
            primitive.refresh()
            primitive.begin()
        self._next_serial()
        self._header.save()
        self._words[EPOCH] = epoch
        self._words[PHASE] = Phase.APPLYING

    def begin_step(self) -> None:
        """Go on with the epoch that is being applied: one more step of it.

        A rollback undoes all its steps. What primitives call changed is what this step changes.

        Raises:
            BadValueError: No epoch is being applied.
        """
        self._expect(Phase.APPLYING)
        for primitive in self._primitives.values():
            primitive.refresh()
            primitive.begin_step()
        self._next_serial()

    def _next_serial(self) -> None:
        serial = self._words[SERIAL] + 1
        if serial > LAST_STAMP:
            for primitive in self._primitives.values():
                primitive.unstamp()
            serial = 1
        self._words[SERIAL] = serial

    def commit(self, epoch: int) -> None:
        """Finish the epoch: it is now the state's version.

        Raises:
            BadValueError: This epoch is not being applied.
        """
        self._expect(Phase.APPLYING)
        if epoch != self._words[EPOCH]:
            raise BadValueError(
                f"Epoch {epoch} cannot be committed.",
                why=f"Epoch {self._words[EPOCH]} is being applied.",
                do="Commit the epoch that was begun.",
            )
        for primitive in self._primitives.values():
            primitive.commit()
        self._words[VERSION] = epoch
        self._words[PHASE] = Phase.COMMITTED

    def settle(self) -> None:
        """Bring all changes so far to where other processes find them; the epoch goes on.

        Raises:
            BadValueError: No epoch is being applied.
        """
        self._expect(Phase.APPLYING)
        for primitive in self._primitives.values():
            primitive.commit()

    def rollback(self) -> bool:
        """Undo the epoch that is being applied or was committed last.

        It may be called again after any failure, also of itself.

        Returns:
            Whether there was anything to undo.

        Raises:
            BadValueError: The state is not fully restored; it must be recreated.
        """
        self._expect(Phase.CLEAN, Phase.APPLYING, Phase.COMMITTED)
        if self._words[PHASE] == Phase.CLEAN:
            return False
        self._words[PHASE] = Phase.APPLYING
        for primitive in self._primitives.values():
            primitive.undo()
        self._header.restore()
        self._words[PHASE] = Phase.CLEAN
        return True

    def _expect(self, *phases: Phase) -> None:
        if self._words[PHASE] not in phases:
            raise BadValueError(
                f"The slot's state is in phase {self.phase.name}.",
                why=f"This is possible only in phase {' or '.join(p.name for p in phases)}.",
                do="Roll back an unfinished epoch, or recreate the arena after an unfinished "
                "restore.",
            )

    # Backups

    def divergence(self, *, exact: bool = False) -> float:
        """Sum of all primitives' divergences: what is held against the slot's θ."""
        return sum_up(p.divergence(exact=exact) for p in self._primitives.values())

    def dirty_entries(self) -> int:
        """Entries that may differ from the backups; with 0 these hold exactly this state."""
        return sum(primitive.dirty_entries() for primitive in self._primitives.values())

    def changed_entries(self) -> int:
        """Entries changed or added in this epoch, of all primitives."""
        return sum(primitive.changed_entries() for primitive in self._primitives.values())

    def begin_restore(self) -> None:
        """Start to load backups into fresh primitives.

        Until ``finish_restore`` the state counts as half-made: no epoch can begin on it, and who
        finds it after a kill has to recreate it.
        """
        self._expect(Phase.CLEAN)
        if self.version >= 0:
            raise BadValueError(
                "A state that epochs were applied to cannot be restored into.",
                do="Recreate the arena.",
            )
        self._words[PHASE] = Phase.RESTORING

    def restore(self, parts: Mapping[str, Iterable[pa.RecordBatch]]) -> None:
        """Apply what one ``export`` gave: batches by the name of their primitive.

        Raises:
            BadValueError: There is no primitive of that name, or ``begin_restore`` was not called.
        """
        self._expect(Phase.RESTORING)
        for name, batches in parts.items():
            if name not in self._primitives:
                raise BadValueError(
                    f"There is no state {name!r} to restore into.",
                    why=f"The program makes: {', '.join(self._primitives) or 'none'}.",
                    do="Restore with the program that wrote the backup.",
                )
            self._primitives[name].restore(batches)

    def finish_restore(self, version: int) -> None:
        """Make the restored state usable, as of epoch ``version``."""
        self._expect(Phase.RESTORING)
        self._words[VERSION] = version
        self._words[PHASE] = Phase.CLEAN

    # Attachment

    def refresh(self) -> bool:
        """Make a kept attachment see what other processes did since; microseconds if nothing.

        Returns:
            False if the arena was removed or recreated meanwhile: attach again.
        """
        if self._arena is not None and not self._arena.valid():
            return False
        if self._words[PRIMITIVES] != len(self._primitives):
            self._load()
        for primitive in self._primitives.values():
            primitive.refresh()
        return True

    def journal_bytes(self) -> int:
        """Bytes of that which hold the old values of the epoch that is being applied."""
        return sum(primitive.journal_bytes() for primitive in self._primitives.values())

    def resident_bytes(self) -> int:
        """Bytes of memory that the state holds now."""
        return self._store.allocated()
