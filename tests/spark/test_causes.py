"""What a user is told of an error that Spark has wrapped several times over: the cause, in one line."""

from __future__ import annotations

import sys

import pytest

from tether.core.errors import OperatorError, TetherError
from tether.spark.running.blame import tether_error, told_to_spark
from tether.spark.running.causes import cause_of

PARQUET = """An error occurred while calling o397.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered \
error while reading file file:///in/0.parquet. Data type mismatches when reading Parquet column \
[bytes]. Expected Spark type bigint, actual Parquet type BINARY. SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.parquet(QueryExecutionErrors.scala:898)
Caused by: org.apache.spark.sql.execution.datasources.SchemaColumnConvertNotSupportedException: \
column: [bytes], physicalType: BINARY, logicalType: bigint
\tat org.apache.spark.sql.execution.Some.thing(Some.java:1)
\t... 28 more
"""

NO_PROGRAM = """An error occurred while calling o281.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 \
times, most recent failure: Lost task 1.3 in stage 3.0 (TID 15) (localhost executor driver): \
java.io.IOException: Cannot run program "/nowhere/python3": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\tat java.base/java.lang.ProcessImpl.forkAndExec(Native Method)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:4568)
"""

OTHER_PYTHON = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 4207, in invoke_udf
    func, profiler = read_udfs(
                     ^^^^^^^^^^
  File "serializers.py", line 483, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'tether'
"""

KAFKA = """An error occurred while calling o9.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 \
times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): \
org.apache.spark.sql.kafka010.KafkaIllegalStateException: [KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] \
Some data may have been lost because they are not available in Kafka any more. SQLSTATE: 22000
\tat org.apache.spark.sql.kafka010.KafkaExceptions$.couldNotReadOffsetRange(KafkaExceptions.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "cause", "advice"),
    [
        (PARQUET, "file:///in/0.parquet", "Mend that cause"),
        (PARQUET, "Innermost cause: SchemaColumnConvertNotSupportedException", "start the query"),
        (NO_PROGRAM, 'IOException: Cannot run program "/nowhere/python3"', "PYSPARK_PYTHON"),
        (OTHER_PYTHON, "ModuleNotFoundError: No module named 'tether'", "PYSPARK_PYTHON"),
        (KAFKA, "Some data may have been lost", "retention.ms"),
        ("", "nothing more was said", "Mend"),
        ("disk is full", "disk is full", "Mend"),
    ],
)
def test_the_innermost_cause_is_told_in_one_line(text, cause, advice):
    found = cause_of(text)
    assert cause in found.text
    assert advice in found.do
    assert "\n" not in found.text
    assert not found.text.startswith("An error occurred")


def test_the_python_of_the_workers_is_named():
    assert "/usr/bin/python3" in cause_of(OTHER_PYTHON, worker_python="/usr/bin/python3").do


def test_a_module_that_the_same_python_lacks_is_to_be_installed_or_sent():
    said = cause_of(OTHER_PYTHON, worker_python=sys.executable).do
    assert "Install it" in said
    assert "--py-files" in said
    assert "PYSPARK_PYTHON" not in said


def test_a_long_cause_is_cut_and_is_still_found_in_what_spark_makes_of_it():
    long = tether_error(RuntimeError("x" * 10_000))
    assert len(str(long)) < 1_000
    again = tether_error(RuntimeError(f"tether.core.errors.TetherError: {long}\n at org.apache"))
    assert (again.what, again.do) == (long.what, long.do)
    assert told_to_spark(RuntimeError(NO_PROGRAM), stopping=False).args


def test_an_error_of_ours_is_never_taken_for_sparks():
    text = f"{NO_PROGRAM}\ntether.core.errors.OperatorError: It broke. Why: rows. What to do: mend."
    found = tether_error(RuntimeError(text))
    assert type(found) is OperatorError
    assert type(tether_error(RuntimeError(NO_PROGRAM))) is TetherError
