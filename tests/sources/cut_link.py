"""Inputs behind a link that is really cut: packets get no answer, and no connection is closed.

A program of its own, to be run in a network namespace that has nothing but a loopback of its own: a
directory is near; a gateway and an object store are behind the loopback, which is taken down and up.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import msgspec
from moto.server import ThreadedMotoServer
from tests.sources.samples import Written
from tests.sources.test_subscribe import PLACES, spec

from tether.producer import Producer
from tether.protocols.consistency import Handling
from tether.sources.exchange.gateway_input import GatewayInput
from tether.sources.exchange.log import ExchangeAddress
from tether.sources.sunion.looking import Inputs
from tether.sources.sunion.offsets import decode, encode
from tether.sources.sunion.reading import pieces, read_piece
from tether.testing.gateways import gateway

if TYPE_CHECKING:
    from tether.sources.sunion.looking import Spec
    from tether.sources.sunion.offsets import Offset

SCHEMA = "at bigint, v bigint"
SECOND = 1_000_000
WAIT = 1.0
"""αX, seconds."""
PATIENCE = 90.0


def link(state: str) -> None:
    """Take the loopback up or down."""
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


class Reader:
    """A subscription that is asked for epochs again and again, as Spark does."""

    def __init__(self, of: Spec) -> None:
        self._spec, self.inputs = of, Inputs(of)
        self.at = self.inputs.begin()

    def next(self, kind: str) -> list[tuple[int, int, int]]:
        """Rows of the next epoch, which must be of this kind: (seconds, input, value)."""
        deadline = time.monotonic() + PATIENCE
        while (after := self.inputs.next(self.at, time.time())) is self.at:
            assert time.monotonic() < deadline, f"no {kind} epoch"
            time.sleep(0.02)
        self.at = decode(encode(after))
        assert self.at.kind == kind, self.at
        return self._rows(self.at)

    def _rows(self, offset: Offset) -> list[tuple[int, int, int]]:
        entries = [self.inputs.entries(n, taken) for n, taken in enumerate(offset.taken)]
        return [
            (row["_tuple_time"] // SECOND, row["_input"], row["v"])
            for piece in pieces(self._spec, offset, entries)
            for batch in read_piece(self._spec, piece, PLACES)
            for row in batch.to_pylist()
        ]


def run(work: Path, options: dict[str, Any], process: Any) -> None:
    """Two cuts; after each of them everything is put right."""
    near, far = Written(str(work / "near")), Written("s3://backups/far", options)
    source = GatewayInput(gateway=process.flight, stream="s", time="at", index=str(work / "index"))
    source.prepare(ExchangeAddress(url=source.index).open())
    of = msgspec.structs.replace(
        spec([near], [near], [far]),
        inputs=((near.address,), (ExchangeAddress(url=source.index),), (far.address,)),
        gateways=(None, source, None),
        handling=Handling(wait=WAIT),
        bucket=10 * SECOND,
    )
    reader, producer = Reader(of), Producer(process.flight, "s", SCHEMA, id="a", replays=True)

    def send(bucket: int, *, late: bool) -> None:
        low = 10 * bucket
        for number, each in ((0, near), (2, far)):
            if late == (number == 2):
                each.now = time.time()
                row = ((low + number) * SECOND, number)
                each.add(bucket, [row], (low + 10) * SECOND)
        if late:
            producer.send([{"at": low + 1, "v": 1}])
            producer.boundary(float(low + 10))
            producer.flush()

    def whole(bucket: int) -> list[tuple[int, int, int]]:
        return [(10 * bucket + number, number, number) for number in range(3)]

    send(0, late=False)
    send(0, late=True)
    assert reader.next("stable") == whole(0)
    for bucket in (1, 2):
        link("down")
        send(bucket, late=False)
        assert reader.next("tentative") == whole(bucket)[:1]
        link("up")
        send(bucket, late=True)
        assert reader.next("stable") == whole(bucket)
    producer.close()
    reader.inputs.stop()


def main() -> None:
    """In this namespace, below the folder that is named."""
    work = Path(sys.argv[1])
    link("up")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "fake", "secret": "fake", "endpoint_url": f"http://{host}:{port}"}
    fsspec.filesystem("s3", **options).mkdir("backups")
    with gateway(work / "store", "--stream", f"s={SCHEMA}") as process:
        run(work, options, process)


if __name__ == "__main__":
    main()
