"""Spark's own checkpoint files: what they say, and how they are cut back."""
