"""A gateway as an input of its own: its rows are read where they are, in the one order there is."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.producer import Producer
from tether.protocols.consistency import Handling
from tether.sources.exchange.gateway_index import GatewayIndex
from tether.sources.exchange.gateway_input import GatewayInput
from tether.sources.exchange.log import ExchangeAddress
from tether.sources.exchange.readers import known_readers
from tether.sources.gateway.calls import GatewayCalls
from tether.sources.gateway.errors import UnreachableError
from tether.sources.sunion.looking import Inputs
from tether.sources.sunion.offsets import decode, encode
from tether.sources.sunion.reading import pieces, read_piece
from tether.sources.sunion.subscribe import specify
from tether.testing.gateways import gateway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tether.sources.sunion.looking import Spec
    from tether.sources.sunion.offsets import Offset
    from tether.testing.gateways import GatewayProcess

SCHEMA = "at bigint, v bigint"
ROWS = pa.schema([("v", pa.int64()), ("_tuple_time", pa.int64()), ("_input", pa.int32())])


@pytest.fixture
def one(tmp_path: Path) -> Iterator[GatewayProcess]:
    with gateway(tmp_path / "one", "--stream", f"s={SCHEMA}") as process:
        yield process


@pytest.fixture
def other(tmp_path: Path) -> Iterator[GatewayProcess]:
    with gateway(tmp_path / "other", "--stream", f"s={SCHEMA}") as process:
        yield process


def source_of(tmp_path: Path, process: GatewayProcess, producers: int = 1) -> GatewayInput:
    return GatewayInput(
        gateway=process.flight,
        stream="s",
        time="at",
        index=str(tmp_path / f"index{producers}"),
        producers=producers,
        wait_seconds=0.2,
    )


def subscribed(*inputs: GatewayInput, **changed: Any) -> Spec:
    found = specify(
        inputs,
        reader="r",
        bucket=10,
        handling=Handling(wait=20.0),
        kinds=True,
        places=True,
        retain=1,
    )
    return msgspec.structs.replace(found, **changed)


class Looked:
    """A subscription whose indexes are extended when it is told to, at a time of one's own choosing."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.now = spec, 0.0
        self.inputs = Inputs(spec)
        self.inputs._extend_indexes = lambda: None  # type: ignore[method-assign]
        self.indexes = []
        for source, (log,) in zip(spec.gateways, self.inputs.logs, strict=True):
            assert source is not None
            self.indexes.append(GatewayIndex(source, log, clock=lambda: self.now))
        self.at = self.inputs.begin()

    def look(self, *numbers: int) -> None:
        for number in numbers:
            self.indexes[number].extend()

    def epochs(self, now: float) -> list[tuple[str, list[tuple[int, int, int]]]]:
        """Kind and (seconds, input, value) of all that can be given now."""
        found = []
        while (after := self.inputs.next(self.at, now)) is not self.at:
            self.at = decode(encode(after))
            found.append((self.at.kind, rows_of(self.spec, self.at)))
        return found


def rows_of(spec: Spec, offset: Offset) -> list[tuple[int, int, int]]:
    """As tasks read it, from nothing but the offset."""
    inputs = Inputs(spec)
    entries = [inputs.entries(number, taken) for number, taken in enumerate(offset.taken)]
    found = []
    for piece in pieces(spec, offset, entries):
        again = msgspec.json.decode(msgspec.json.encode(piece), type=type(piece))
        of = msgspec.json.decode(msgspec.json.encode(spec), type=type(spec))
        for batch in read_piece(msgspec.structs.replace(of, kinds=False), again, ROWS):
            found += [
                (row["_tuple_time"] // 1_000_000, row["_input"], row["v"])
                for row in batch.to_pylist()
            ]
    return found


def send(producer: Producer, *rows: tuple[int, int], boundary: float | None = None) -> None:
    if rows:
        producer.send([{"at": at, "v": v} for at, v in rows])
    if boundary is not None:
        producer.boundary(boundary)
    producer.flush()


def test_gateways_are_inputs_by_themselves(
    tmp_path: Path, one: GatewayProcess, other: GatewayProcess
) -> None:
    """One order; silent while one is away; late rows keep within what was told; the same again."""
    looked = Looked(subscribed(source_of(tmp_path, one), source_of(tmp_path, other, producers=2)))
    with (
        Producer(one.flight, "s", SCHEMA, id="a") as a,
        Producer(other.flight, "s", SCHEMA, id="b", replays=True) as b,
        Producer(other.flight, "s", SCHEMA, id="c", replays=True) as c,
    ):
        send(a, (3, 1), (1, 2), (12, 3), boundary=12)
        send(b, (5, 4), (15, 5), boundary=20)
        looked.look(0, 1)
        assert looked.epochs(1.0) == []  # one producer has said nothing yet
        send(c, (3, 6), boundary=10)
        looked.look(0, 1)
        whole = [(1, 0, 2), (3, 0, 1), (3, 1, 6), (5, 1, 4)]
        assert looked.epochs(1.0) == [("stable", whole)]

        other.kill()
        looked.now = 100.0
        send(a, (11, 7), (16, 8), boundary=20)  # the first one is older than was told: 12
        looked.look(0)
        with pytest.raises(UnreachableError):
            looked.look(1)
        # What was seen of the other before is there to be given, once it can be fetched.
        early = looked.inputs.next(looked.at, 100.0)
        assert early.kind == "tentative"
        with pytest.raises(UnreachableError):
            rows_of(looked.spec, early)
        other.start()
        assert rows_of(looked.spec, early) == [(12, 0, 3), (12, 0, 7), (15, 1, 5), (16, 0, 8)]
        looked.at = early
        send(b)  # both are connected again
        send(c, (19, 9), boundary=20)
        looked.look(1)
        right = [(12, 0, 3), (12, 0, 7), (15, 1, 5), (16, 0, 8), (19, 1, 9)]
        assert looked.epochs(121.0) == [("stable", right)]
    assert Looked(looked.spec).epochs(122.0) == [("stable", whole + right)]  # whoever reads it next


def test_rows_are_kept_until_they_were_read_and_not_longer(
    tmp_path: Path, one: GatewayProcess
) -> None:
    spec = subscribed(source_of(tmp_path, one))
    status = GatewayCalls(one.flight).status
    assert status("s").limit == 0  # from here on nothing that is acknowledged can be lost
    looked = Looked(spec)
    with Producer(one.flight, "s", SCHEMA, id="a") as a:
        for bucket in range(3):
            send(a, (10 * bucket, bucket), boundary=10 * bucket + 10)
            looked.look(0)
        assert [rows for _, rows in looked.epochs(0.0)] == [[(0, 0, 0), (10, 0, 1), (20, 0, 2)]]
        looked.inputs.note(looked.at.low)
        assert looked.indexes[0].trim() == 2
        assert status("s").committed == 4  # rows 1 and 3, boundaries 2 and 4
        assert known_readers(looked.inputs.logs[0][0]) == {"r": 2}
        # Whoever begins now, begins with what is left; and the index goes on from there.
        later = Looked(spec)
        send(a, (30, 3), boundary=40)
        later.look(0)
        assert [rows for _, rows in later.epochs(0.0)] == [[(20, 0, 2), (30, 0, 3)]]
        looked.now = 1.0
        # The other one finds that it was not alone, and goes on with what is there.
        assert not looked.indexes[0].extend()
        send(a, (40, 4), boundary=50)
        assert looked.indexes[0].extend()
        assert [rows for _, rows in looked.epochs(0.0)] == [[(30, 0, 3), (40, 0, 4)]]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_every_row_once_and_in_order_whatever_is_killed(
    tmp_path: Path, one: GatewayProcess, other: GatewayProcess, seed: int
) -> None:
    """Gateways die at random moments, and so does the reader, who knows its last offset alone."""
    draw, processes = random.Random(seed), (one, other)
    far = msgspec.structs.replace(source_of(tmp_path, other), index=str(tmp_path / "far"))
    handling = Handling(wait=20.0, most=draw.choice([1, 3]))
    spec = subscribed(source_of(tmp_path, one), far, handling=handling)
    looked = Looked(spec)
    looked.look(0, 1)
    sent: list[tuple[int, int, int]] = []
    given: list[tuple[str, list[tuple[int, int, int]]]] = []
    told = [0, 0]
    with (
        Producer(one.flight, "s", SCHEMA, id="a", replays=True) as a,
        Producer(other.flight, "s", SCHEMA, id="b", replays=True) as b,
    ):
        for step in range(30):
            number = draw.randrange(2)
            low, many = told[number], draw.randrange(4)
            rows = [(low + draw.randrange(25), draw.randrange(10**9)) for _ in range(many)]
            told[number] += draw.randrange(8)
            send((a, b)[number], *rows, boundary=float(told[number]))
            sent += [(at, number, v) for at, v in rows]
            struck = draw.choice(processes) if draw.random() < 0.15 else None
            if struck is not None:
                struck.kill()
            looked.now = float(10 * step)
            for each in range(2):
                if draw.random() < 0.7:
                    with contextlib.suppress(UnreachableError):
                        looked.look(each)
            if struck is not None:
                struck.start()
            given += looked.epochs(looked.now)
            if draw.random() < 0.2:
                at = looked.at
                looked = Looked(spec)
                looked.at = decode(encode(at))
        for producer in (a, b):
            send(producer, boundary=1_000.0)
    looked.look(0, 1)
    given += looked.epochs(1e6)
    stable = [row for kind, rows in given if kind == "stable" for row in rows]
    assert sorted(stable) == sorted(sent)
    assert [row[:2] for row in stable] == sorted(row[:2] for row in stable)


def test_what_looks_by_itself(tmp_path: Path, one: GatewayProcess) -> None:
    """As in Spark: in the background, and a bounded run waits for the first look."""
    spec = subscribed(source_of(tmp_path, one))
    with Producer(one.flight, "s", SCHEMA, id="a") as a:
        send(a, (1, 1), boundary=10)
    inputs = Inputs(spec)
    begun = inputs.begin()
    inputs.stop_here(begun)
    offset = inputs.next(begun, 0.0)
    inputs.stop()
    assert rows_of(spec, offset) == [(1, 0, 1)]


def test_what_cannot_be_an_input_is_refused(tmp_path: Path, one: GatewayProcess) -> None:
    mine = source_of(tmp_path, one)
    subscribed(mine)
    for changed, message in (
        (msgspec.structs.replace(mine, time="v"), "another input"),
        (
            msgspec.structs.replace(mine, time="w", index=str(tmp_path / "w")),
            "cannot be a tuple time",
        ),
    ):
        with pytest.raises(BadValueError, match=message):
            subscribed(changed)
    away = msgspec.structs.replace(mine, gateway="127.0.0.1:1")
    subscribed(away)  # its columns are known by now
    with pytest.raises(UnreachableError, match="cannot be asked for the columns"):
        subscribed(msgspec.structs.replace(away, index=str(tmp_path / "new")))


def test_rows_of_another_store_are_not_taken_for_those_that_were_seen(
    tmp_path: Path, one: GatewayProcess, other: GatewayProcess
) -> None:
    mine = source_of(tmp_path, one)
    looked = Looked(subscribed(mine))
    for process, at in zip((one, other), (1, 2), strict=True):
        with Producer(process.flight, "s", SCHEMA, id="a") as a:
            send(a, (at, 1), boundary=10)
    looked.look(0)
    ((_, rows),) = looked.epochs(0.0)
    assert rows == [(1, 0, 1)]
    moved = msgspec.structs.replace(mine, gateway=other.flight)
    with pytest.raises(BackupUnreadableError, match="not those that were seen first"):
        rows_of(msgspec.structs.replace(looked.spec, gateways=(moved,)), looked.at)


def test_an_address_is_all_that_is_told_of_it(tmp_path: Path) -> None:
    secret = GatewayInput(gateway="h:1", stream="s", time="t", index=str(tmp_path), token="secret")
    assert "secret" not in repr(secret)
    assert ExchangeAddress(url=secret.index).open().about() is None
