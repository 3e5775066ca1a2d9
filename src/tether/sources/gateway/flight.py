"""The gateway as an Arrow Flight server: ``DoPut`` for producers, ``DoGet`` for executors."""

from __future__ import annotations

import hmac
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from tether.core.errors import TetherError
from tether.sources.gateway.acks import AckLine, Reminder
from tether.sources.gateway.errors import (
    BadRowsError,
    BusyError,
    ElsewhereError,
    GatewayError,
    NotAllowedError,
    StoreFailedError,
    TooLargeError,
)
from tether.sources.gateway.gateway import check_id
from tether.sources.gateway.messages import (
    Ack,
    CommitNote,
    Hello,
    PutNote,
    ReadTicket,
    StreamStatus,
    Welcome,
)
from tether.sources.gateway.rows import conform
from tether.sources.gateway.stream import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tether.sources.gateway.gateway import Gateway
    from tether.sources.gateway.stream import GatewayStream

_note = msgspec.json.Decoder(PutNote).decode
_ack = msgspec.json.Encoder().encode
_answer = msgspec.msgpack.Encoder().encode  # knows infinity, which JSON does not


class FlightFront(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a gateway over Arrow Flight.

    Args:
        gateway: The streams.
        location: Where to listen.
        certificates: Pairs of certificate and key, for TLS.
    """

    def __init__(
        self, gateway: Gateway, location: str, certificates: list[tuple[bytes, bytes]]
    ) -> None:
        checks = {"token": _TokenCheck(gateway.config.token)} if gateway.config.token else {}
        super().__init__(location, tls_certificates=certificates, middleware=checks)
        self._gateway = gateway
        self._room = threading.Semaphore(gateway.config.connections)
        self._reminder = Reminder()

    # ---- producers -------------------------------------------------------------------------------

    def do_put(
        self,
        context: Any,
        descriptor: flight.FlightDescriptor,
        reader: Any,
        writer: Any,
    ) -> None:
        """Rows of one producer, batch by batch, acknowledged in the metadata that goes back."""
        if not self._room.acquire(blocking=False):
            raise _told(
                BusyError(
                    "The gateway has as many connections as it takes.",
                    why=f"They are {self._gateway.config.connections}.",
                    do="Connect again later, or raise --connections.",
                )
            )
        try:
            self._put(context, descriptor, reader, writer)
        except TetherError as error:
            raise _told(error) from None
        finally:
            self._room.release()

    def _put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        hello = _hello(descriptor)
        stream = self._gateway.stream_for(hello.stream, reader.schema)
        producer = hello.producer or ANONYMOUS
        check_id(producer)
        check_id(hello.life)
        if hello.producer and (owner := self._gateway.owner_of(producer)) is not None:
            writer.write(_ack(Welcome(producer=producer, heard=0, owner=owner)))
            raise ElsewhereError(
                f"The producer {producer!r} is served at {owner}.",
                why="The gateway is several processes, and each has some of the producers.",
                do="Connect there.",
            )
        welcome, number = stream.hello(hello, producer)
        session = None if producer == ANONYMOUS else number
        writer.write(_ack(welcome))
        take = partial(
            self._take,
            stream,
            producer,
            session,
            as_they_are=reader.schema.equals(stream.schema, check_metadata=True),
            wait=lambda: not context.is_cancelled(),
        )
        acks = AckLine(writer, self._reminder)
        ended = False
        try:
            while True:
                try:
                    rows, metadata = reader.read_chunk()
                except StopIteration:
                    break
                note = None if metadata is None else _parsed(metadata)
                if note is not None and note.closing:
                    ended = True
                    acks.send(Ack(ack_up_to_offset=note.offset_id), at_once=True)
                    continue
                ack = take(rows, note)
                if ack is not None:
                    acks.send(ack, at_once=note is not None and note.waits)
        finally:
            acks.close()
            if session is not None:
                stream.goodbye(producer, session, in_good_order=ended)

    def _take(
        self,
        stream: GatewayStream,
        producer: str,
        session: int | None,
        rows: pa.RecordBatch | None,
        note: PutNote | None,
        *,
        as_they_are: bool,
        wait: Callable[[], bool],
    ) -> Ack | None:
        if note is None and producer != ANONYMOUS and rows is not None and rows.num_rows:
            raise BadRowsError(
                f"The producer {producer!r} sent rows without their number.",
                do='Send {"offset_id": number of the first row} as the batch\'s app_metadata, or no '
                "producer id.",
            )
        first = 0 if note is None else note.offset_id
        if note is not None and note.boundary is not None:
            return stream.put_boundary(producer, first, note.boundary, session)
        if rows is None:
            return None
        limit, size = self._gateway.config.batch_bytes, rows.get_total_buffer_size()
        if size > limit:
            raise TooLargeError(
                f"A batch of {size} bytes is more than this gateway takes.",
                why=f"Its limit is {limit} bytes.",
                do="Send smaller batches, or raise --batch-bytes.",
            )
        try:
            rows.validate(full=True)  # what is not what it says would end the process later
        except pa.ArrowException as error:
            raise BadRowsError(
                f"A batch for the stream {stream.name!r} is damaged.",
                why=str(error),
                do="Write it with an Arrow library. No row of it was taken.",
            ) from error
        if not as_they_are:
            rows = conform(stream.schema, rows)
        return stream.put(producer, first, rows, session=session, wait=wait)

    # ---- readers ---------------------------------------------------------------------------------

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:  # noqa: ARG002
        """Rows of a range of numbers."""
        try:
            asked = msgspec.json.decode(ticket.ticket, type=ReadTicket)
            stream = self._gateway.stream(asked.stream)
            schema = _of(stream.schema, asked.columns)
            rows = stream.read(asked.first, asked.last)
        except msgspec.DecodeError as error:
            raise flight.FlightServerError(f"bad ticket: {error}") from None
        except TetherError as error:
            raise _told(error) from None
        if schema is not stream.schema:
            rows = (batch.select(schema.names) for batch in rows)
        return flight.GeneratorStream(schema, _given(rows))

    def do_action(self, context: Any, action: flight.Action) -> Iterator[bytes]:  # noqa: ARG002
        """``status``, ``commit``, ``forget``: small questions and notes, in msgpack."""
        try:
            return iter([_answer(self._act(action.type, action.body.to_pybytes()))])
        except msgspec.DecodeError as error:
            raise flight.FlightServerError(f"bad request: {error}") from None
        except TetherError as error:
            raise _told(error) from None

    def _act(self, kind: str, body: bytes) -> list[StreamStatus] | tuple[str, ...]:
        if kind == "parts":
            return self._gateway.peers
        if kind in ("status", "look"):
            names = msgspec.msgpack.decode(body, type=list[str])
            show = kind == "status"
            return [self._gateway.stream(name).status(show=show) for name in names]
        if kind in ("commit", "forget"):
            note = msgspec.msgpack.decode(body, type=CommitNote)
            stream = self._gateway.stream(note.stream)
            if kind == "commit":
                stream.commit(note)
            else:
                stream.forget(note.reader)
            return [stream.status(show=False)]
        raise GatewayError(
            f"There is no action {kind!r}.", do="Known are: status, look, commit, forget, parts."
        )

    def list_actions(self, context: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        """What can be asked."""
        return [
            ("status", "State of streams: a list of names."),
            ("look", "The same, for readers that plan nothing by it."),
            ("commit", "A reader has processed items up to a number."),
            ("forget", "A reader will not come back."),
            ("parts", "Addresses of the gateway's processes, if they are several."),
        ]

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:  # noqa: ARG002
        """The streams."""
        for stream in self._gateway.streams():
            yield flight.FlightInfo(
                stream.schema, flight.FlightDescriptor.for_path(stream.name), [], -1, -1
            )


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._wanted = f"Bearer {token}"

    def start_call(self, info: Any, headers: Any) -> None:  # noqa: ARG002
        shown = next((headers[name] for name in headers if name.lower() == "authorization"), [""])
        check_token(self._wanted, shown[0])


def check_token(wanted: str, shown: str) -> None:
    """Refuse callers that do not show the token."""
    if not hmac.compare_digest(wanted.encode(), shown.encode()):
        error = NotAllowedError(
            "This gateway asks for a token, and the one that came is not it.",
            do="Send the header Authorization: Bearer …, or give the client token='…'.",
        )
        raise flight.FlightUnauthenticatedError(f"[{error.code}] {error}")


def _hello(descriptor: Any) -> Hello:
    if descriptor.command:
        try:
            return msgspec.json.decode(descriptor.command, type=Hello)
        except msgspec.DecodeError as error:
            raise BadRowsError(
                "The descriptor's command is not understood.",
                why=str(error),
                do='Send {"stream": "name", "producer": "id"}, or a descriptor with a path.',
            ) from error
    if descriptor.path:
        return Hello(stream=descriptor.path[0].decode())
    raise BadRowsError(
        "The descriptor names no stream.", do="Send FlightDescriptor.for_path(name)."
    )


def _of(schema: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    """The columns that a reader asks for."""
    if unknown := set(columns) - set(schema.names):
        raise GatewayError(
            f"The stream has no column {min(unknown)!r}.", do=f"Ask for {', '.join(schema.names)}."
        )
    return pa.schema([schema.field(name) for name in columns]) if columns else schema


def _given(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except OSError as error:
        raise flight.FlightServerError(f"[gateway] Items cannot be read: {error}") from None


def _parsed(metadata: pa.Buffer) -> PutNote:
    try:
        return _note(metadata)
    except msgspec.DecodeError as error:
        raise BadRowsError(
            "The metadata of a batch is not understood.",
            why=str(error),
            do='Send {"offset_id": number of the first row}, in JSON.',
        ) from error


def _told(error: TetherError) -> flight.FlightError:
    """An error as Flight's clients know it; its code comes first, so that ours finds it again."""
    text = f"[{error.code}] {error}"
    if isinstance(error, BusyError | StoreFailedError):
        return flight.FlightUnavailableError(text)
    return flight.FlightServerError(text)
