"""Makes a query's directories as a version of Tether leaves them; see ``test_earlier.py``.

What lies beside this file was made with the sources of an earlier commit in a worktree of their own,
and this version's environment:

    git worktree add ../earlier COMMIT
    PYTHONPATH=../earlier/src .venv/bin/python tests/spark/earlier/make.py FOLDER POLICY

Each holds four epochs of two slots. Of ``format-1`` only the manifest is kept: nothing else is read.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.testing.epochs import read_epochs, write_epochs

HERE = Path(__file__).parent
EPOCHS = 6
POLICIES = {
    "approximate": tether.Approximate(40),
    "barrier": tether.Barrier(2),
    "mini-batch": tether.MiniBatch(),
}


def rows() -> list[pa.Table]:
    """The stream: six epochs of 60 rows of 12 keys."""
    dice = np.random.default_rng(16)
    return [pa.table({"k": dice.integers(0, 12, 60)}) for _ in range(EPOCHS)]


def query(spark, root: Path, name: str, output, **options):
    """The same query for the version that begins it and the one that goes on."""
    return (
        tether.stream(read_epochs(spark, root / "in", "k long"))
        .apply(KeyedAggregate(divergence="l1"), key="k", parallelism=2)
        .start(
            output,
            tolerance=POLICIES[name],
            backup=str(root / "backup"),
            checkpoint=str(root / "checkpoint"),
            arena_dir=str(root / "arena"),
            **options,
        )
    )


def main(kept: Path, name: str) -> None:
    """Run four of the epochs, and keep what is durable."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_epochs(root / "in", rows()[:4])
        faults = []
        if name == "approximate":
            marker = str(root / "struck")
            from tether.chaos.faults import Fault

            faults = [Fault(point="before-attach", action="forget", marker=marker, slot=0, epoch=2)]
        running = query(spark, root, name, lambda _rows, _epoch: None, faults=faults)
        running.processAllAvailable()
        running.stop()
        shutil.rmtree(kept, ignore_errors=True)
        for part in ("backup", "checkpoint"):
            shutil.copytree(
                root / part, kept / part, ignore=shutil.ignore_patterns("*.crc", "lock*")
            )
        for file in (kept / "checkpoint").rglob("*"):
            if file.is_file():
                file.write_text(file.read_text().replace(str(root), "@ROOT@"))
    spark.stop()


if __name__ == "__main__":
    main(HERE / sys.argv[1], sys.argv[2])
