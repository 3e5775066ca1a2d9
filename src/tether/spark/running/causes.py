"""The innermost cause of an error of Spark's, in one line.

Spark wraps an error again in every process that it passes through, and puts stack traces of Java and
of Python between. The line that a user needs is mostly the last one of the innermost trace.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

_MOST_CHARACTERS = 400
"""Longest text of a cause: one line for people, without plans and rows that Spark prints into
messages."""

_CAUSED_BY = re.compile(r"^(?:Caused by: |: )(?P<text>[\w.$]+(?::.*)?)$", re.MULTILINE)
_PYTHON_TRACE = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(?P<text>[A-Za-z_][\w.]*(?::[^\n]*)?)"
)
_CALL = re.compile(r"^An error occurred while calling \S+\.\s*$")
_CLASS = re.compile(r"^(?:[a-z_$][\w$]*\.)+(?P<name>[A-Z][\w$]*)(?:: |$)")
_STAGE = re.compile(
    r"^SparkException: Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\): "
)
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_NAMED = re.compile(r"^\w+: \[[A-Z_]+(\.[A-Z_]+)*\] ")
_PLAIN_WRAP = re.compile(r"^(Spark|Execution|InvocationTarget|Python)Exception(: Traceback.*)?$")

_WORKER = re.compile(
    r"No module named '(?P<module>[\w.]+)'|PYTHON_VERSION_MISMATCH|different version"
    r"|Cannot run program \"(?P<program>[^\"]*python[^\"]*)\"|PythonWorkerFactory|No module named tether"
)


_KAFKA_LOSS = re.compile(r"KAFKA_DATA_LOSS|failOnDataLoss|data may have been lost", re.IGNORECASE)


class Cause(NamedTuple):
    """Why something failed, and what can be done about it."""

    text: str
    do: str


def cause_of(text: str, *, worker_python: str = "") -> Cause:
    """The innermost cause in a text of Spark's, with advice if there is any.

    Args:
        text: What an exception of PySpark, Py4J or a sink says, stack traces and all.
        worker_python: The Python that Spark's workers run, where it is known.

    Example:
        >>> error = '''An error occurred while calling o7.save.
        ... : org.apache.spark.SparkException: Job aborted.
        ...     at org.apache.spark.Some.method(Some.scala:1)
        ... Caused by: java.io.IOException: No space left on device
        ...     at java.base/java.io.File.write(File.java:2)'''
        >>> cause_of(error).text
        'IOException: No space left on device'
    """
    found = _innermost(text)
    return Cause(found, _advice(found, worker_python))


def _innermost(text: str) -> str:
    in_python = [match["text"] for match in _PYTHON_TRACE.finditer(text)]
    if in_python:
        return _short(in_python[-1])
    chain = [_short(match["text"]) for match in _CAUSED_BY.finditer(text)]
    chain = [one for one in chain if not _PLAIN_WRAP.match(one)]
    if not chain:
        lines = [line for line in text.strip().splitlines() if not _CALL.match(line)]
        return _short(lines[0].lstrip(": ")) if lines else "nothing more was said"
    # A wrapping error that repeats the text of the innermost one has more information.
    words = chain[-1].split(": ", 1)[-1]
    innermost = next(one for one in chain if words in one)
    # Spark's own words for it, under an error class of its own, name the file or the column.
    named = next((one for one in chain if _NAMED.match(one)), innermost)
    return innermost if named == innermost else f"{named} Innermost cause: {innermost}"


def _short(text: str) -> str:
    line = _STATE.sub("", text.split("\n", 1)[0]).strip()
    for pattern in (_CLASS, _STAGE, _CLASS):
        match = pattern.match(line)
        if match is not None:
            named = f"{match['name']}: " if pattern is _CLASS else ""
            line = named + line[match.end() :]
    line = line.removesuffix(": ")
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]} ..."


def _advice(cause: str, worker_python: str) -> str:
    if _KAFKA_LOSS.search(cause):
        return (
            "Rows that the query had not read are gone from the topic: its retention is shorter than "
            "the time that the query was behind, or the topic was made again. Raise retention.ms "
            "above the longest recovery. To go on without those rows, set the source's option "
            "failOnDataLoss to false; they are then missing in the answer, and in no bound."
        )
    match = _WORKER.search(cause)
    if match is None:
        return "Mend that cause and start the query again: it goes on with this epoch."
    if match["module"] and worker_python == sys.executable:
        return (
            f"Spark's Python workers run the Python of this program, {worker_python}, and do not find "
            f"the module {match['module']!r} there. Install it into that environment. If it is a file "
            "of yours beside the program, send it to the workers: "
            "spark.sparkContext.addPyFile(path), or --py-files of spark-submit."
        )
    run = worker_python or match["program"] or "another Python"
    return (
        f"Spark's Python workers run {run}, this program runs {sys.executable}. Where that is not "
        "the same environment, set PYSPARK_PYTHON to a Python on the workers that has the modules "
        "of this one, before the session is made."
    )
