"""By this name Spark finds the source "tether" by itself, in every session."""

from tether.sources.gateway.spark_source import GatewaySource as DefaultSource

__all__ = ["DefaultSource"]
