"""From the user's graph of operators to a checked query and its Spark plan."""
