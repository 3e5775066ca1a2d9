"""The pure heart: budgets, thresholds, policies. No Spark, no clock, no threads, no I/O."""
