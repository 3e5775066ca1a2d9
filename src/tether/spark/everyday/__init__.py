"""Everyday aggregates without an operator of one's own: ``tether.stream(df).groupBy(…).agg(…)``.

``reading`` takes apart what Spark's functions made; ``parts`` says what numbers each aggregate keeps and
how they are put together; ``grouped`` is what a user holds. The operator itself is
:class:`tether.algorithms.grouped.GroupedParts`.
"""
