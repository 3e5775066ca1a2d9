"""Where rows come from that Spark itself has no source for.

- ``gateway``: an ingest server for producers that cannot replay
- ``exchange``: durable logs of rows between two queries
- ``sunion``: several of them as one stream
- ``replica``: one of several drivers of a query that reads and writes exchanges
- ``leaves``: what a streaming DataFrame is read from
- ``ddl``: schemas as short text, read without Java
"""
