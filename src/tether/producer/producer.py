"""The producer: at most γ rows that only it has, and none sent twice.

What to send, hold and let go is decided by ``tether.protocols.item_sender``; here it is carried out.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tether.core.errors import BadValueError, TetherError
from tether.producer.connection import Connection
from tether.producer.held import Held, HeldRows, Report
from tether.producer.rows import batch_of, batches_of, check_columns
from tether.protocols.item_sender import (
    AcceptItems,
    ItemsAcked,
    ItemsOffered,
    ReceiverBack,
    ReleaseItems,
    SenderState,
    SendItems,
    WaitForAcks,
    send,
)
from tether.sources.ddl import arrow_schema
from tether.sources.gateway.calls import PASSING
from tether.sources.gateway.errors import UnreachableError
from tether.sources.gateway.messages import Hello, PutNote, infinite
from tether.sources.gateway.rows import plain_schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


class Producer:
    """Sends rows to one stream of a gateway.

    Guarantee: the gateway takes every row once, in order, whatever breaks in between, as long as this
    process lives. If it dies, at most γ rows are lost: those that ``send`` took over and that are not
    acknowledged. With γ below 1, ``send`` returns only when the gateway has the rows.

    Args:
        gateway: Its address: ``host:port``, ``grpc://…`` or ``grpc+tls://…``.
        stream: Name of the stream; it is made if the gateway allows that.
        schema: Of the rows: an Arrow schema, or short text like ``"user bigint, amount double"``.
        id: Names this producer for good. One that is started again under its old id goes on where
            the gateway has got to (``acked``). By default a new one.
        replays: Whether this program can send all rows after ``acked`` again itself, so that nothing is
            lost with an earlier process of this id.
        max_unacked: γ: most rows that only this process has. The gateway may allow fewer.
        batch_rows: Single rows are sent together, this number at a time.
        linger_seconds: Longest time that a single row waits for others.
        token: To be shown to the gateway.
        root_certificate: PEM of who vouches for the gateway's certificate, with TLS.
        retry_seconds: How long to try to reach a gateway that does not answer, before an error is
            raised. The rows are still held then, and the next call tries again.
        timeout_seconds: Without an acknowledgement for so long the line is made again.

    Raises:
        TetherError: The gateway cannot be reached, or refuses.

    See ``tether.producer`` for an example.
    """

    def __init__(
        self,
        gateway: str,
        stream: str,
        schema: pa.Schema | str,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        replays: bool = False,
        max_unacked: float = 10_000,
        batch_rows: int = 1000,
        linger_seconds: float = 0.1,
        token: str | None = None,
        root_certificate: bytes | None = None,
        retry_seconds: float = 60.0,
        timeout_seconds: float = 30.0,
    ) -> None:
        if id is not None and (not id or id == "-"):
            raise BadValueError(f"{id!r} cannot be a producer's id.", do="Give any other text.")
        self.id = id or uuid.uuid4().hex
        self.schema = plain_schema(arrow_schema(schema) if isinstance(schema, str) else schema)
        self._address, self._token, self._root = gateway, token, root_certificate
        self._retry, self._timeout = retry_seconds, timeout_seconds
        self._batch_rows = batch_rows
        self._window = 10 * batch_rows
        self._hello = Hello(
            stream=stream,
            producer=self.id,
            life=uuid.uuid4().hex,
            replays=replays,
            max_unacked=None if math.isinf(max_unacked) else max_unacked,
        )
        self._gamma: float = max_unacked
        self._state = SenderState()
        self._held = HeldRows()
        self._buffer: list[Mapping[str, Any]] = []
        self._changed = threading.Condition()
        """Guards the state; never held while something is sent, for acknowledgements need it."""
        self._sending = threading.RLock()
        """Orders what goes out. Taken before ``_changed``."""
        self._line: Connection | None = None
        self._progress = time.monotonic()
        self._closed = threading.Event()
        self.reconnects = -1
        with self._sending:
            self._reconnect()
        if linger_seconds > 0 and batch_rows > 1:
            threading.Thread(
                target=self._linger, args=(linger_seconds,), daemon=True, name="linger"
            ).start()

    # ---- what a program calls --------------------------------------------------------------------

    @property
    def acked(self) -> int:
        """Number of the newest row that the gateway has."""
        return self._state.acked

    @property
    def unacked(self) -> int:
        """Rows that only this process has."""
        return self._state.unacked + len(self._buffer)

    def send(self, rows: Any) -> None:
        """Take rows over: one as a mapping, several as a list of them, a RecordBatch or a Table.

        Waits while γ rows are unacknowledged.

        Raises:
            TetherError: The rows do not fit, or the gateway refuses or cannot be reached.
        """
        with self._sending:
            if self._closed.is_set():
                raise BadValueError("The producer is closed.", do="Make a new one.")
            if isinstance(rows, pa.RecordBatch | pa.Table):
                self._send_buffer()
                for batch in batches_of(rows, self.schema):
                    self._offer(batch)
                return
            single = [rows] if hasattr(rows, "keys") else list(rows)
            check_columns(single, self.schema)
            for row in single:
                self._buffer.append(row)
                full = len(self._buffer) + self._state.unacked >= self._gamma >= 1
                if full or len(self._buffer) >= self._batch_rows:
                    self._send_buffer()
            if self._gamma < 1:
                self._send_buffer()

    def boundary(self, seconds: float) -> None:
        """Say that nothing older than this event time will come; returns when it is durable."""
        with self._sending:
            self._send_buffer()
            self._wait(lambda: not self._state.unacked)
            with self._changed:
                self._state, _ = send(self._state, ItemsOffered(count=1), 1)
                number = self._state.sent
                self._held.add(Held(number, number, None, seconds))
            self._put(self._held.newest)
            self._wait(lambda: not self._state.unacked)

    def heartbeat(self) -> None:
        """Say that this producer is there, though it has nothing to send."""
        with self._sending:
            line = self._connected()
            try:
                line.send(None, PutNote(offset_id=self._state.sent, heartbeat=True))
            except PASSING:
                self._reconnect()

    def flush(self, seconds: float | None = None) -> None:
        """Wait until the gateway has every row.

        Raises:
            UnreachableError: It has not, after ``seconds``.
        """
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        with self._sending:
            self._send_buffer()
            self._wait(lambda: not self._state.unacked, deadline)

    def close(self, seconds: float | None = None) -> Report:
        """Send what waits, and end; tells what the gateway may not have."""
        with self._sending:
            if not self._closed.is_set():
                try:
                    self.flush(self._retry if seconds is None else seconds)
                    if self._line is not None:
                        self._line.send(None, PutNote(offset_id=self._state.sent, closing=True))
                except TetherError:
                    pass  # the report says what is missing
                self._closed.set()
                if self._line is not None:
                    (self._line.abandon if self._state.unacked else self._line.close)()
            held = [one.rows for one in self._held if one.rows is not None]
            if self._buffer:
                held.append(pa.RecordBatch.from_pylist(self._buffer, schema=self.schema))
            return Report(self._state.acked, pa.Table.from_batches(held, schema=self.schema))

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        report = self.close()
        if kind is None and report.unacked.num_rows:
            raise UnreachableError(
                f"{report.unacked.num_rows} rows are not acknowledged.",
                why=f"The gateway at {self._address} did not answer in time.",
                do="Call close() yourself: its report has the rows.",
            )

    # ---- carrying out ----------------------------------------------------------------------------

    def _send_buffer(self) -> None:
        if self._buffer:
            rows, self._buffer = self._buffer, []
            self._offer(batch_of(rows, self.schema))

    def _offer(self, rows: pa.RecordBatch) -> None:
        at = 0
        while at < rows.num_rows:
            with self._changed:
                # With γ below 1 the program keeps its rows until they are acknowledged; so all may go.
                offered = ItemsOffered(count=rows.num_rows - at)
                self._state, asked = send(self._state, offered, self._gamma, self._window)
                going = next((one for one in asked if isinstance(one, SendItems)), None)
                if going is not None:
                    count = going.last - going.first + 1
                    one = Held(going.first, going.last, rows.slice(at, count))
                    self._held.add(one)
                    at += count
            waits = any(isinstance(one, WaitForAcks) for one in asked)
            if going is not None:
                self._put(one, waits=waits or self._gamma < 1)
            if waits:
                most = self._gamma if self._gamma >= 1 else self._window
                self._wait(lambda most=most: self._state.unacked < most)
        if self._gamma < 1:
            self._wait(lambda: not self._state.unacked)

    def _put(self, one: Held, *, waits: bool = True) -> None:
        note = PutNote(offset_id=one.first, boundary=one.boundary, waits=waits)
        try:
            self._connected().send(one.rows, note)
        except PASSING:
            self._reconnect()  # sends it again

    def _wait(self, until: Any, deadline: float = math.inf) -> None:
        """Wait for acknowledgements; a line that is broken or silent is made again."""
        while True:
            with self._changed:
                while not until():
                    line = self._line
                    broken = line is None or line.error is not None
                    quiet = time.monotonic() - self._progress > self._timeout
                    if broken or quiet:
                        break
                    if time.monotonic() > deadline:
                        raise UnreachableError(
                            f"{self._state.unacked} rows are not acknowledged yet.",
                            why="The gateway is slow, or waits for a query to process more.",
                            do="Wait longer; the rows are still held.",
                        )
                    self._changed.wait(min(0.5, max(0.001, deadline - time.monotonic())))
                else:
                    return
            self._reconnect(deadline)

    def _connected(self) -> Connection:
        if self._line is None or self._line.error is not None:
            self._reconnect()
        assert self._line is not None
        return self._line

    def _reconnect(self, deadline: float = math.inf) -> None:
        """Make the line again, and send again what is not acknowledged."""
        give_up = min(deadline, time.monotonic() + self._retry)
        pause = 0.02
        while True:
            last = self._line.error if self._line is not None else None
            if self._line is not None:
                self._line.abandon()
                self._line = None
            if last is not None and not isinstance(last, PASSING):
                raise last
            try:
                self._line = self._open()
                self.reconnects += 1
                self._progress = time.monotonic()
                self._send_again()
                return
            except PASSING as error:
                if time.monotonic() + pause > give_up:
                    raise error from None
            time.sleep(pause)
            pause = min(1.0, 2 * pause)

    def _open(self) -> Connection:
        line = self._connect(self._address)
        if line.welcome.owner:  # another process of the gateway has this producer's numbers
            line.abandon()
            line = self._connect(line.welcome.owner)
        with self._changed:
            self._gamma = min(self._gamma, infinite(line.welcome.max_unacked))
            heard = line.welcome.heard
            if self.reconnects < 0:  # an earlier process of this id has come so far
                self._state = SenderState(sent=heard, accepted=heard, acked=heard)
        if heard and self.reconnects >= 0:
            self._note_acked(heard)
        return line

    def _connect(self, address: str) -> Connection:
        return Connection(
            address,
            self._hello,
            self.schema,
            acked=self._note_acked,
            ended=self._note_ended,
            token=self._token,
            root_certificate=self._root,
            seconds=self._timeout,
        )

    def _send_again(self) -> None:
        with self._changed:
            _, asked = send(self._state, ReceiverBack(), self._gamma)
            again = list(self._held) if any(isinstance(one, SendItems) for one in asked) else []
        assert self._line is not None
        for one in again:
            self._line.send(one.rows, PutNote(offset_id=one.first, boundary=one.boundary))

    def _note_acked(self, upto: int) -> None:
        with self._changed:
            self._state, asked = send(self._state, ItemsAcked(upto=upto), self._gamma)
            for one in asked:
                if isinstance(one, ReleaseItems):
                    self._held.release(one.upto)
                assert isinstance(one, ReleaseItems | AcceptItems)
            self._progress = time.monotonic()
            self._changed.notify_all()

    def _note_ended(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _linger(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            if self._buffer and self._sending.acquire(blocking=False):
                try:
                    self._send_buffer()
                except TetherError:
                    pass  # the next call of the program is told
                finally:
                    self._sending.release()
