"""The pure heart: budgets, thresholds, policies. No Spark, no clock, no threads, no I/O.

Where to look:

- ``budget``, ``thresholds``: what failures may cost, and each slot's strict share of it.
- ``windows``: when a share that failures took comes back.
- ``policy``: what a policy is; ``no_tolerance``, ``mini_batch``, ``upstream_backup``, ``barrier``,
  ``approximate``: five of them; ``parse``: their text form.
- ``graph``: operators, slots and channels of a query.
- ``alignment``, ``snapshots``: a slot's and the coordinator's side of barrier snapshots;
  ``upstream_items``: the item protocol of upstream backup; ``rewind``: who goes back after a loss.
- ``accounts``, ``bound``: what was lost and what is at risk, and how wrong the answer can be now.
- ``items``, ``item_sender``: backup of items from sources that cannot replay.
- ``accuracy``: from an accuracy that the user can state to a budget.

Nothing is imported here, so that a Python worker loads only what it uses.
"""
