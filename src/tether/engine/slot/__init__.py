"""What one slot does in one epoch.

- ``epoch``: the protocol, step by step; ``beside``: what a slot does between epochs;
- ``ahead``: work on rows of which some are missing, to be thrown away later;
- ``hooks``: the order in which an operator is called; ``interpreter``: carries out policies'
instructions;
- ``resident``: state while a task works on it: in an arena (``residents``) or on the heap (``heap``);
- ``program``: what all slots of an operator are told; ``second_look``: output that is asked for twice;
- ``windows``, ``phases``, ``policy_codec``, ``blame``, ``misplaced``: the rest.
"""
