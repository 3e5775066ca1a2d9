"""Benchmarks: ratios measured side by side in one run, answers checked before a time counts."""
