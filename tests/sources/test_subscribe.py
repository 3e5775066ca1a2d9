"""SUnion without Spark: what is cut, that it is read again the same, and in which order."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from tests.sources.samples import ROW_SCHEMA, Written

from tether.core.errors import BackupUnreadableError
from tether.protocols.consistency import Handling
from tether.sources.exchange.readers import known_readers
from tether.sources.sunion.looking import Inputs, Spec
from tether.sources.sunion.offsets import Offset, decode, encode, told_by
from tether.sources.sunion.reading import pieces, read_piece

if TYPE_CHECKING:
    from pathlib import Path

PLACES = pa.schema(
    [
        ("v", pa.int64()),
        ("_tuple_time", pa.int64()),
        ("_input", pa.int32()),
        ("_entry", pa.int64()),
        ("_row", pa.int64()),
    ]
)


def spec(*inputs: list[Written], **changed: Any) -> Spec:
    first = Spec(
        inputs=tuple(tuple(each.address for each in replicas) for replicas in inputs),
        reader="r",
        bucket=10,
        handling=Handling(wait=5.0),
        kinds=False,
        places=True,
        partitions=3,
        retain=2,
        row_schema=ROW_SCHEMA,
        columns=("v",),
        replicated=tuple(len(replicas) > 1 for replicas in inputs),
        unit="integer",
    )
    return msgspec.structs.replace(first, **changed)


def read(of: Spec, offset: Offset, inputs: Inputs | None = None) -> list[tuple[int, int, int]]:
    """(tuple time, input, value) of an epoch, as tasks read it."""
    seen = inputs or Inputs(of)
    entries = [seen.entries(number, taken) for number, taken in enumerate(offset.taken)]
    rows = []
    for piece in pieces(of, offset, entries):
        again = msgspec.json.decode(msgspec.json.encode(piece), type=type(piece))
        for batch in read_piece(of, again, PLACES):
            rows += list(
                zip(
                    *(batch[name].to_pylist() for name in ("_tuple_time", "_input", "v")),
                    strict=True,
                )
            )
    return rows


def epochs(inputs: Inputs, start: Offset, now: float = 0.0) -> list[Offset]:
    """All epochs that can be cut now."""
    found = []
    while (after := inputs.next(start, now)) is not start:
        start = decode(encode(after))
        found.append(start)
    return found


@pytest.fixture
def three(tmp_path: Path) -> list[Written]:
    return [Written(str(tmp_path / f"x{number}")) for number in range(3)]


def test_a_bucket_is_given_when_all_have_passed_it_in_one_order(three: list[Written]) -> None:
    three[0].add(0, [(3, 1), (12, 2)], 12)
    three[1].add(0, [(3, 3), (1, 4)], 20)
    of = spec(*[[each] for each in three])
    inputs = Inputs(of)
    start = inputs.begin()
    assert epochs(inputs, start) == []
    three[2].add(0, [(0, 5), (3, 6)], 11)
    (offset,) = epochs(inputs, start)
    assert read(of, offset, inputs) == [(0, 2, 5), (1, 1, 4), (3, 0, 1), (3, 1, 3), (3, 2, 6)]
    assert read(of, offset) == read(of, offset, inputs)  # a restarted driver, another query
    assert known_readers(three[0].log) == {"r": 0}


def test_late_inputs_are_left_out_after_the_wait_and_corrected_after(three: list[Written]) -> None:
    for each in three[:2]:
        each.now = 100.0
        each.add(0, [(1, 1)], 10)
    of = spec(*[[each] for each in three], kinds=True)
    inputs = Inputs(of)
    start = inputs.begin()
    assert epochs(inputs, start, 104.9) == []
    (early,) = epochs(inputs, start, 105.0)
    assert (early.kind, read(of, early, inputs)) == ("tentative", [(1, 0, 1), (1, 1, 1)])
    three[2].now = 106.0
    three[2].add(0, [(0, 7)], 10)
    (right,) = epochs(inputs, early, 106.0)
    assert (right.kind, right.stable_before) == ("stable", 10)
    assert read(of, right, inputs) == [(0, 2, 7), (1, 0, 1), (1, 1, 1)]
    # The early epoch, should it be run again, is still what it was.
    assert read(of, early) == [(1, 0, 1), (1, 1, 1)]


@pytest.mark.parametrize("seed", range(8))
def test_any_cut_gives_the_same_rows_in_the_same_order(tmp_path: Path, seed: int) -> None:
    """Looks at random moments, restarts between them: the stable rows are always those."""
    draw = random.Random(seed)
    three = [Written(str(tmp_path / f"x{number}")) for number in range(3)]
    made: list[list[tuple[int, int]]] = [[], [], []]
    of = spec(
        *[[each] for each in three], handling=Handling(wait=5.0, most=draw.choice([1, 2, 100]))
    )
    inputs = Inputs(of)
    at, stable = inputs.begin(), []
    for step in range(25):
        number = draw.randrange(3)
        low = three[number].writer.boundary or 0
        rows = [(low + draw.randrange(25), draw.randrange(1000)) for _ in range(draw.randrange(6))]
        three[number].now = float(step)
        three[number].add(step, rows, low + draw.randrange(12))
        made[number] += rows
        if draw.random() < 0.2:
            inputs = Inputs(of)
        found = epochs(inputs, at, float(step))
        stable += [row for each in found if each.kind == "stable" for row in read(of, each, inputs)]
        at = [at, *found][-1]
    for each in three:
        each.add(99, [], 1_000)
    last = epochs(inputs, at, 1e6)
    stable += [row for each in last if each.kind == "stable" for row in read(of, each, inputs)]
    assert sorted(stable) == sorted((t, n, v) for n in range(3) for t, v in made[n])
    assert [row[:2] for row in stable] == sorted(row[:2] for row in stable)


def test_replicas_are_one_input_also_where_they_cut_other_entries(tmp_path: Path) -> None:
    """Each bucket from one replica; the order of equal times is the same from either."""
    rows = [(number // 3, number) for number in range(60)]
    one, two = (Written(str(tmp_path / name), replicated=True) for name in "ab")
    for epoch in range(6):
        one.add(epoch, rows[10 * epoch : 10 * epoch + 10], rows[10 * epoch][0])
    for epoch in range(3):
        two.add(epoch, list(reversed(rows[20 * epoch : 20 * epoch + 20])), rows[20 * epoch][0])
    one.add(6, [], 10)  # and then it dies
    two.add(3, [], 20)
    of = spec([one, two], handling=Handling(wait=5.0, most=1))
    inputs = Inputs(of)
    found = epochs(inputs, inputs.begin())
    given = [row for offset in found for row in read(of, offset, inputs)]
    assert sorted((t, v) for t, _, v in given) == rows
    assert {offset.taken[0].replica for offset in found} == {0, 1}
    only = spec([two, two])
    again = Inputs(only)
    assert [
        row for offset in epochs(again, again.begin()) for row in read(only, offset, again)
    ] == given


def test_what_was_read_is_kept_as_long_as_a_query_may_go_back(three: list[Written]) -> None:
    of = spec([three[0]])
    inputs = Inputs(of)
    for epoch in range(6):
        three[0].add(epoch, [(10 * epoch, epoch)], 10 * epoch + 10)
    found = epochs(inputs, inputs.begin())
    assert found[-1].low == ((5,),)  # the entry that tells the boundary stays
    inputs.note(found[-1].low)
    assert known_readers(three[0].log) == {"r": 5}


def test_a_restart_knows_the_boundary_of_an_input_that_is_at_rest(three: list[Written]) -> None:
    three[0].add(0, [(1, 1)], 100)
    three[1].add(0, [(2, 2)], 10)
    of = spec([three[0]], [three[1]])
    inputs = Inputs(of)
    (first,) = epochs(inputs, inputs.begin())
    three[1].add(1, [(12, 3)], 20)
    (second,) = epochs(Inputs(of), first)
    assert read(of, second) == [(12, 1, 3)]


def test_a_damaged_replica_is_left_out_and_an_only_one_is_told(tmp_path: Path) -> None:
    one, two = (Written(str(tmp_path / name), replicated=True) for name in "ab")
    for each in (one, two):
        each.add(0, [(1, 1)], 10)
    (tmp_path / "a" / "entries" / "000000000000.json").write_text("{}")
    inputs = Inputs(spec([one, two]))
    (offset,) = epochs(inputs, inputs.begin())
    assert offset.taken[0].replica == 1
    alone = Inputs(spec([one]))
    with pytest.raises(BackupUnreadableError, match="damaged"):
        alone.next(alone.begin(), 0.0)


def test_a_clock_that_is_ahead_is_measured(
    three: list[Written], caplog: pytest.LogCaptureFixture
) -> None:
    three[0].now = 60.0
    three[0].add(0, [(1, 1)], 10)
    inputs = Inputs(spec([three[0]]))
    told = inputs.next(inputs.begin(), 10.0)
    assert decode(encode(told)).clocks == {three[0].log.url: 50.0}
    assert inputs.skew() == {three[0].log.url: 50.0}
    assert "50.0 s ahead" in caplog.text


def test_large_epochs_are_cut_for_several_tasks(tmp_path: Path) -> None:
    one = Written(str(tmp_path / "x"))
    one.add(0, [(number % 10, number) for number in range(40_000)], 10)
    of = spec([one])
    inputs = Inputs(of)
    (offset,) = epochs(inputs, inputs.begin())
    cut = pieces(of, offset, [inputs.entries(0, offset.taken[0])])
    assert len(cut) == 3
    times = [row[0] for row in read(of, offset, inputs)]
    assert len(times) == 40_000
    assert all(a <= b for a, b in itertools.pairwise(times))


def test_a_query_without_a_subscription_has_no_kinds_to_take_over(tmp_path: Path) -> None:
    from tether.core.errors import QueryRefusedError

    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"logOffset":0}')
    with pytest.raises(QueryRefusedError, match="has 0 subscriptions"):
        told_by(str(tmp_path), 0)


def test_the_data_source_does_the_same_in_spark_s_words(three: list[Written]) -> None:
    """As Spark's own process calls it, without Java: offsets are dictionaries, tasks are pickled."""
    import pickle

    source = pytest.importorskip("tether.sources.sunion.source")
    for each in three:
        each.add(0, [(1, 1), (11, 2)], 11)
    of = spec(*[[each] for each in three], kinds=True, retain=1, handling=Handling(wait=1e15))
    schema = source.row_schema(of)
    assert schema.names[:4] == ["v", "_stability", "_bucket", "_stable_before"]
    reader = source.SUnionReader(of, schema)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    assert reader.latestOffset(end, None) == end
    assert list(reader.partitions(end, end)) == []
    rows = []
    for partition in reader.partitions(start, end):
        task = pickle.loads(pickle.dumps((source.SUnionReader(of, schema), partition)))
        for batch in task[0].read(task[1]):
            assert batch.schema.names == schema.names
            rows += batch.to_pylist()
    assert [
        (row["v"], row["_stability"], row["_bucket"], row["_stable_before"]) for row in rows
    ] == [(1, "stable", 0, 10)] * 3
    reader.commit(end)
    assert known_readers(three[0].log) == {"r": 0}
    # What is there when a bounded run begins is all that it gives.
    bounded = source.SUnionReader(of, schema)
    bounded.prepareForTriggerAvailableNow()
    first = bounded.latestOffset(start, None)
    three[0].add(1, [(12, 3)], 30)
    three[1].add(1, [], 30)
    three[2].add(1, [], 30)
    assert bounded.latestOffset(first, None) == first
    assert reader.latestOffset(end, None) != end
