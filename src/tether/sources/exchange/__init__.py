"""Exchanges: durable, numbered logs of result rows between two queries.

- ``entries``: what one entry of a log says: pure values
- ``view``: what a reader may take of a log that it has seen up to here: pure
- ``folder``: the few verbs that a log needs of a local directory or an object store
- ``log``: entries by number; a half-written one does not exist
- ``readers``: who has read how far, and trimming what nobody needs any more
- ``writer``: one query's end of a log: duplicates dropped, corrections marked
- ``files``: rows on their way into the log, one file a task
- ``lease``: who of several replicas corrects its rows first
- ``gateway_boundaries``: how far the producers of a gateway have come
- ``sink``, ``ingest``: a Tether query, or any streaming DataFrame, writes to one
"""
