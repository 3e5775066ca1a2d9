"""How a slot gets its state back after a loss.

- ``recover``: the one algorithm: find, read, apply, replay, price, continue;
- ``found``: where the state comes from, for each strategy that a policy can name;
- ``replay``: logged rows, once more; ``lost``: how a slot says that only a rewind helps.
"""
