"""Pure values and functions: budgets, thresholds, windows, the bound.

No Spark, no clock, no threads, no I/O.

Where to look:

- ``budget``, ``thresholds``: what failures may cost, and each slot's strict share of it.
- ``windows``: when a threshold that failures have reduced is restored.
- ``graph``: operators, slots and channels of a query.
- ``accounts``, ``bound``: what was lost and what is at risk, and how wrong the answer can be now.
- ``placement``, ``amplification``: a slot's share, and how errors spread between operators.

Policies are in ``tether.policies``, protocols between slots and driver in ``tether.protocols``.
Nothing is imported here, so that a Python worker loads only what it uses.
"""
