from __future__ import annotations

import lzma
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tether.core.errors import BadValueError
from tether.data import DataFolder, in_epochs
from tether.data.parse import read_csv

if TYPE_CHECKING:
    from pathlib import Path

TYPES = {"a": pa.int64(), "b": pa.float64(), "c": pa.string()}
MIXED = b"a,b,c\n1,2.5,x\n2,oops,y\n3.5,1,z\n4,4,\n5,5\n6,6,6,6\n7,-1e3,w\n"


def test_unparsable_rows_are_counted_by_reason_and_kept_aside() -> None:
    read = read_csv(MIXED, TYPES, keep_aside=True)
    assert read.rows.to_pylist() == [
        {"a": 1, "b": 2.5, "c": "x"},
        {"a": 7, "b": -1000.0, "c": "w"},
    ]
    assert read.unparsable == 5
    assert read.reasons == {
        "not 3 fields": 2,
        "a: not a int64": 1,
        "b: not a double": 1,
        "c: not a string": 1,
    }
    assert sorted(read.aside) == ["2,oops,y", "3.5,1,z", "4,4,", "5,5", "6,6,6,6"]
    assert "2 rows read, 5 unparsable" in read.report()


def test_they_are_counted_also_where_they_are_not_kept() -> None:
    read = read_csv(MIXED, TYPES)
    assert read.unparsable == 5
    assert read.aside == []


def test_what_is_not_required_may_be_missing_but_not_wrong() -> None:
    read = read_csv(b"a,b,c\nNA,1,x\n,2,NA\nno,3,y\n", TYPES, required=["b"])
    assert read.rows["a"].to_pylist() == [None, None]
    assert read.rows["c"].to_pylist() == ["x", None]
    assert read.unparsable == 1


def test_compressed_files_and_files_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.xz"
    path.write_bytes(lzma.compress(b"1,2,x\n"))
    assert read_csv(path, TYPES, names=["a", "b", "c"]).rows.num_rows == 1


def test_a_wanted_column_that_is_not_there_is_named() -> None:
    with pytest.raises(BadValueError, match="'b'"):
        read_csv(b"a,c\n1,2\n", TYPES)


def test_a_data_set_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    assert not folder.has("covtype")
    with pytest.raises(BadValueError, match="covtype"):
        folder.covertype()
    with pytest.raises(BadValueError, match="TETHER_DATA"):
        DataFolder("").books()


def test_epochs_of_a_chosen_rate_and_order() -> None:
    rows = pa.table({"time": [3.0, 1.0, 2.0, 0.0]})
    assert [part["time"].to_pylist() for part in in_epochs(rows, 3)] == [[3.0, 1.0, 2.0], [0.0]]
    timed = [part["time"].to_pylist() for part in in_epochs(rows, [1, 2], order="time")]
    assert timed == [[0.0], [1.0, 2.0], [3.0]]
    shuffled = [
        x for part in in_epochs(rows, 2, order="shuffled") for x in part["time"].to_pylist()
    ]
    assert sorted(shuffled) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("rate", [0, -1, [], [0, 0]])
def test_a_rate_without_rows_is_refused(rate: Any) -> None:
    with pytest.raises(BadValueError, match="rate"):
        list(in_epochs(pa.table({"a": [1]}), rate))


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(BadValueError, match="order"):
        list(in_epochs(pa.table({"a": [1]}), 1, order="best"))  # type: ignore[arg-type]


class TestRealData:
    """Counts are those that the data sets' own descriptions state."""

    @pytest.mark.parametrize(
        ("name", "rows", "columns"),
        [
            ("honeypot_packets", 451_581, {"time", "src", "host"}),
            ("mawi_packets", 9_890, {"time", "src", "dst", "bytes"}),
            ("cache_requests", 7_000_000, {"time", "key", "size"}),
            ("flights", 3_000_000, {"time", "delay", "origin", "destination"}),
            ("nyc_weather", 26_115, {"origin", "time_hour", "temp"}),
            ("request_rate", 125_300, {"count"}),
        ],
    )
    def test_all_rows_are_read(
        self, data: DataFolder, name: str, rows: int, columns: set[str]
    ) -> None:
        read = getattr(data, name)()
        assert (read.rows.num_rows, read.unparsable) == (rows, 0)
        assert columns <= set(read.rows.schema.names)

    def test_honeypots_interleave_out_of_order(self, data: DataFolder) -> None:
        times = data.honeypot_packets().rows["time"].to_numpy()
        assert float(-np.diff(times).min()) == 1_345  # the largest step back, in seconds
