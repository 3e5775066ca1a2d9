"""A bounded query as a process of its own, for tests that kill it: folder, master, Θ, kind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.sql.queries import Run

from tether.cli.session import open_session


def main(folder: str, master: str, theta: str, kind: str) -> None:
    spark = open_session(master, app="tether sql job", memory="1g")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    run = Run(spark, kind, Path(folder)).go(float(theta))
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
