"""Spark tasks that run slots, and the reports that come back from them."""
