"""Speaks with the gateways of a running query: attaches, asks what was lost, lets them drop items.

Items may be dropped when nobody can ask for them again. That is when *Spark* has committed their epoch:
before that a driver that is started again runs the epoch again. Spark's own word to a source comes an
epoch later, and never on an idle stream, so a thread looks for the entry in Spark's commit log. A policy
that goes back to snapshots needs the items since the newest of them, too.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import fsspec

from tether.core.accounts import PricedLoss, SlotFacts
from tether.core.errors import QueryRefusedError, TetherError
from tether.core.ids import Epoch, Failures, Slot
from tether.observe.facts import GatewayNow
from tether.sources.gateway.messages import CommitNote, finite
from tether.spark.gateways.shares import gateway_share
from tether.spark.logs.checkpoint import SparkCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tether.observe.story import Story
    from tether.sources.gateway.calls import GatewayCalls
    from tether.sources.gateway.messages import StreamStatus
    from tether.spark.gateways.found import GatewayLeaf
    from tether.spark.graph.prepared import PreparedQuery

LOOK_SECONDS = 0.02
"""How often the thread looks for Spark's commit."""
PATIENCE_SECONDS = 30.0
"""How long it looks before it leaves the epoch to the next one."""
_READER = "tether/gateway-reader"


class _Link(NamedTuple):
    calls: GatewayCalls
    stream: str


class GatewayKeeper:
    """The gateways of one query.

    Args:
        query: The query.
        leaves: Its streams of gateways.
        checkpoint: Spark's checkpoint directory.
        story: Is told of losses.
        lasts: Whether the query can be started again from the checkpoint; if not, the gateways are told
            to forget it at its end.

    Raises:
        UnreachableError: A gateway does not answer.
    """

    def __init__(
        self,
        query: PreparedQuery,
        leaves: Sequence[GatewayLeaf],
        checkpoint: str,
        story: Story,
        *,
        lasts: bool,
    ) -> None:
        self._query, self._story, self._lasts = query, story, lasts
        self._checkpoint = SparkCheckpoint(checkpoint)
        self._reader = _reader(checkpoint)
        self._links = [
            _Link(leaf.options.calls(address), leaf.options.stream)
            for leaf in leaves
            for given in leaf.options.gateways
            for address in leaf.options.calls(given).parts()
        ]
        self._known: dict[int, StreamStatus] = {}
        self._told: dict[tuple[str, int], float] = {}
        self._lock = threading.Lock()
        operators = query.operators.values()
        share = gateway_share(
            [one.policy.budget for one in operators],
            [one.placement for one in operators],
            gateways=len(self._links),
            senders=sum(one.node.feedback_to is not None for one in operators),
        )
        for at, link in enumerate(self._links):
            note = CommitNote(
                stream=link.stream,
                reader=self._reader,
                max_lost=share.max_lost,
                max_unacked=share.max_unacked,
            )
            self._note(at, link.calls.commit(note), epoch=-1)
        self._epochs: queue.Queue[tuple[int, int] | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    # ---- at an epoch's end -----------------------------------------------------------------------

    def after_epoch(self, epoch: int, snapshot: Callable[[], int] | None) -> None:
        """All slots have had an epoch's rows; Spark commits it next.

        Args:
            epoch: Its number.
            snapshot: Gives the epoch of the newest complete snapshot, where the query may go back.
        """
        for at, link in enumerate(self._links):
            try:
                self._note(at, link.calls.look(link.stream), epoch)
            except TetherError:
                continue  # it cannot be reached: what it may have lost is in no answer yet
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="gateways", daemon=True)
            self._thread.start()
        self._epochs.put((epoch, epoch if snapshot is None else min(epoch, snapshot())))

    def _note(self, at: int, status: StreamStatus, epoch: int) -> None:
        with self._lock:
            self._known[at] = status
        since = status.readers[self._reader].since
        for loss in status.losses:
            name = (status.store, loss.first)
            if loss.last > since and self._told.get(name) != loss.at_most:
                self._told[name] = loss.at_most
                self._story.add(
                    "items-lost",
                    "a gateway was lost",
                    Epoch(max(0, epoch)),
                    stream=status.stream,
                    first=loss.first,
                    last=loss.last,
                    items=loss.at_most,
                )

    def facts(self) -> list[SlotFacts]:
        """What gateways and producers have lost, and what is at risk now; for the bound."""
        with self._lock:
            known = list(self._known.items())
        return [
            SlotFacts(
                operator=f"{status.stream} at {self._links[at].calls.address}",
                slot=Slot(at),
                divergence=0.0,
                theta=0.0,
                failures=Failures(status.failures),
                losses=tuple(
                    PricedLoss(epoch=Epoch(0), at_most=0.0, items=loss.at_most)
                    for loss in status.losses
                    if loss.last > status.readers[self._reader].since
                ),
                pending_items=status.at_risk,
                unacked_items=status.gone,
                saved=True,  # of state there is none
            )
            for at, status in known
        ]

    def now(self) -> tuple[GatewayNow, ...]:
        """The gateways' windows, for the live page."""
        with self._lock:
            known = list(self._known.items())
        return tuple(
            GatewayNow(
                name=f"{status.stream} at {self._links[at].calls.address}",
                pending=status.at_risk,
                max_pending=finite(status.limit),
                unacked=finite(status.gone),
                max_unacked=finite(status.readers[self._reader].max_unacked),
            )
            for at, status in known
        )

    # ---- beside the epochs -----------------------------------------------------------------------

    def _follow(self) -> None:
        while (next_ := self._epochs.get()) is not None:
            epoch, upto = next_
            if self._committed(Epoch(epoch)):
                self._let_go(upto)

    def _committed(self, epoch: int) -> bool:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._checkpoint.committed(Epoch(epoch)):
            if time.monotonic() > deadline or not self._epochs.empty():
                return False  # the next epoch tells the gateway again
            time.sleep(LOOK_SECONDS)
        return True

    def _let_go(self, epoch: int) -> None:
        if epoch < 0:
            return
        try:
            ends = self._checkpoint.offsets(Epoch(epoch))
        except OSError:
            return  # Spark has forgotten the epoch: a later one tells the gateway
        for at, link in enumerate(self._links):
            with self._lock:
                store = self._known[at].store
            upto = max(
                (end[store] for end in ends if isinstance(end, dict) and store in end), default=0
            )
            if not upto:
                continue
            note = CommitNote(stream=link.stream, reader=self._reader, upto=upto)
            try:
                self._note(at, link.calls.commit(note), epoch)
            except TetherError:
                continue  # it cannot be reached: the next epoch tells it again

    def end(self) -> None:
        """The query has stopped."""
        if self._thread is not None:
            self._epochs.put(None)
            self._thread.join(5)
        for link in self._links:
            if not self._lasts:
                # If the gateway does not answer, its operator can make it forget the reader.
                with contextlib.suppress(TetherError):
                    link.calls.forget(link.stream, self._reader)
            link.calls.close()


def _reader(checkpoint: str) -> str:
    """The name under which gateways know the query: the same after every restart."""
    try:
        files, root = fsspec.core.url_to_fs(checkpoint)
    except (ImportError, ValueError) as error:
        raise QueryRefusedError(
            f"The checkpoint {checkpoint} cannot be read.",
            why=f"Gateways are told what Spark has committed, as its logs there say. {error}",
            do="Use a local directory or another file system that fsspec can open.",
        ) from error
    path = f"{root}/{_READER}"
    try:
        return str(files.cat_file(path).decode())
    except FileNotFoundError:
        name = uuid.uuid4().hex
        files.makedirs(f"{root}/tether", exist_ok=True)
        files.pipe_file(f"{path}.writing", name.encode())
        files.mv(f"{path}.writing", path)
        return name
