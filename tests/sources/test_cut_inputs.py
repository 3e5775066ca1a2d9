"""An input behind a network that fails counts as silent; nothing of it is lost, doubled or torn."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.sources.samples import Written
from tests.sources.test_subscribe import epochs, read, spec

from tether.backup import patience
from tether.core.errors import BackupError
from tether.sources.exchange import following, writer
from tether.sources.exchange.files import read_file
from tether.sources.exchange.log import ExchangeAddress
from tether.sources.exchange.readers import note_reader
from tether.sources.exchange.view import rows_between
from tether.sources.sunion.looking import Inputs
from tether.testing.proxy import loopback_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tether.sources.sunion.looking import Spec
    from tether.sources.sunion.offsets import Offset
    from tether.testing.proxy import LoopbackProxy

# The client itself does not try again for long, so that its failures reach us within the test.
PATIENCE = {"config_kwargs": {"retries": {"total_max_attempts": 1}}}


@pytest.fixture
def behind(s3_options: Any, tmp_path: Path) -> Iterator[tuple[LoopbackProxy, Spec, list[Written]]]:
    """Two inputs: one near, one in an object store; and a reader that reaches that by a bad network."""
    near = Written(str(tmp_path / "near"))
    far = Written(f"s3://backups/{uuid.uuid4().hex}", s3_options)
    with loopback_proxy(s3_options["endpoint_url"]) as proxy:
        options = {**s3_options, "endpoint_url": proxy.url, **PATIENCE}
        there = ExchangeAddress(url=far.address.url, options=options)
        of = msgspec.structs.replace(
            spec([near], [far]), inputs=((near.address,), (there,)), kinds=True
        )
        yield proxy, of, [near, far]


def test_an_input_that_is_cut_off_is_silent_until_it_is_reached_again(
    behind: tuple[LoopbackProxy, Spec, list[Written]],
) -> None:
    proxy, of, (near, far) = behind
    far.add(0, [(2, 20)], 10)
    near.add(0, [(1, 1)], 10)
    inputs = Inputs(of, patience=60)
    (both,) = epochs(inputs, inputs.begin(), 0.0)
    assert (both.kind, read(of, both, inputs)) == ("stable", [(1, 0, 1), (2, 1, 20)])

    proxy.trouble = lambda _: "refuse"
    for each, row in ((near, (11, 2)), (far, (12, 21))):
        each.now = 100.0
        each.add(1, [row], 20)  # its writer is on the other side of the cut
    assert epochs(inputs, both, 104.0) == []  # it waits for it
    (early,) = epochs(inputs, both, 106.0)
    assert (early.kind, read(of, early, inputs)) == ("tentative", [(11, 0, 2)])

    proxy.trouble = lambda _: None
    (right,) = epochs(inputs, early, 107.0)
    assert (right.kind, read(of, right, inputs)) == ("stable", [(11, 0, 2), (12, 1, 21)])
    assert read(of, right) == read(of, right, inputs)  # a restarted driver, another query


@pytest.mark.parametrize("seed", [3])
def test_stable_rows_are_those_of_a_good_network_whatever_the_network_does(
    behind: tuple[LoopbackProxy, Spec, list[Written]], seed: int
) -> None:
    proxy, of, written = behind
    draw = random.Random(seed)
    proxy.trouble = lambda _: (
        draw.choice(["refuse", "cut", "lose-answer"]) if draw.random() < 0.3 else None
    )
    inputs = Inputs(of, patience=60)
    offset, given = _begun(inputs), []
    for epoch in range(8):
        for number, each in enumerate(written):
            each.now = float(epoch)
            each.add(epoch, [(10 * epoch + number, epoch)], 10 * (epoch + 1))
        found = epochs(inputs, offset, float(epoch))
        given += found
        offset = found[-1] if found else offset
    assert proxy.seen.keys() > {"requests"}, "the network was good"
    proxy.trouble = lambda _: None
    given += epochs(inputs, offset, 8.0)
    stable = [row for one in given if one.kind == "stable" for row in read(of, one)]
    assert stable == [
        (10 * epoch + number, number, epoch) for epoch in range(8) for number in (0, 1)
    ]


def test_an_input_that_hangs_keeps_nobody_waiting(
    behind: tuple[LoopbackProxy, Spec, list[Written]],
) -> None:
    """A cut network often says nothing at all; when it is back, what hung is asked for anew."""
    proxy, of, (near, far) = behind
    far.add(0, [(2, 20)], 10)
    near.add(0, [(1, 1)], 10)
    inputs = Inputs(of, patience=60)
    (both,) = epochs(inputs, inputs.begin(), 0.0)

    hanging, proxy.stall_seconds = threading.Event(), 120.0

    def hang(_: object) -> Any:
        hanging.set()
        return "stall"

    proxy.trouble = hang
    for each, row in ((near, (11, 2)), (far, (12, 21))):
        each.now = 100.0
        each.add(1, [row], 20)
    inputs = Inputs(of, patience=0.01, first_patience=0.01, given_up_after=1.0)
    begun = time.monotonic()
    (early,) = epochs(inputs, both, 106.0)
    inputs.note(early.low)
    assert (early.kind, read(of, early, inputs)) == ("tentative", [(11, 0, 2)])
    assert hanging.wait(60)
    assert time.monotonic() - begun < proxy.stall_seconds / 2

    proxy.trouble = lambda _: None
    deadline = time.monotonic() + 60
    while not (found := epochs(inputs, early, 107.0)):
        assert time.monotonic() < deadline
    assert [(each.kind, read(of, each)) for each in found] == [
        ("stable", [(11, 0, 2), (12, 1, 21)])
    ]


def test_what_has_come_before_is_read_before_anything_is_given(
    behind: tuple[LoopbackProxy, Spec, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long log in a slow store is no silent input; later, a look does not read all of it at once."""
    monkeypatch.setattr(following, "AT_A_TIME", 0.0)  # one entry at a time
    _, of, (near, far) = behind
    for epoch in range(4):
        for each in (near, far):
            each.add(epoch, [(10 * epoch, epoch)], 10 * epoch + 10)
    inputs = Inputs(of, patience=60)
    (all_of_it,) = epochs(inputs, inputs.begin(), 100.0)
    assert (all_of_it.kind, all_of_it.end) == ("stable", 4)
    for epoch in (4, 5):
        for each in (near, far):
            each.now = 100.0
            each.add(epoch, [(10 * epoch, epoch)], 10 * epoch + 10)
    found = epochs(inputs, all_of_it, 100.0)
    assert [(each.kind, each.end) for each in found] == [("stable", 5), ("stable", 6)]
    bounded = Inputs(of, patience=0.0)
    begun = bounded.begin()
    bounded.stop_here(begun)
    near.add(6, [(60, 6)], 70)
    far.add(6, [(60, 6)], 70)
    assert [(each.kind, each.end) for each in epochs(bounded, begun, 100.0)] == [("stable", 6)]


def test_a_writer_whose_network_is_bad_writes_each_entry_once(
    s3_options: Any, behind: tuple[LoopbackProxy, Spec, list[Written]], monkeypatch: Any
) -> None:
    """What was stored without an answer is not taken for another's; nothing fails for old entries."""
    monkeypatch.setattr(patience, "PAUSE", 0.0)
    monkeypatch.setattr(writer, "TRIM_EVERY", 2)
    proxy, _, _ = behind
    options = {**s3_options, "endpoint_url": proxy.url, **PATIENCE}
    written = Written(f"s3://backups/{uuid.uuid4().hex}", options)
    note_reader(written.log, "r", 3)
    draw = random.Random(1)
    proxy.trouble = lambda _: (
        draw.choice(["refuse", "cut", "lose-answer"]) if draw.random() < 0.3 else None
    )
    for epoch in range(8):
        assert written.add(epoch, [(epoch, 10 * epoch)], epoch + 1)
    proxy.trouble = lambda _: None
    assert [entry.epoch for entry in written.log.entries(3)] == [3, 4, 5, 6, 7]
    rows = rows_between(written.log.entries(3), 0, 100, tentative=False)
    tables = [read_file(written.log.folder, each, ["v"])[0] for each in rows]
    assert [table["v"].to_pylist() for table in tables] == [[10 * at] for at in range(3, 8)]


def _begun(inputs: Inputs) -> Offset:
    """A query whose start fails, as nothing is known of its inputs yet, is started again."""
    while True:
        with contextlib.suppress(BackupError):
            return inputs.begin()
