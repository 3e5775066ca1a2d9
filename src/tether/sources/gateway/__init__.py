"""The gateway: an ingest server for producers that push and forget (AF-Stream 2019 §3.4.2).

Who does what:

- ``gateway``: all streams of a store. ``stream``: one of them. ``holding``: its items, kept and saved.
- ``arriving``: items of several producers are taken in together.
- ``records``, ``segments``, ``facts``: the durable log. ``marks``: what survives a killed process only.
- ``opening``: a restart, and what it finds lost. ``backlog``: items in memory and on disk.
- ``census``: who sends, and what dying producers may have lost.
- ``saving``: makes items durable while others come. ``acks``: what goes back to producers.
- ``flight``, ``http``, ``server``, ``processes``: the doors, and the processes.
- ``calls``: a client's side of them. ``spark_source``, ``folding``: ``format("tether")``.

The decisions are those of ``tether.protocols.items``, ``item_sender`` and ``lost_items``.
"""
