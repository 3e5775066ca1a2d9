"""A host of the engine in one process, without Spark: what local pipelines and the simulator run on.

- ``cluster``: runs slots one after the other, on state on the heap, and retries those that fail;
- ``stream``: keeps the rows of epochs, as long as they may be read again;
- ``run``: a query's driver, which goes back to snapshots and can be restarted.

The slot protocol, recovery, commits and rewinds are the engine's; this package does not repeat them.
"""
