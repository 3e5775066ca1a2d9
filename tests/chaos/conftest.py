"""The session that tests of failures share with those of the runtime."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
