"""Fault-tolerance policies: pure state machines, events in, instructions out.

- ``policy``: what a policy is; ``base``: what they have in common; ``memory``: what all states share;
- ``events``, ``instructions``: what it is told, and what it can ask for; ``recovery``: after a loss;
- ``no_tolerance``, ``mini_batch``, ``upstream_backup``, ``barrier``, ``approximate``,
  ``partially_active``, ``available``: seven of them;
- ``window_effects``: failures that count against a window; ``terms``: who pays after a change of policy;
- ``parse``, ``explain``, ``accuracy``, ``parse_accuracy``: from text, into words, from an accuracy.
"""
