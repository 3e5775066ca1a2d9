"""The epoch protocol of slots and queries, without Spark's own types where that is possible."""
