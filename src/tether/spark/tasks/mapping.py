"""``mapInArrow`` every epoch, with what stays the same from epoch to epoch made once.

Every call to the JVM is a round trip, and every object that it gives is one more when Python lets go of
it. PySpark makes some 25 of them for one ``mapInArrow``; here it takes six. The plan is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.util import PythonEvalType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LARGEST = 1 << 19
"""Bytes of a pickled function; a larger one, or one with broadcast variables, is PySpark's affair."""


class ArrowMaps:
    """Maps DataFrames of one session.

    Args:
        session: The session.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._made: dict[object, Any] = {}
        """Java's objects, by what they were made of."""

    def mapped(
        self, rows: DataFrame, function: Callable[[Any], Any], schema: StructType
    ) -> DataFrame:
        """The same as ``rows.mapInArrow(function, schema)``."""
        if not isinstance(rows, ClassicFrame):  # on the stand-in for Spark
            return rows.mapInArrow(function, schema)
        command = CloudPickleSerializer().dumps((function, schema))
        context = self._session.sparkContext
        if len(command) > LARGEST or any(True for _ in context._pickled_broadcast_vars):
            return rows.mapInArrow(function, schema)
        jvm: Any = context._jvm
        python = self._once("python", lambda: jvm.SimplePythonFunction)(
            bytearray(command),
            self._map(context.environment),
            self._list(context._python_includes),
            context.pythonExec,
            context.pythonVer,
            self._list(()),
            context._javaAccumulator,
        )
        made = self._once(
            "made",
            lambda: getattr(jvm, "org.apache.spark.sql.execution.python.UserDefinedPythonFunction"),
        )(
            type(function).__name__,
            python,
            self._type(schema),
            PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
            True,
            self._list(()),
            self._list(()),
        )
        column = made.apply(self._columns(tuple(rows.columns)))
        return ClassicFrame(rows._jdf.mapInArrow(column, False, None), self._session)

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _type(self, schema: StructType) -> Any:
        session: Any = self._session._jsparkSession
        text = schema.json()
        return self._once(("type", text), lambda: session.parseDataType(text))

    def _columns(self, names: tuple[str, ...]) -> Any:
        """The input's columns, which the function's argument has to name: else Spark leaves them out."""

        def make() -> Any:
            columns = [F.col("`{}`".format(name.replace("`", "``"))) for name in names]
            jvm: Any = self._session.sparkContext._jvm
            return jvm.PythonUtils.toSeq(self._java_list([column._jc for column in columns]))

        return self._once(("columns", names), make)

    def _list(self, values: Sequence[str]) -> Any:
        return self._once(("list", *values), lambda: self._java_list(values))

    def _java_list(self, values: Sequence[Any]) -> Any:
        found: Any = self._session.sparkContext._jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return found

    def _map(self, values: Mapping[str, str]) -> Any:
        def make() -> Any:
            found: Any = self._session.sparkContext._jvm.java.util.HashMap()
            for name, value in values.items():
                found.put(name, value)
            return found

        return self._once(("map", *sorted(values.items())), make)
