"""A query over gateways as a program of its own, for tests that kill it.

Reads a JSON object of settings from its argument; goes on until a line comes on its input, reads what is
there by then, and prints what it found.
"""

from __future__ import annotations

import json
import sys

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.cli.session import open_session
from tether.policies.barrier import Barrier

POLICIES = {
    "approximate": lambda: tether.Approximate(1000, 400, 400),
    "mini-batch": tether.MiniBatch,
    "upstream-backup": tether.UpstreamBackup,
    "barrier": lambda: Barrier(3),
}


def main() -> None:
    settings = json.loads(sys.argv[1])
    session = open_session(settings["master"], memory="1g", conf=settings.get("conf", {}))
    read = session.readStream.format("tether").option("gateway", settings["gateway"])
    read = read.option("stream", "s").option("maxRowsPerEpoch", "1000").option("partitions", "2")
    operator = KeyedAggregate(sums={"total": "v"}, count="n")
    query = (
        tether.stream(read.load())
        .apply(operator, key="k", parallelism=2)
        .start(
            tolerance=POLICIES[settings["policy"]](),
            backup=f"{settings['folder']}/backup",
            checkpoint=f"{settings['folder']}/checkpoint",
        )
    )
    print("started", flush=True)
    sys.stdin.readline()
    query.processAllAvailable()
    found = query.table("totals").collect()
    now = query.bound()
    answer = {
        "rows": sum(row["n"] for row in found),
        "total": sum(row["total"] for row in found),
        "items_lost": now.items_lost,
        "state_error": now.state_error(alpha=2),  # a row changes a count and a sum, by one each
        "epochs": query.lastProgress["batchId"],
    }
    print(json.dumps(answer), flush=True)
    query.stop()
    session.stop()


if __name__ == "__main__":
    main()
