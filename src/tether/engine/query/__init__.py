"""What the driver knows and decides. Each thing has one owner.

- ``lane``, ``opening``: operators that run at one pace, and how they are made ready to run;
- ``runner``: runs epochs; ``orders``: what slots are told; ``committer``: the order of a commit;
- ``commit_log``, ``commit_entries``, ``log_opening``, ``binding``: the log, its lines, its damage;
- ``rewinder``, ``catching_up``: back to a snapshot, with all slots or with few;
- ``snapshot_keeper``: coordinates snapshots; ``exact_points``, ``twin``, ``aside``: second runs;
- ``ahead``: a run ahead of the query, on input of which something is missing;
- ``clocks``, ``lineages``, ``ledger``, ``feedback_box``: event time, which states are right, losses and
  the bound, items on their way back; ``room``: whether a second copy of the state fits.
"""
