"""A query that reads gateways: its share of what they may lose, what they have lost, what they may drop.

``found``: which sources of a query are gateways. ``shares``: L and Γ divided among them. ``keeper``:
speaks with them while the query runs. ``folded``: lets their rows be folded before they are Spark's.
"""
