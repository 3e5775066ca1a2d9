"""The line between a producer and a gateway is cut, again and again: every row still arrives, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.gateway.relay import relay
from tests.gateway.serving import served, there

from tether.producer import Producer

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema({"id": pa.int64()})


@pytest.mark.parametrize("gamma", [0, 7, 500])
def test_every_row_arrives_once_over_a_line_that_is_cut(tmp_path: Path, gamma: int) -> None:
    with served(tmp_path / "store", max_lost=100) as gateway, relay(gateway.flight, 5) as line:
        sent = 0
        with Producer(line.address, "s", SCHEMA, id="p", max_unacked=gamma) as producer:
            while line.cuts_left > 0 or sent < 500:
                producer.send(pa.record_batch([list(range(sent, sent + 50))], schema=SCHEMA))
                sent += 50
            producer.flush()
            assert producer.reconnects >= 2
        assert there(gateway.flight) == list(range(sent))
