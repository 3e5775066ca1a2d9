"""Public data sets on disk as streams: each folder with its files as they were published."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tether.core.errors import BadValueError
from tether.data.parse import Loaded, read_csv

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Order = Literal["stream", "time", "shuffled"]

_KDD_NAMES = [
    "duration",
    "protocol_type",
    "service",
    "flag",
    "src_bytes",
    "dst_bytes",
    "land",
    "wrong_fragment",
    "urgent",
    "hot",
    "num_failed_logins",
    "logged_in",
    "num_compromised",
    "root_shell",
    "su_attempted",
    "num_root",
    "num_file_creations",
    "num_shells",
    "num_access_files",
    "num_outbound_cmds",
    "is_host_login",
    "is_guest_login",
    "count",
    "srv_count",
    "serror_rate",
    "srv_serror_rate",
    "rerror_rate",
    "srv_rerror_rate",
    "same_srv_rate",
    "diff_srv_rate",
    "srv_diff_host_rate",
    "dst_host_count",
    "dst_host_srv_count",
    "dst_host_same_srv_rate",
    "dst_host_diff_srv_rate",
    "dst_host_same_src_port_rate",
    "dst_host_srv_diff_host_rate",
    "dst_host_serror_rate",
    "dst_host_srv_serror_rate",
    "dst_host_rerror_rate",
    "dst_host_srv_rerror_rate",
    "label",
]


class DataFolder:
    """A folder of public data sets, one subfolder each.

    Args:
        path: The folder; by default what the environment variable ``TETHER_DATA`` names.
        keep_aside: Whether to keep the text of unparsable rows; they are counted in any case.

    Example:
        >>> DataFolder("/no/such/folder").has("covtype")
        False
    """

    def __init__(self, path: str | Path | None = None, *, keep_aside: bool = False) -> None:
        given = path if path is not None else os.environ.get("TETHER_DATA", "")
        self._path = Path(given) if given else None
        self._keep_aside = keep_aside

    def has(self, name: str) -> bool:
        """Whether that data set is there."""
        return self._path is not None and (self._path / name).is_dir()

    def _file(self, name: str, file: str) -> Path:
        if self._path is None or not (self._path / name / file).is_file():
            where = self._path if self._path is not None else "unset TETHER_DATA"
            raise BadValueError(
                f"The data set {name!r} is not there.",
                why=f"There is no {name}/{file} in {where}.",
                do="Set TETHER_DATA to the folder that holds it, or use a generator of tether.data.",
            )
        return self._path / name / file

    def honeypot_packets(self) -> Loaded:
        """Packets to nine honeypots: ``time`` (s), ``host``, ``src``, ``proto``, ``spt``, ``dpt``."""
        types = {
            "datetime": pa.string(),
            "host": pa.string(),
            "src": pa.int64(),
            "proto": pa.string(),
            "spt": pa.int64(),
            "dpt": pa.int64(),
        }
        path = self._file("honeypot_packets", "marx.csv.xz")
        read = read_csv(
            path,
            types,
            required=("datetime", "host", "src", "proto"),
            keep_aside=self._keep_aside,
        )
        form = "%m/%d/%y %H:%M" if _short(read.rows["datetime"]) else "%Y-%m-%d %H:%M:%S"
        times = pc.strptime(read.rows["datetime"], format=form, unit="s").cast(pa.int64())
        rows = read.rows.set_column(0, "time", times.cast(pa.float64()))
        return Loaded(rows, read.unparsable, read.reasons, read.aside)

    def mawi_packets(self) -> Loaded:
        """A third of a second of a backbone: ``time``, ``src``, ``dst`` (text), ``bytes``."""
        types = {
            "timestamp": pa.float64(),
            "src_ip": pa.string(),
            "dst_ip": pa.string(),
            "length": pa.int64(),
        }
        read = read_csv(
            self._file("mawi_sample", "MAWI_demo.csv.xz"), types, keep_aside=self._keep_aside
        )
        rows = read.rows.rename_columns(["time", "src", "dst", "bytes"])
        return Loaded(rows, read.unparsable, read.reasons, read.aside)

    def cache_requests(self) -> Loaded:
        """Requests to a cache cluster: ``time`` (s), ``key``, ``size`` (bytes), in time order."""
        path = self._file("twitter_cache_requests", "requests-main.parquet")
        return Loaded(pq.read_table(path))

    def flights(self) -> Loaded:
        """US flights of half a year: ``time`` (s), ``delay`` (min), ``distance``, both airports."""
        rows = pq.read_table(self._file("flights_3m", "flights-3m.parquet"))
        times = rows["date"].cast(pa.timestamp("s")).cast(pa.int64()).cast(pa.float64())
        return Loaded(rows.set_column(rows.schema.get_field_index("date"), "time", times))

    def nyc_flights(self) -> Loaded:
        """Flights from New York: ``origin``, ``time_hour``, ``dep_delay`` and more; joins weather."""
        types = {
            "origin": pa.string(),
            "dest": pa.string(),
            "time_hour": pa.string(),
            "dep_delay": pa.float64(),
            "distance": pa.float64(),
        }
        return read_csv(
            self._file("nycflights13", "flights.csv.xz"),
            types,
            required=("origin", "dest", "time_hour", "distance"),
            keep_aside=self._keep_aside,
        )

    def nyc_weather(self) -> Loaded:
        """Hourly weather of the three airports: ``origin``, ``time_hour``, ``temp``, ``wind_speed``."""
        types = {
            "origin": pa.string(),
            "time_hour": pa.string(),
            "temp": pa.float64(),
            "wind_speed": pa.float64(),
        }
        return read_csv(
            self._file("nycflights13", "weather.csv.xz"),
            types,
            required=("origin", "time_hour"),
            keep_aside=self._keep_aside,
        )

    def covertype(self) -> Loaded:
        """Forest cover: 54 features ``x0``…, the first ten scaled, ``label`` 1 for cover type 2."""
        path = self._file("covtype", "covtype.csv.xz")
        read = read_csv(path, _all_whole(path), keep_aside=self._keep_aside)
        *features, kind = read.rows.schema.names
        columns = {f"x{at}": _scaled(read.rows[name], at < 10) for at, name in enumerate(features)}
        label = pc.equal(read.rows[kind], 2).cast(pa.int32())
        rows = pa.table({**columns, "label": label})
        return Loaded(rows, read.unparsable, read.reasons, read.aside)

    def intrusions(self) -> Loaded:
        """Network connections (KDD Cup 1999): three text columns, numbers, ``label`` 1 for attacks."""
        text = ("protocol_type", "service", "flag", "label")
        types = {name: pa.string() if name in text else pa.float64() for name in _KDD_NAMES}
        read = read_csv(
            self._file("kdd99", "kddcup.data_10_percent.csv.xz"),
            types,
            names=_KDD_NAMES,
            keep_aside=self._keep_aside,
        )
        attack = pc.not_equal(read.rows["label"], "normal.").cast(pa.int32())
        rows = read.rows.set_column(len(_KDD_NAMES) - 1, "label", attack)
        return Loaded(rows, read.unparsable, read.reasons, read.aside)

    def books(self) -> Loaded:
        """Lines of English books: ``value``."""
        parts = []
        with tarfile.open(self._file("gutenberg", "main.tar.xz")) as archive:
            for member in archive:
                if member.name.endswith(".txt") and (file := archive.extractfile(member)):
                    text = file.read().decode("utf-8").removesuffix("\n")
                    # Not splitlines(): it takes form feeds and the like for ends of lines too.
                    lines = [line.removesuffix("\r") for line in text.split("\n")]
                    parts.append(pa.array(lines, pa.string()))
        return Loaded(pa.table({"value": pa.chunked_array(parts)}))

    def request_rate(self) -> Loaded:
        """Requests per minute of a busy web site: ``period``, ``count``. A profile for ``in_epochs``."""
        types = {"period": pa.string(), "count": pa.int64()}
        return read_csv(
            self._file("worldcup98_rate", "invocation_count.csv.xz"),
            types,
            keep_aside=self._keep_aside,
        )


def in_epochs(
    rows: pa.Table,
    rate: int | Sequence[int],
    *,
    order: Order = "stream",
    time: str = "time",
    seed: int = 1,
) -> Iterator[pa.Table]:
    """Cut rows into epochs of a chosen rate, in a chosen order.

    Args:
        rows: All rows.
        rate: Rows per epoch; or one number for each epoch, used round and round: a profile of bursts.
        order: "stream": as they are. "time": by the time column. "shuffled": at random.
        time: The time column.
        seed: Of the shuffling.

    Example:
        >>> [part.num_rows for part in in_epochs(pa.table({"a": range(10)}), [4, 1])]
        [4, 1, 4, 1]
    """
    rates = [rate] if isinstance(rate, int) else [int(each) for each in rate]
    if not rates or min(rates) < 0 or not any(rates):
        raise BadValueError(f"rate={rate!r} gives no rows.", do="Give rows per epoch, above 0.")
    if order == "time":
        rows = rows.sort_by(time)
    elif order == "shuffled":
        rows = rows.take(pa.array(np.random.default_rng(seed).permutation(rows.num_rows)))
    elif order != "stream":
        raise BadValueError(
            f"order={order!r} is not known.", do='Use "stream", "time" or "shuffled".'
        )
    start, epoch = 0, 0
    while start < rows.num_rows:
        size = rates[epoch % len(rates)]
        yield rows.slice(start, size)
        start, epoch = start + size, epoch + 1


def _all_whole(path: Path) -> dict[str, pa.DataType]:
    import lzma  # noqa: PLC0415 - only here

    with lzma.open(path, "rt", encoding="utf-8") as file:
        return dict.fromkeys(
            (name.strip('"') for name in file.readline().strip().split(",")), pa.int64()
        )


def _scaled(column: pa.ChunkedArray, quantity: bool) -> pa.ChunkedArray:
    numbers = column.cast(pa.float64())
    if not quantity:
        return numbers
    mean, spread = pc.mean(numbers), pc.stddev(numbers)
    return pc.divide(pc.subtract(numbers, mean), spread)


def _short(times: pa.ChunkedArray) -> bool:
    return bool(len(times)) and "/" in times[0].as_py()
