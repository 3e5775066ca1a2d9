"""Where rows come from that Spark itself has no source for.

``gateway``: an ingest server for producers that cannot replay. ``ddl``: schemas as short text, read
without Java.
"""
