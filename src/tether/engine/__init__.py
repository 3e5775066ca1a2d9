"""The engine: slot protocol, recovery, backups, commits, rewinds.

It imports no host (Spark, local, simulator).

- ``ports``: what it needs of a host: a cluster, a store, a stream to read again, reports, a clock;
- ``operators``, ``messages``: what it knows of a query, and what driver and slots tell each other;
- ``query``: the driver's side: running epochs, committing them, going back;
- ``slot``: one slot's side: attach, call the operator, carry out the policy's instructions, report;
- ``recovery``: how a slot gets its state back after a loss;
- ``writing``: how a slot's backups are written.
"""
