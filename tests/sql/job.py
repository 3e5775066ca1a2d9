"""A bounded query as a process of its own, for tests that kill it.

Arguments: folder, master, Θ, kind, and the batch that it may not begin before there is a file GO_ON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.commands import LONGEST_SECONDS, from_the_start
from tests.sql.queries import Run

from tether.cli.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


GO_ON = "go on"


class HeldRun(Run):
    """Waits before a batch, so that a strike before it cannot come too late."""

    held = 0

    def take(self, rows: DataFrame, batch: int) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while batch >= self.held and not (self.folder / GO_ON).exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        super().take(rows, batch)


def main(folder: str, master: str, theta: str, kind: str, held: str) -> None:
    conf = from_the_start(2) if master.startswith("local-cluster[2,1,") else {}
    spark = open_session(master, app="tether sql job", memory="1g", conf=conf)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    run = HeldRun(spark, kind, Path(folder))
    run.held = int(held)
    run.go(float(theta))
    metrics = {
        name: run.metric(name)
        for name in ("tetherBound", "tetherFailures", "tetherRestores", "tetherVersionsLost")
    }
    metrics["over"] = [
        d - t
        for d, t in zip(run.metric("tetherDivergence"), run.metric("tetherThreshold"), strict=True)
    ]
    output = {batch: [list(map(str, row)) for row in rows] for batch, rows in run.output.items()}
    print(json.dumps({"output": output, "metrics": metrics}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
