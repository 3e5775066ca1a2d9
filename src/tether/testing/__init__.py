"""Helpers for tests of queries: ours, and users' own."""
