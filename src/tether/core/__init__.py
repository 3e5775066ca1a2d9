"""The pure heart: budgets, thresholds, windows, the bound. No Spark, no clock, no threads, no I/O.

Where to look:

- ``budget``, ``thresholds``: what failures may cost, and each slot's strict share of it.
- ``windows``: when a share that failures took comes back.
- ``graph``: operators, slots and channels of a query.
- ``accounts``, ``bound``: what was lost and what is at risk, and how wrong the answer can be now.
- ``placement``, ``amplification``: a slot's share, and how errors spread between operators.

Policies are in ``tether.policies``, protocols between slots and driver in ``tether.protocols``.
Nothing is imported here, so that a Python worker loads only what it uses.
"""
