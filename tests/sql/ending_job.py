"""A query that runs on after it has read everything, in a process that ends as it is told.

Arguments: folder, master, and how to end: ``stop`` the query, stop Spark under it (``spark``), or
neither (``exit``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.spark.commands import from_the_start
from tests.sql.queries import Run

from tether.cli.session import open_session
from tether.sql import bounded


def main(folder: str, master: str, end: str) -> None:
    conf = from_the_start(2) if master.startswith("local-cluster[2,1,") else {}
    spark = open_session(master, app="tether sql ending", memory="1g", conf=conf)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with bounded(spark, max_state_error=1_000_000):
        query = Run(spark, "sums", Path(folder)).start(processingTime="0 seconds")
    query.processAllAvailable()
    if end == "stop":
        query.stop()
    elif end == "spark":
        spark.stop()
    if end != "exit":
        os._exit(0)  # nothing that only a process in good order does


if __name__ == "__main__":
    main(*sys.argv[1:])
