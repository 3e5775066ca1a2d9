"""Starting a query: its stores are locked, what earlier runs left is finished, Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.engine.query.rewinder import finish_rewind
from tether.spark.actions import offer_actions
from tether.spark.folding.files import with_file_folding
from tether.spark.gateways.folded import with_folding
from tether.spark.gateways.found import gateway_leaves
from tether.spark.gateways.keeper import GatewayKeeper
from tether.spark.graph.exactness import heal_of, snapshots_of
from tether.spark.graph.flow import pack
from tether.spark.logs.ownership import claim_checkpoint
from tether.spark.logs.stream import SparkStream
from tether.spark.query import Query
from tether.spark.running.driver import EpochDriver
from tether.spark.running.rescaling import as_moved
from tether.spark.running.stores import open_stores, release
from tether.spark.running.supervision import Supervisor
from tether.sql.checkpoints import overlapped_where_far

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.streaming import StreamingQuery

    from tether.spark.graph.prepared import PreparedQuery


def start_query(
    query: PreparedQuery,
    checkpoint: str,
    trigger: Mapping[str, Any],
    name: str | None,
    *,
    keeps_checkpoint: bool,
    fold_at_source: bool = True,
) -> Query:
    """Lock the backup stores, check that they are this program's, and let Spark start."""
    stores = open_stores(query, f"query {name or query.flow.operators[-1].name}")
    try:
        backed = any(opened and opened.store.read_manifest() is not None for opened in stores)
        claim_checkpoint(checkpoint, known=backed)
        rewinds = snapshots_of(query) is not None
        if rewinds:
            finish_rewind(SparkStream(checkpoint, (sink for _, sink in query.sinks)))
        leaves = gateway_leaves(query.flow)
        if leaves:
            query = with_folding(query, leaves)
        if fold_at_source:
            query = with_file_folding(query)
        query = as_moved(query, stores)
        driver = EpochDriver(query, stores, checkpoint)
        if leaves:
            driver.speak_with(
                GatewayKeeper(query, leaves, checkpoint, driver.story, lasts=keeps_checkpoint)
            )

        def start() -> StreamingQuery:
            rows = pack(query.flow.sources, query.reading)
            writer = rows.writeStream.foreachBatch(driver)
            writer = writer.option("checkpointLocation", checkpoint)
            if name:
                writer = writer.queryName(name)
            if trigger:
                writer = writer.trigger(**trigger)
            with overlapped_where_far(rows.sparkSession, checkpoint):
                return writer.start()

        supervisor = Supervisor(driver, start)
    except BaseException:
        release(stores)
        raise
    driver.outcome.when_failed(supervisor.halt)
    driver.identify(str(supervisor.current.id), name)
    driver.open_early()
    if rewinds:
        supervisor.watch()
    handle = Query(supervisor, driver, stores, None if keeps_checkpoint else checkpoint)
    offer_actions(handle, snapshots=rewinds, heals=heal_of(query) is not None)
    return handle
