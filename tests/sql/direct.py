"""A store used directly, without a query; a value's own length is one of its columns."""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any

from tether.sql.settings import PREFIX, PROVIDER, add_to_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NOTHING: bytes | None = None


def row_bytes(data: bytes, *numbers: int) -> bytes:
    """A row of some long columns and a binary one, as Spark lays it out in memory."""
    start = 16 + 8 * len(numbers)
    fixed = struct.pack(f"<{start // 8}q", 0, *numbers, start << 32 | len(data))
    return fixed + data + bytes(-len(data) % 8)


def data_of(row: bytes, columns: int) -> bytes:
    place = struct.unpack_from("<q", row, 8 * columns)[0]
    return row[place >> 32 : (place >> 32) + (place & 0xFFFFFFFF)]


def new_instance(spark: SparkSession, name: str) -> Any:
    """An object of a class of ours; Python's own calls do not see the session's class loader."""
    add_to_session(spark)
    session: Any = spark
    jvm = session.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    nothing = session.sparkContext._gateway.new_array(jvm.java.lang.Object, 0)
    return loader.loadClass(name).getConstructors()[0].newInstance(nothing)


class Provider:
    """One partition's store of a query that does not exist."""

    def __init__(self, spark: SparkSession, folder: Path, theta: float, **settings: str) -> None:
        session: Any = spark
        self._jvm = session.sparkContext._jvm
        self._state = self._jvm.org.apache.spark.sql.execution.streaming.state
        conf = session._jsparkSession.sessionState().conf().clone()
        # Half of Θ is for the first failure.
        conf.setConfString(PREFIX + "maxStateError", str(2 * theta))
        conf.setConfString("spark.sql.shuffle.partitions", "1")
        for name, value in settings.items():
            conf.setConfString(PREFIX + name, value)
        hadoop = session._jsparkSession.sessionState().newHadoopConf()
        hadoop.set("sql.streaming.runId", str(uuid.uuid4()))
        hadoop.set("spark.sql.shuffle.partitions", "1")
        types = self._jvm.org.apache.spark.sql.types.StructType
        keys, values = types.fromDDL("k binary"), types.fromDDL("n long, v binary")
        self._provider = new_instance(spark, PROVIDER)
        none = self._jvm.scala.Option.apply(None)
        no_options = getattr(
            getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$"
        ).empty()
        self._provider.init(
            self._state.StateStoreId(str(folder), 0, 0, "default"),
            keys,
            values,
            self._state.NoPrefixKeyStateEncoderSpec(keys),
            False,
            self._state.StateStoreConf(conf, no_options),
            hadoop,
            False,
            none,
        )
        self._none = none

    def at(self, version: int) -> Store:
        return Store(self._jvm, self._provider.getStore(version, self._none, False, False))

    def settle(self) -> None:
        """Wait for what is being written."""
        self._provider.isDue(-1.0)

    def maintain(self) -> None:
        self._provider.doMaintenance()

    def close(self) -> None:
        self._provider.close()


class Store:
    """One version of it."""

    def __init__(self, jvm: Any, store: Any) -> None:
        self._jvm, self.store = jvm, store

    def _row(self, data: bytes, *numbers: int) -> Any:
        row = self._jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow(1 + len(numbers))
        encoded = row_bytes(data, *numbers)
        row.pointTo(encoded, len(encoded))
        return row

    def put(self, key: bytes, value: bytes) -> None:
        self.store.put(self._row(key), self._row(value, len(value)), "default")

    def remove(self, key: bytes) -> None:
        self.store.remove(self._row(key), "default")

    def get(self, key: bytes) -> bytes | None:
        row = self.store.get(self._row(key), "default")
        return NOTHING if row is None else data_of(bytes(row.getBytes()), 2)

    def iterator(self) -> Any:
        return self.store.iterator("default")

    def rest(self, iterator: Any) -> dict[bytes, bytes]:
        found = {}
        while iterator.hasNext():
            pair = iterator.next()
            key = data_of(bytes(pair.key().getBytes()), 1)
            assert key not in found
            found[key] = data_of(bytes(pair.value().getBytes()), 2)
        return found

    def everything(self) -> dict[bytes, bytes]:
        return self.rest(self.iterator())

    def commit(self) -> int:
        return int(self.store.commit())

    def abort(self) -> None:
        self.store.abort()

    def metric(self, name: str) -> int:
        metrics = self.store.metrics().customMetrics().iterator()
        while metrics.hasNext():
            pair = metrics.next()
            if pair._1().name() == name:
                return int(pair._2())
        raise KeyError(name)

    @property
    def keys(self) -> int:
        return int(self.store.metrics().numKeys())
