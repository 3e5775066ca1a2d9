"""A client's side of the gateway: small questions, reads, and errors as they were raised over there."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tether.core.errors import TetherError
from tether.sources.gateway import errors
from tether.sources.gateway.config import flight_location
from tether.sources.gateway.messages import CommitNote, ReadTicket, StreamStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_TOLD = re.compile(r"\[([a-z-]+)\] (.*?)(?:\. Detail:| gRPC client debug context|$)", re.DOTALL)
_BY_CODE = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.GatewayError)
}
_T = TypeVar("_T")
PASSING = (errors.BusyError, errors.StoreFailedError, errors.UnreachableError)
"""Errors after which the same request may succeed later."""


def connect(
    address: str, token: str | None = None, root_certificate: bytes | None = None
) -> tuple[Any, Any]:
    """A Flight client and the options of its calls; nothing is sent yet.

    Args:
        address: ``host:port``, ``grpc://…`` or ``grpc+tls://…``.
        token: To be shown.
        root_certificate: PEM of who vouches for the gateway's certificate, with TLS.
    """
    from pyarrow import flight  # noqa: PLC0415 - loads gRPC

    # A gateway that was restarted should be found soon, not after gRPC's two minutes.
    tuning = [
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    client = flight.FlightClient(
        flight_location(address), tls_root_certs=root_certificate, generic_options=tuning
    )
    return client, call_options(token)


def call_options(token: str | None, seconds: float | None = None) -> Any:
    """Options of a call: the token, and how long it may take."""
    from pyarrow import flight  # noqa: PLC0415

    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    return flight.FlightCallOptions(timeout=seconds, headers=headers)


def understood(error: Exception, address: str) -> TetherError:
    """The error that the gateway raised, or one that says that it cannot be reached."""
    if isinstance(error, TetherError):
        return error
    told = _TOLD.search(str(error))
    if told is not None and told[1] in _BY_CODE:
        return _BY_CODE[told[1]](told[2].strip())
    return errors.UnreachableError(
        f"The gateway at {address} does not answer.",
        why=str(error).split(". Detail:")[0].split(" gRPC client debug")[0],
        do="Check that it runs and that the address is right.",
    )


class GatewayCalls:
    """Questions to one gateway, over one connection that is made again when it breaks.

    Args:
        address: Of the gateway.
        token: To be shown.
        root_certificate: For TLS.
        seconds: How long a call may take.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        root_certificate: bytes | None = None,
        seconds: float = 10.0,
    ) -> None:
        self.address, self._token, self._root = address, token, root_certificate
        self._seconds = seconds
        self._client: Any = None

    def status(self, stream: str) -> StreamStatus:
        """All about a stream."""
        return self._act("status", [stream], list[StreamStatus])[0]

    def look(self, stream: str) -> StreamStatus:
        """The same, for somebody who plans nothing by it: it costs the gateway nothing."""
        return self._act("look", [stream], list[StreamStatus])[0]

    def commit(self, note: CommitNote) -> StreamStatus:
        """Tell how far a reader is."""
        return self._act("commit", note, list[StreamStatus])[0]

    def forget(self, stream: str, reader: str) -> StreamStatus:
        """A reader will not come back."""
        note = CommitNote(stream=stream, reader=reader)
        return self._act("forget", note, list[StreamStatus])[0]

    def parts(self) -> tuple[str, ...]:
        """Where to ask: the processes behind this address, or just this address."""
        found = self._act("parts", None, tuple[str, ...])
        return found or (self.address,)

    def read(self, stream: str, first: int, last: int, columns: tuple[str, ...] = ()) -> pa.Table:
        """Rows with numbers from ``first`` to ``last``: some columns of them, or all."""
        from pyarrow import flight  # noqa: PLC0415

        ticket = flight.Ticket(
            msgspec.json.encode(ReadTicket(stream=stream, first=first, last=last, columns=columns))
        )

        def get(client: Any) -> pa.Table:
            options = call_options(self._token, 10 * self._seconds)
            return client.do_get(ticket, options).read_all()

        return self._call(get)

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _act(self, kind: str, body: object, answer_type: type[_T]) -> _T:
        from pyarrow import flight  # noqa: PLC0415

        def act(client: Any) -> _T:
            action = flight.Action(kind, msgspec.msgpack.encode(body))
            answer = list(client.do_action(action, call_options(self._token, self._seconds)))
            return msgspec.msgpack.decode(answer[0].body.to_pybytes(), type=answer_type)

        return self._call(act)

    def _call(self, what: Callable[[Any], _T]) -> _T:
        try:
            if self._client is None:
                self._client, _ = connect(self.address, self._token, self._root)
            return what(self._client)
        except Exception as error:
            self.close()
            raise understood(error, self.address) from error


def patiently(what: Callable[[], _T], seconds: float) -> _T:
    """Try again while a gateway is away or has no room, for so long."""
    deadline, pause = time.monotonic() + seconds, 0.05
    while True:
        try:
            return what()
        except PASSING:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(1.0, 2 * pause)
