"""What a user submits: it counts words, and tells where its Tether came from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import tether


def main(work):
    spark = SparkSession.builder.getOrCreate()

    def loaded_from(_):
        import tether

        return tether.__file__

    places = set(spark.sparkContext.range(0, 8, 1, 8).map(loaded_from).collect())
    rows = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1)
    answers = {}
    query = (
        tether.stream(rows.json(str(work / "in")))
        .groupBy("word")
        .count()
        .outputMode("update")
        .option("checkpointLocation", work / "checkpoint")
        .option("backupLocation", work / "backup")
        .parallelism(4)
        .trigger(availableNow=True)
        .start(
            lambda df, epoch: answers.update({row.word: row["count"] for row in df.collect()}),
            tolerance=tether.Approximate(max_state_error=1000),
        )
    )
    query.awaitTermination()
    executors = {slot["executor"] for slot in query.slots()}
    told = {
        "driver": tether.__file__,
        "workers": sorted(places),
        "answers": answers,
        "executors": len(executors),
    }
    (work / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
