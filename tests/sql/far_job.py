"""A query with our operators whose checkpoint is 30 ms away, as a process of its own that can be killed.

Argument: the folder with its input; it ends when all of it is read, and prints the sums.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.contenders.slow_files import Sums

import tether
from tether.cli.session import open_session
from tether.testing.epochs import read_epochs
from tether.testing.slow_store import slow_settings

SCHEMA = "k bigint, v bigint"


def main(folder: str) -> None:
    spark = open_session("local[2,4]", app="tether far job", memory="1g", conf=slow_settings(0.03))
    query = (
        tether.stream(read_epochs(spark, Path(folder) / "in", SCHEMA))
        .apply(Sums({"total": "v"}, count=None), key="k", parallelism=2)
        .start(
            tolerance=tether.MiniBatch(),
            backup=f"{folder}/backup",
            checkpoint=f"slow://{folder}/checkpoint",
        )
    )
    query.processAllAvailable()
    rows = query.table("totals").collect()
    query.stop()
    print(json.dumps({str(row["k"]): row["total"] for row in rows}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
