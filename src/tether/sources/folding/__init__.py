"""Rows folded per key in Arrow where they are read, before they would become Spark's rows.

- ``fold``: what is folded how, and when that gives Spark's own answer.
- ``spark_hash``: Spark's hash of keys, so that folded rows find their slots without Spark.
- ``parcels``: the folded rows of a slot as one value, which Spark carries without looking into it.
"""
