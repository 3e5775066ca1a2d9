"""One ``DoPut`` to a gateway: batches go out, acknowledgements come in on a thread of their own."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import msgspec

from tether.sources.gateway.calls import connect, understood
from tether.sources.gateway.errors import UnreachableError
from tether.sources.gateway.messages import Ack, Hello, PutNote, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from tether.core.errors import TetherError

GOODBYE_SECONDS = 5.0
"""How long to wait for the gateway's last word."""
_encode = msgspec.json.Encoder().encode
_ack = msgspec.json.Decoder(Ack).decode


class Connection:
    """A line to a gateway that works until it breaks; then another one is made.

    Args:
        address: Of the gateway.
        hello: Who sends, and to which stream.
        schema: Of the rows.
        acked: Called on the reading thread with every acknowledged number.
        ended: Called on the reading thread when the line has broken.
        token: To be shown.
        root_certificate: For TLS.
        seconds: How long to wait for the gateway's first word.

    Raises:
        TetherError: The gateway cannot be reached, or refuses.
    """

    def __init__(
        self,
        address: str,
        hello: Hello,
        schema: pa.Schema,
        *,
        acked: Callable[[int], None],
        ended: Callable[[], None],
        token: str | None,
        root_certificate: bytes | None,
        seconds: float,
    ) -> None:
        from pyarrow import flight  # noqa: PLC0415 - loads gRPC

        self._address, self._acked, self._ended = address, acked, ended
        self._client, options = connect(address, token, root_certificate)
        self.error: TetherError | None = None
        """Why the line has broken."""
        self._welcomed, self._over = threading.Event(), threading.Event()
        self._welcome: Welcome | None = None
        try:
            descriptor = flight.FlightDescriptor.for_command(_encode(hello))
            self._writer, self._reader = self._client.do_put(descriptor, schema, options)
        except Exception as error:
            self._client.close()
            raise understood(error, address) from error
        self._schema = schema
        threading.Thread(target=self._listen, daemon=True, name="acknowledgements").start()
        self._welcomed.wait(seconds)
        if self._welcome is None:
            silent = UnreachableError(
                f"The gateway at {address} does not answer.", do="Check that it runs."
            )
            self.abandon()
            raise self.error or silent
        self.welcome: Welcome = self._welcome

    def send(self, rows: pa.RecordBatch | None, note: PutNote) -> None:
        """Send a batch, or a note alone.

        Raises:
            TetherError: The line has broken.
        """
        if self.error is not None:
            raise self.error
        try:
            if rows is None:
                self._writer.write_metadata(_encode(note))
            else:
                self._writer.write_with_metadata(rows, _encode(note))
        except Exception as error:
            # The gateway's own words, if it said any, come by the other thread.
            self._over.wait(GOODBYE_SECONDS)
            self.error = self.error or understood(error, self._address)
            raise self.error from error

    def close(self) -> None:
        """All is sent and acknowledged: end in good order."""
        with contextlib.suppress(Exception):
            self._writer.done_writing()
        self._over.wait(GOODBYE_SECONDS)
        self._client.close()

    def abandon(self) -> None:
        """Close the connection at once, also during a call."""
        with contextlib.suppress(Exception):
            self._client.close()
        threading.Thread(target=self.close, daemon=True).start()

    def _listen(self) -> None:
        try:
            first = self._reader.read()
            if first is None:
                # The reason comes with the end of the stream.
                self._writer.close()
                raise ConnectionError("it ended the connection")
            self._welcome = msgspec.json.decode(first.to_pybytes(), type=Welcome)
            self._welcomed.set()
            while (answer := self._reader.read()) is not None:
                self._acked(_ack(answer.to_pybytes()).ack_up_to_offset)
            self._writer.close()
            raise ConnectionError("it ended the connection")
        except Exception as error:
            self.error = understood(error, self._address)
        finally:
            self._over.set()
            self._welcomed.set()
            self._ended()
