"""The runtime on Spark: epochs, slot tasks, pinning, recovery, the query handle."""
